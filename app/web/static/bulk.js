// Deleting all items that pass the chosen filters, or changing their labels and metadata: first they are counted, then it is confirmed.

import { readValue } from "./address.js";
import { Problem, call } from "./api.js";
import { typesOf } from "./columns.js";
import { byId } from "./elements.js";
import { conditionsOf } from "./filters.js";
import { announce, attempt } from "./messages.js";
import { collectionPath, plural, state } from "./state.js";

const [ITEMS_PER_PAGE, PAIRS_PER_FILTER, MOST_PAIRS_NAMED] = [500, 100, 1000]; // of more pairs, all items are looked through
const MOST_PARTNERS = 16; // of each modality; more of one pair are a group, and no partners
const [form, buttons] = [byId("bulk-form"), byId("bulk-actions")];
let verb = "delete";
let counted = null; // {address, body} of the call that is to be confirmed, whatever is shown by then
let latest = 0; // counts and edits: the answer to an earlier count is of no use
let refresh = null;

/** Offer to change what filters let pass; nothing without filters. `showAgain` is called when it is done. */
export function showBulk({ filter }, showAgain) {
  refresh = showAgain;
  close();
  showDone("");
  byId("bulk").hidden = filter.length === 0;
}

function close() {
  form.hidden = true;
  buttons.hidden = false;
}

function showDone(text) {
  byId("bulk-done").textContent = text;
  byId("bulk-done").hidden = text === "";
}

const linesOf = (id) => [...new Set(byId(id).value.split("\n").map((line) => line.trim()).filter(Boolean))];

/** Return the metadata that lines such as "colour: blue" set; null for a key alone. */
async function metadataOf(id, modality) {
  const entries = linesOf(id).map((line) => {
    const [key, ...rest] = line.split(":");
    return [key.trim(), rest.join(":").trim()];
  });
  return Object.fromEntries(await Promise.all(entries.map(async ([key, text]) => [key, text === "" ? null : await valueOf(key, text, modality)])));
}

/** Return what is written as JSON, or else a text: where other items have numbers of this key it is one, as in a table.
 * A number that JSON does not keep, or makes null, which takes its key away, is a text, too. */
async function valueOf(key, text, modality) {
  const value = readValue(text);
  if (typeof value === "number" && Math.abs(value) > Number.MAX_SAFE_INTEGER) return text;
  if (value !== text) return value;
  const isNumber = { modality, any: [{ gte: 0 }, { lt: 0 }].map((range) => ({ metadata: { [key]: range } })) };
  const { matched } = await send({ address: `${collectionPath()}/items:update`, body: { filter: isNumber, metadata: { [key]: null }, dry_run: true } });
  if (matched === 0) return text;
  const type = typesOf([key], [{ cells: [text] }]).get(key);
  if (type.word === "number") return type.value(text);
  throw new Problem(`Other items have numbers as “${key}”, and “${text}” cannot be read as one`, "Write a number such as 9.99, or put it in quotes to store it as text.", 0);
}

const send = async ({ address, body }) => (await call(address, { json: body })).json();

/** Yield all items that meet some conditions. */
async function* listAll(filter) {
  let cursor = null;
  do {
    const query = new URLSearchParams({ filter: JSON.stringify(filter), limit: String(ITEMS_PER_PAGE), ...(cursor && { cursor }) });
    const page = await (await call(`${collectionPath()}/items?${query}`)).json();
    yield* page.items;
    cursor = page.next_cursor;
  } while (cursor !== null);
}

/** Return the ids of partners that would be left alone: of pairs all of whose items of this modality pass a filter. */
async function listPartners(filter) {
  const [ids, pairs] = [new Set(), new Map()];
  for await (const { id, pair_id: pair } of listAll(filter)) {
    ids.add(id);
    if (pair !== null) pairs.set(pair, [[], []]);
  }
  const isOneOf = (chunk) => ({ any: chunk.map((pair) => ({ pair_id: pair })) });
  const filters = pairs.size > MOST_PAIRS_NAMED ? [{}] : chunksOf([...pairs.keys()], PAIRS_PER_FILTER).map(isOneOf);
  await Promise.all(filters.map(async (one) => {
    for await (const { id, pair_id: pair, modality } of listAll(one)) pairs.get(pair)?.[Number(modality !== filter.modality)].push(id);
  }));
  const isPair = (sides) => sides.every((side) => side.length <= MOST_PARTNERS) && sides[0].every((id) => ids.has(id));
  return [...pairs.values()].filter(isPair).flatMap(([, others]) => others);
}

const chunksOf = (list, size) => Array.from({ length: Math.ceil(list.length / size) }, (_, number) => list.slice(number * size, (number + 1) * size));

/** Say what the call would do, which the next click does; return whether nothing else was asked meanwhile. */
async function count() {
  const { shown } = state;
  const asked = latest += 1;
  const address = `${collectionPath()}/items:${verb}`;
  const body = { filter: { ...conditionsOf(shown.filter), modality: shown.target } };
  if (verb === "update") {
    const metadata = await metadataOf("bulk-metadata", shown.target);
    Object.assign(body, { add_labels: linesOf("bulk-add"), remove_labels: linesOf("bulk-remove"), metadata });
  }
  const { matched, changed } = await send({ address, body: { ...body, dry_run: true } });
  const partners = byId("bulk-partners").checked ? await listPartners(body.filter) : [];
  if (asked !== latest || state.shown !== shown || form.hidden) return false;
  const [what, [other]] = [`${matched} ${plural(shown.target, matched)}`, shown.others];
  const also = byId("bulk-partners").checked ? ` and ${partners.length} ${plural(other, partners.length)}` : "";
  const rest = other && !also ? ` Partners among the ${plural(other)} stay.` : "";
  const question = `Delete ${what}${also} for good?${rest}`;
  byId("bulk-said").textContent = verb === "delete" ? question : `${changed} of ${what} would change.`;
  counted = changed > 0 ? { address, body, partners, other } : null;
  byId("bulk-do").textContent = counted ? `${verb === "delete" ? "Delete" : "Change"} ${changed + partners.length}` : "Count them";
  return true;
}

/** Do what was counted, once it is counted again: where others have written since, it says so and asks again. */
async function confirm() {
  const [done, said] = [verb === "delete" ? "deleted" : "changed", byId("bulk-said").textContent];
  if (await count() && byId("bulk-said").textContent === said) await attempt(() => perform(counted, done), form);
}

async function perform(sent, done) {
  close();
  byId("results").focus();
  let alone = 0; // partners go first: without what passes they would not be found again
  for (const ids of chunksOf(sent.partners, ITEMS_PER_PAGE)) {
    alone += (await send({ ...sent, body: { filter: { ids, modality: sent.other } } })).changed;
  }
  const { changed } = await send(sent);
  const also = alone > 0 ? ` and ${alone} ${plural(sent.other, alone)}` : "";
  const news = `${changed} ${plural(sent.body.filter.modality, changed)}${also} ${changed + alone === 1 ? "was" : "were"} ${done}`;
  await refresh();
  showDone(news);
  announce(news);
}

function open(chosen) {
  [verb, counted] = [chosen, null];
  latest += 1;
  form.reset();
  showDone("");
  byId("bulk-said").textContent = "";
  byId("bulk-do").textContent = "Count them";
  byId("bulk-fields").hidden = verb === "delete";
  const [other] = state.shown.others;
  byId("bulk-with-partners").hidden = verb !== "delete" || !other;
  byId("bulk-partners").nextSibling.textContent = ` Also the ${plural(other ?? "")} that would be left without a partner`;
  [form.hidden, buttons.hidden] = [false, true];
  (verb === "delete" ? form.querySelector(".cancel") : byId("bulk-add")).focus();
  if (verb === "delete") attempt(count, form);
}

byId("bulk-delete").addEventListener("click", () => open("delete"));
byId("bulk-change").addEventListener("click", () => open("update"));
byId("bulk-partners").addEventListener("change", () => {
  byId("bulk-said").textContent = "";
  counted = null;
  attempt(count, form);
});
byId("bulk-fields").addEventListener("input", () => {
  counted = null;
  latest += 1;
  byId("bulk-said").textContent = "";
  byId("bulk-do").textContent = "Count them";
});
form.querySelector(".cancel").addEventListener("click", () => {
  close();
  byId(verb === "delete" ? "bulk-delete" : "bulk-change").focus();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(counted ? confirm : count, form);
});
