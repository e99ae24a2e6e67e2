// The address of a search: what can be shared, and what Back and Forward return to.

import { Problem } from "./api.js";

const METADATA = "meta.";
const pictures = []; // chosen ones have no address; Back finds them here until the page is left

/** Put a search into the address bar; searches that are typed letter by letter share one entry of the history. */
export function writeAddress(collection, shown, isTyped) {
  const picture = shown?.query.picture;
  const url = addressOf(collection, shown);
  const entry = { isTyped, picture: picture ? keep(picture) : null };
  const isSame = url === location.search && entry.picture === (history.state?.picture ?? null);
  const isContinued = isTyped && history.state?.isTyped;
  history[isSame || isContinued ? "replaceState" : "pushState"](entry, "", url || location.pathname);
}

function keep(picture) {
  const number = pictures.indexOf(picture);
  return number === -1 ? pictures.push(picture) - 1 : number;
}

function addressOf(collection, shown) {
  const parameters = new URLSearchParams({ collection: collection.name });
  if (shown) {
    const { source, target, query, filter } = shown;
    parameters.set("from", source);
    parameters.set("to", target);
    if (query.itemId !== undefined) parameters.set("item", query.itemId);
    else if (query.text !== undefined) parameters.set("q", query.text);
    writeFilter(parameters, filter);
  }
  return `?${parameters}`;
}

/** Add a filter to the parameters of an address. */
export function writeFilter(parameters, filter) {
  for (const label of filter.labels) parameters.append("label", label);
  for (const [key, values] of filter.metadata) {
    for (const value of values) parameters.append(`${METADATA}${key}`, JSON.stringify(value));
  }
}

/** Return what the address asks for: a collection's name, and a search or null. */
export function readAddress() {
  const parameters = new URLSearchParams(location.search);
  const collection = parameters.get("collection");
  const [source, target] = [parameters.get("from"), parameters.get("to")];
  const query = source && target ? readQuery(parameters) : null;
  return { collection, search: query && { source, target, query, filter: readFilter(parameters) } };
}

function readQuery(parameters) {
  if (parameters.has("item")) return { itemId: parameters.get("item") };
  if (parameters.has("q")) return { text: parameters.get("q") };
  const picture = pictures[history.state?.picture];
  if (picture) return { picture };
  throw new Problem("The picture of this search is not part of its address", "Choose it again.", 0);
}

/** Return the filter in the parameters of an address. */
export function readFilter(parameters) {
  const metadata = new Map();
  for (const [name, text] of parameters) {
    if (!name.startsWith(METADATA)) continue;
    const key = name.slice(METADATA.length);
    metadata.set(key, [...(metadata.get(key) ?? []), readValue(text)]);
  }
  return { labels: parameters.getAll("label"), metadata };
}

/** Return a value that is written as JSON, or a text as it is. */
export function readValue(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
