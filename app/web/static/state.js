// The open collection and what the page shows of it.

import { call } from "./api.js";

const EXAMPLES_SCANNED = 200;

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
  `/v1/collections/${encodeURIComponent(collection.name)}`;

export const adminPath = (collection = state.collection) =>
  `/v1/admin/collections/${encodeURIComponent(collection.name)}`;

/** List the first items of a modality, to take examples from. */
export async function listItems(modality) {
  const query = new URLSearchParams({ modality, limit: String(EXAMPLES_SCANNED) });
  const response = await call(`${collectionPath()}/items?${query}`);
  return (await response.json()).items;
}

/** Return what a modality takes: "picture", "sound", "text" or "vector". */
export const kindOf = (modality) => modality?.content;

/** Return the address of an item's picture; undefined where it has none. */
export const pictureUrlOf = (item, modality) =>
  kindOf(state.collection.modalities[modality]) === "sound" ? undefined : (item.content_url ?? undefined);

/** Return "pictures" for the modality image and "texts" for text; any other keeps its own name. */
export function plural(name) {
  if (name === "image") return "pictures";
  if (name === "text") return "texts";
  return `“${name}” items`;
}
