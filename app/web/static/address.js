// The address of a search: what can be shared, and what Back and Forward return to.

import { Problem } from "./api.js";

const METADATA = "meta.";
const LONGEST_TEXT = 2000; // of a query in an address, as in its field; servers refuse addresses of some 64 KiB
const pictures = []; // chosen ones have no address; Back finds them here until the page is left

/** Put a search into the address bar; searches that are typed letter by letter share one entry of the history. */
export function writeAddress(collection, shown, isTyped) {
  const picture = shown?.query.picture;
  const url = addressOf(collection, shown);
  const text = isLong(shown?.query) ? shown.query.text : null; // which the history keeps, also while the page is reloaded
  const entry = { isTyped, picture: picture ? keep(picture) : null, text };
  const isContentSame = entry.picture === (history.state?.picture ?? null) && text === (history.state?.text ?? null);
  const isSame = url === location.search && isContentSame;
  const isContinued = isTyped && history.state?.isTyped;
  history[isSame || isContinued ? "replaceState" : "pushState"](entry, "", url || location.pathname);
}

function isLong(query) {
  return query?.text?.length > LONGEST_TEXT;
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
    else if (query.text !== undefined && !isLong(query)) parameters.set("q", query.text);
    writeFilter(parameters, filter);
  }
  return `?${parameters}`;
}

/** Add a filter to the parameters of an address. */
export function writeFilter(parameters, filter) {
  for (const choice of filter) {
    const { label, key, value, not } = choice;
    if (not || (label ?? value) === undefined) parameters.append("also", JSON.stringify(choice));
    else if (label !== undefined) parameters.append("label", label);
    else parameters.append(`${METADATA}${key}`, JSON.stringify(value));
  }
}

/** Return the name of the collection in the address, or null. */
export const readCollection = () => new URLSearchParams(location.search).get("collection");

/** Return the search that the address asks for, or null. */
export function readSearch() {
  const parameters = new URLSearchParams(location.search);
  const [source, target] = [parameters.get("from"), parameters.get("to")];
  if (!source || !target) return null;
  return { source, target, query: readQuery(parameters), filter: readFilter(parameters) };
}

function readQuery(parameters) {
  if (parameters.has("item")) return { itemId: parameters.get("item") };
  if (parameters.has("q")) return { text: parameters.get("q") };
  const picture = pictures[history.state?.picture];
  if (picture) return { picture };
  if (history.state?.text) return { text: history.state.text };
  throw new Problem("What this search asks for is not part of its address", "Choose or enter it again.", 0);
}

/** Return the filter in the parameters of an address. */
export function readFilter(parameters) {
  return [...parameters].flatMap(([name, text]) => {
    if (name === "label") return { label: text };
    if (name.startsWith(METADATA)) return { key: name.slice(METADATA.length), value: readValue(text) };
    const choice = name === "also" ? readValue(text) : null;
    return choice?.label ?? choice?.key ? choice : [];
  });
}

/** Return a value that is written as JSON, or a text as it is. */
export function readValue(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
