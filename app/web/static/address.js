// The address of a search: what can be shared, and what Back and Forward return to.

import { Problem } from "./api.js";
import { isPlain } from "./state.js";

const METADATA = "meta.";
const LONGEST_TEXT = 2000; // of a query in an address, as in its field; servers refuse addresses of some 64 KiB
export const MOST_PARTS = 16; // of a query, as the service takes them
export const MOST_OF_GROUP = 100; // results of each that are shown
const pictures = []; // chosen ones have no address; Back finds them here until the page is left

/** Put a search into the address bar; searches that are typed letter by letter share one entry of the history. */
export function writeAddress(collection, shown, isTyped) {
  const url = addressOf(collection, shown);
  const kept = (shown?.parts ?? []).map(({ query }) => keep(query));
  const entry = { isTyped, kept };
  const isContentSame = JSON.stringify(kept) === JSON.stringify(history.state?.kept ?? []);
  const isSame = url === location.search && isContentSame;
  const isContinued = isTyped && history.state?.isTyped;
  history[isSame || isContinued ? "replaceState" : "pushState"](entry, "", url || location.pathname);
}

const isLong = ({ text }) => text?.length > LONGEST_TEXT;

/** Return what the history keeps of a query, also while the page is reloaded: a long text, or a picture's number. */
function keep(query) {
  if (!query.picture) return isLong(query) ? query.text : null;
  const number = pictures.indexOf(query.picture);
  return number === -1 ? pictures.push(query.picture) - 1 : number;
}

function addressOf(collection, shown) {
  const parameters = new URLSearchParams({ collection: collection.name });
  if (shown) {
    const described = shown.parts.map(describe);
    if (isPlain(shown)) Object.entries(described[0]).forEach(([name, value]) => parameters.set(name, value));
    else described.forEach((part) => parameters.append("part", JSON.stringify(part)));
    parameters.set("to", shown.target);
    writeFilter(parameters, shown.filter);
    if (shown.groupBy) parameters.set("group", shown.groupBy);
    if (shown.groupBy && shown.groupSize > 1) parameters.set("size", shown.groupSize);
    if (shown.minProbability > 0) parameters.set("min_probability", shown.minProbability);
    if (shown.diversity > 0) parameters.set("diversity", shown.diversity);
    if (shown.includesGiven) parameters.set("given", "true");
    if (Object.keys(shown.emphasis).length > 0) parameters.set("emphasis", JSON.stringify(shown.emphasis));
  }
  return `?${parameters}`;
}

/** Return a part as addresses have it, without what is too long or a file. */
function describe({ source, query, weight }) {
  const { itemId: item, text } = query;
  return { from: source, ...(item ? { item } : text && !isLong(query) ? { q: text } : {}), ...(weight === 1 ? {} : { weight }) };
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
  const target = parameters.get("to");
  const plain = Object.fromEntries([...parameters].filter(([name]) => ["from", "item", "q"].includes(name)));
  const described = parameters.has("part") ? parameters.getAll("part").map(readValue) : [plain];
  if (!target || !described.every((part) => part?.from)) return null;
  if (described.length > MOST_PARTS) {
    throw new Problem("This address has too many parts", `A search takes ${MOST_PARTS} at most: take some out of it.`, 0);
  }
  const parts = described.map((part, number) => (
    { source: part.from, query: readQuery(part, history.state?.kept?.[number]), weight: part.weight ?? 1 }
  ));
  const emphasis = readValue(parameters.get("emphasis") ?? "{}") ?? {};
  const groupSize = Math.min(Math.max(Math.trunc(Number(parameters.get("size"))) || 1, 1), MOST_OF_GROUP);
  const [minProbability, diversity] = ["min_probability", "diversity"].map((name) => Math.min(Math.max(Number(parameters.get(name)) || 0, 0), 1));
  const includesGiven = parameters.get("given") === "true";
  return { parts, target, filter: readFilter(parameters), groupBy: parameters.get("group"), groupSize, minProbability, diversity, emphasis, includesGiven };
}

function readQuery({ item, q }, kept) {
  if (item !== undefined) return { itemId: String(item) };
  if (q !== undefined) return { text: String(q) };
  if (typeof kept === "string") return { text: kept };
  if (pictures[kept]) return { picture: pictures[kept] };
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
