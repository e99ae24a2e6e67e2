// Deleting all items that pass the chosen filters, or changing their labels and metadata: first they are counted, then it is confirmed.

import { readValue } from "./address.js";
import { call } from "./api.js";
import { byId } from "./elements.js";
import { conditionsOf } from "./filters.js";
import { announce, attempt } from "./messages.js";
import { collectionPath, plural, state } from "./state.js";

const [form, buttons] = [byId("bulk-form"), byId("bulk-actions")];
let verb = "delete";
let counted = null; // {address, body} of the call that is to be confirmed, whatever is shown by then
let latest = 0; // counts and edits: the answer to an earlier count is of no use
let refresh = null;

/** Offer to change what filters let pass; nothing without filters. `showAgain` is called when it is done. */
export function showBulk({ filter }, showAgain) {
  refresh = showAgain;
  close();
  byId("bulk").hidden = filter.length === 0;
}

function close() {
  form.hidden = true;
  buttons.hidden = false;
}

const linesOf = (id) => [...new Set(byId(id).value.split("\n").map((line) => line.trim()).filter(Boolean))];

/** Return a value as it is written; a number that would be another one, or null and so take its key away, as a text. */
function valueOf(text) {
  const value = readValue(text);
  return typeof value === "number" && Math.abs(value) > Number.MAX_SAFE_INTEGER ? text : value;
}

/** Return the metadata that lines such as "colour: blue" set; null for a key alone. */
const metadataOf = (id) => Object.fromEntries(linesOf(id).map((line) => {
  const [key, ...rest] = line.split(":");
  const text = rest.join(":").trim();
  return [key.trim(), text === "" ? null : valueOf(text)];
}));

const send = async ({ address, body }) => (await call(address, { json: body })).json();

/** Say what the call would do, which the next click does; return whether nothing else was asked meanwhile. */
async function count() {
  const { shown } = state;
  const asked = latest += 1;
  const change = { add_labels: linesOf("bulk-add"), remove_labels: linesOf("bulk-remove"), metadata: metadataOf("bulk-metadata") };
  const body = { filter: { ...conditionsOf(shown.filter), modality: shown.target }, ...(verb === "update" ? change : {}) };
  const address = `${collectionPath()}/items:${verb}`;
  const { matched, changed } = await send({ address, body: { ...body, dry_run: true } });
  if (asked !== latest || state.shown !== shown || form.hidden) return false;
  const what = `${matched} ${plural(shown.target, matched)}`;
  byId("bulk-said").textContent = verb === "delete" ? `Delete ${what} for good?` : `${changed} of ${what} would change.`;
  counted = changed > 0 ? { address, body } : null;
  byId("bulk-do").textContent = counted ? `${verb === "delete" ? "Delete" : "Change"} ${changed}` : "Count them";
  return true;
}

/** Do what was counted, once it is counted again: where others have written since, it says so and asks again. */
async function confirm() {
  const [sent, done, said] = [counted, verb === "delete" ? "deleted" : "changed", byId("bulk-said").textContent];
  if (await count() && byId("bulk-said").textContent === said) await attempt(() => perform(sent, done), form);
}

async function perform(sent, done) {
  close();
  byId("results").focus();
  const { changed } = await send(sent);
  const news = `${changed} ${plural(sent.body.filter.modality, changed)} ${changed === 1 ? "was" : "were"} ${done}`;
  await refresh();
  announce(news);
}

function open(chosen) {
  [verb, counted] = [chosen, null];
  latest += 1;
  form.reset();
  byId("bulk-said").textContent = "";
  byId("bulk-do").textContent = "Count them";
  byId("bulk-fields").hidden = verb === "delete";
  [form.hidden, buttons.hidden] = [false, true];
  (verb === "delete" ? form.querySelector(".cancel") : byId("bulk-add")).focus();
  if (verb === "delete") attempt(count, form);
}

byId("bulk-delete").addEventListener("click", () => open("delete"));
byId("bulk-change").addEventListener("click", () => open("update"));
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
