// Deleting and relabelling all items that pass the chosen filters: first they are counted, then it is confirmed.

import { call } from "./api.js";
import { byId } from "./elements.js";
import { conditionsOf } from "./filters.js";
import { announce, attempt } from "./messages.js";
import { collectionPath, plural, state } from "./state.js";

const [form, buttons] = [byId("bulk-form"), byId("bulk-actions")];
let verb = "delete";
let body = null; // of the call that was counted, and is to be confirmed
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

async function send(sent) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(sent) };
  return (await call(`${collectionPath()}/items:${verb}`, options)).json();
}

/** Say what the call would do; the next click does it. */
async function count() {
  const { shown } = state;
  const labels = verb === "update" ? { add_labels: linesOf("bulk-add"), remove_labels: linesOf("bulk-remove") } : {};
  const counted = { filter: { ...conditionsOf(shown.filter), modality: shown.target }, ...labels };
  const { matched, changed } = await send({ ...counted, dry_run: true });
  if (state.shown !== shown || form.hidden) return;
  const what = `${matched} ${plural(shown.target, matched)}`;
  byId("bulk-said").textContent = verb === "delete" ? `Delete ${what} for good?` : `${changed} of ${what} would change.`;
  body = changed > 0 ? counted : null;
  byId("bulk-do").textContent = body ? `${verb === "delete" ? "Delete" : "Change"} ${changed}` : "Count them";
}

async function perform() {
  close(); // a second click does nothing
  byId("results").focus();
  const { changed } = await send(body);
  const done = `${changed} ${plural(state.shown.target, changed)} ${changed === 1 ? "was" : "were"} ${verb === "delete" ? "deleted" : "changed"}`;
  await refresh();
  announce(done);
}

function open(chosen) {
  [verb, body] = [chosen, null];
  form.reset();
  byId("bulk-said").textContent = "";
  byId("bulk-do").textContent = "Count them";
  byId("bulk-fields").hidden = verb === "delete";
  [form.hidden, buttons.hidden] = [false, true];
  (verb === "delete" ? form.querySelector(".cancel") : byId("bulk-add")).focus();
  if (verb === "delete") attempt(count, form);
}

byId("bulk-delete").addEventListener("click", () => open("delete"));
byId("bulk-labels").addEventListener("click", () => open("update"));
byId("bulk-fields").addEventListener("input", () => {
  body = null;
  byId("bulk-do").textContent = "Count them";
});
form.querySelector(".cancel").addEventListener("click", () => {
  close();
  byId(verb === "delete" ? "bulk-delete" : "bulk-labels").focus();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(body ? perform : count, form);
});
