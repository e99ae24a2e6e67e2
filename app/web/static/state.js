// The open collection and what the page shows of it.

import { call } from "./api.js";

const EXAMPLES_SCANNED = 200;
const PICTURE_ENCODERS = new Set(["hog-color", "onnx"]);

export const state = { collection: null, search: null, retry: null, pictures: [], examples: [] };

export const collectionPath = (collection = state.collection) =>
  `/v1/collections/${encodeURIComponent(collection.name)}`;

/** List the first items of a modality, to take examples from. */
export async function listItems(modality) {
  const query = new URLSearchParams({ modality, limit: String(EXAMPLES_SCANNED) });
  const response = await call(`${collectionPath()}/items?${query}`);
  return (await response.json()).items;
}

export function kindOf(modality) {
  const encoder = modality?.encoder;
  const type = (encoder?.type === "combine" ? encoder.parts[0] : encoder)?.type;
  if (type === "vector") return type;
  return PICTURE_ENCODERS.has(type) ? "picture" : "text";
}

/** Return "pictures" for the modality image and "texts" for text; any other keeps its own name. */
export function plural(name) {
  if (name === "image") return "pictures";
  if (name === "text") return "texts";
  return `“${name}” items`;
}
