// The open collection and what the page shows of it.

import { call } from "./api.js";
import { spreadOut } from "./elements.js";

const EXAMPLES_SCANNED = 200;
const LABELS_COUNTED = 50;

export const state = {
  collection: null,
  search: null,
  sought: null,
  shown: null,
  retry: null,
  pictures: [],
  examples: [],
};

export const collectionPath = (collection = state.collection) =>
  `v1/collections/${encodeURIComponent(collection.name)}`;

export const adminPath = (collection = state.collection) =>
  `v1/admin/collections/${encodeURIComponent(collection.name)}`;

/** List the first items of a modality that meet some conditions, to take examples from. */
export async function listItems(modality, conditions = { limit: String(EXAMPLES_SCANNED) }) {
  const response = await call(`${collectionPath()}/items?${new URLSearchParams({ modality, ...conditions })}`);
  return (await response.json()).items;
}

/** Return some items of a modality to search by: one of each of some labels, else some of the first ones. */
export async function listExamples(modality, count) {
  const labels = spreadOut(await listLabels(modality), count);
  if (labels.length < 2) return spreadOut(await listItems(modality), count);
  const ofLabels = await Promise.all(labels.map((label) => listItems(modality, { label, limit: "1" })));
  return ofLabels.flat();
}

/** Return the most frequent labels of a modality. */
export async function listLabels(modality) {
  const query = new URLSearchParams({ modality, limit: String(LABELS_COUNTED) });
  const { labels } = await (await call(`${collectionPath()}/values?${query}`)).json();
  return labels.map(({ value }) => value);
}

/** Return what a modality takes: "picture", "sound", "text" or "vector". */
export const kindOf = (modality) => modality?.content;

/** Return the address of an item's picture or sound; undefined where it has none. */
export const contentUrlOf = (item) =>
  item.content_url ? `${collectionPath()}/items/${encodeURIComponent(item.id)}/content` : undefined;

/** Return the address of an item's picture; undefined where it has none. */
export const pictureUrlOf = (item, modality) =>
  kindOf(state.collection.modalities[modality]) === "sound" ? undefined : contentUrlOf(item);

/** Return an item as a query. */
export function queryOf(item, modality) {
  const pictureUrl = pictureUrlOf(item, modality);
  return { itemId: item.id, title: pictureUrl ? undefined : item.text || item.id, pictureUrl };
}

/** Return whether a search is that of one content or item, as opposed to a composed one. */
export const isPlain = ({ parts }) => parts.length === 1 && parts[0].weight > 0;

/** Return whether a composed search has stored items among its parts. */
export const hasItems = ({ parts }) => !isPlain({ parts }) && parts.some(({ query }) => query.itemId !== undefined);

/** Return what a query is called. */
export const nameOf = ({ text, title, picture, itemId }) =>
  text ?? title ? `“${text ?? title}”` : picture ? picture.name || "pasted picture" : `picture ${itemId}`;

/** Return "pictures" for the modality image and "texts" for text, or what one of them is called; any other keeps its own name. */
export function plural(name, count = 2) {
  const noun = { image: "picture", text: "text" }[name] ?? `“${name}” item`;
  return count === 1 ? noun : `${noun}s`;
}

/** Return whether metadata name the file that an item came from, which its table does not have. */
export const namesFile = (key, value) => key === "source" && /.\.[A-Za-z0-9]{2,7}$/.test(value);
