// The page of a collection: its making, its items page by page, their labels, and their deletion. Values of items are
// written with textContent or as properties, never as markup.

import { offerAdding, showAdding } from "./adding.js";
import { readFilter, writeFilter } from "./address.js";
import { Problem, call } from "./api.js";
import { showBulk } from "./bulk.js";
import { offerCreation } from "./creating.js";
import { byId, element, radioOf } from "./elements.js";
import { conditionsOf, showFilters } from "./filters.js";
import { offerMap, showMap } from "./map.js";
import { announce, attempt, clearError, offerKey, showError } from "./messages.js";
import { showModel } from "./model.js";
import { release } from "./pictures.js";
import { factsOf, pictureOf, playersOf } from "./results.js";
import { collectionPath, pictureUrlOf, plural, state } from "./state.js";

const ITEMS_PER_PAGE = 48;
const GONE = 404;

let collections = [];

offerKey();

byId("collection").addEventListener("change", () => {
  history.pushState(null, "", `?${new URLSearchParams({ collection: byId("collection").value })}`);
  attempt(showAddress);
});
byId("modalities").addEventListener("change", ({ target }) => {
  open({ target: target.value, filter: [] });
});
byId("more").addEventListener("click", () => attempt(showPage));
byId("export").addEventListener("click", () => attempt(exportItems, byId("export")));
window.addEventListener("popstate", () => attempt(showAddress));

/** Put what is to be shown into the address bar, and show it. */
function open({ target, filter }) {
  const parameters = new URLSearchParams({ collection: state.collection.name, modality: target });
  writeFilter(parameters, filter);
  history.pushState(null, "", `?${parameters}`);
  attempt(showAddress);
}

async function loadCollections() {
  ({ collections } = await (await call("v1/collections")).json());
  byId("collection").replaceChildren(...collections.map(({ name }) => new Option(name, name)));
  byId("collection").disabled = collections.length === 0;
  byId("adding").hidden = collections.length === 0;
  if (collections.length > 0) await showAddress();
  else byId("creating").open = true;
}

/** Show the collection and modality that the address names, or the first ones. */
async function showAddress() {
  const parameters = new URLSearchParams(location.search);
  const name = parameters.get("collection") ?? collections[0].name;
  const collection = collections.find((candidate) => candidate.name === name);
  if (!collection) throw new Problem(`There is no collection “${name}”`, "Choose one of the list.", 404);
  state.collection = collection;
  byId("collection").value = name;
  showModel();
  byId("to-search").href = `./?${new URLSearchParams({ collection: name })}`;
  byId("to-models").href = `models?${new URLSearchParams({ collection: name })}`;
  const names = Object.keys(collection.modalities);
  const modality = names.includes(parameters.get("modality")) ? parameters.get("modality") : names[0];
  showAdding();
  const choices = names.map((each) => radioOf("modality", each, plural(each), each === modality));
  byId("modalities").replaceChildren(byId("modalities").firstElementChild, ...choices);
  clearError();
  release(state.pictures);
  byId("hits").replaceChildren();
  byId("more").hidden = true;
  const shown = { target: modality, filter: readFilter(parameters), cursor: null };
  state.shown = state.sought = shown;
  const { items, ...facts } = await (await call(collectionPath())).json();
  if (state.shown !== shown) return;
  Object.assign(collection, facts);
  showModel();
  shown.total = items?.[modality] ?? 0;
  shown.others = Object.keys(items ?? {}).filter((name) => name !== modality && items[name] > 0);
  showTotal(shown);
  showMap(shown);
  showFilters(shown, facts.revision, open).then((numbers) => {
    shown.passing ??= numbers?.passing; // which the whole list says, too
    showTotal(shown);
  }, showError);
  byId("export").hidden = false;
  byId("export").textContent = exportTitle(shown);
  showBulk(shown, showAddress);
  await showPage();
}

/** Say how many items there are and, with filters, how many pass as soon as that is counted. */
function showTotal(shown) {
  if (state.shown !== shown) return;
  const { total, passing, target, filter } = shown;
  byId("results-title").textContent = `${filter.length > 0 && passing >= 0 ? `${passing} of ` : ""}${total} ${plural(target, total)}`;
}

/** Append items until there is a page of them: one answer may have few that pass a filter. */
async function showPage() {
  const { shown } = state;
  const query = queryOf(shown);
  let missing = ITEMS_PER_PAGE;
  do {
    const { cursor } = shown;
    query.set("limit", String(missing));
    if (cursor !== null) query.set("cursor", cursor);
    const page = await (await call(`${collectionPath()}/items?${query}`)).json();
    if (state.shown !== shown || shown.cursor !== cursor) return;
    shown.cursor = page.next_cursor;
    missing -= page.items.length;
    if (cursor === null) shown.notices = page.notices.map(({ message }) => message);
    if (cursor === null) byId("hits").classList.toggle("is-texts", !page.items.some((item) => pictureUrlOf(item, shown.target)));
    byId("hits").append(...page.items.map(cardOf));
  } while (missing > 0 && shown.cursor !== null);
  byId("more").hidden = shown.cursor === null;
  const count = byId("hits").childElementCount;
  if (shown.cursor === null) showTotal(Object.assign(shown, { passing: count }));
  byId("nothing").hidden = count > 0 || shown.filter.length === 0;
  byId("nothing").textContent = shown.notices.join(". ") || "No item passes these filters.";
  announce(byId("nothing").hidden ? `${count} ${plural(shown.target, count)} ${count === 1 ? "is" : "are"} shown` : byId("nothing").textContent);
}

const queryOf = ({ target, filter }) => new URLSearchParams({ modality: target, filter: JSON.stringify(conditionsOf(filter)) });

const exportTitle = ({ filter }) => (filter.length > 0 ? "Download what passes" : "Download all");

/** Save what passes the filters, or the whole collection, as an import takes it. */
async function exportItems() {
  const { shown: { target, filter }, collection: { name } } = state;
  const conditions = filter.length > 0 ? { modality: target, ...conditionsOf(filter) } : {};
  const query = new URLSearchParams({ filter: JSON.stringify(conditions) });
  const [button, cutOff] = [byId("export"), new Problem("The download was cut off", "Try again; lrbs export writes large collections to a file as they come.", 0)];
  Object.assign(button, { disabled: true, textContent: "Downloading" });
  announce("Downloading");
  try {
    const exported = await (await call(`${collectionPath()}/items:export?${query}`)).blob().catch(() => { throw cutOff; });
    const [link, url] = [element("a"), URL.createObjectURL(exported)];
    Object.assign(link, { href: url, download: `${name}.ndjson` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000); // once the browser has begun to save it
    announce(`${name}.ndjson was downloaded`);
  } finally {
    Object.assign(button, { disabled: false, textContent: exportTitle(state.shown) });
  }
}

const pathOf = (item) => `${collectionPath()}/items/${encodeURIComponent(item.id)}`;

function cardOf(item) {
  const card = byId("item-card").content.firstElementChild.cloneNode(true);
  const body = card.querySelector(".hit");
  body.dataset.id = item.id;
  if (pictureUrlOf(item, item.modality)) body.prepend(pictureOf(item));
  else if (item.text) body.prepend(element("span", "hit-text", item.text));
  body.append(...playersOf(item, item.modality));
  card.querySelector(".hit-id").textContent = item.id;
  for (const [name, verb] of [[".edit", "Change the labels of"], [".actions .delete", "Delete"]]) {
    card.querySelector(name).setAttribute("aria-label", `${verb} ${item.id}`);
  }
  showLabels(card, item);
  addEditor(card, item);
  addDeletion(card, item);
  return card;
}

function showLabels(card, { labels, metadata }) {
  const tags = (labels ?? []).map((label) => element("span", "", label));
  card.querySelector(".labels").replaceChildren(...tags, ...factsOf(metadata ?? {}));
}

/** Let a button show a form of the card; `open` prepares it, `submit` does what it is for. */
function connect(card, button, form, open, submit) {
  const close = () => {
    form.hidden = true;
    button.parentElement.hidden = false;
    button.focus();
  };
  button.addEventListener("click", () => {
    open();
    form.hidden = false;
    button.parentElement.hidden = true;
    (form.querySelector("textarea") ?? form.querySelector(".cancel")).focus();
  });
  form.querySelector(".cancel").addEventListener("click", close);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(() => submit(close), form);
  });
}

function addEditor(card, item) {
  const form = card.querySelector(".editor");
  const box = form.querySelector("textarea");
  box.setAttribute("aria-label", `Labels of ${item.id}, one a line`);
  const open = () => { box.value = item.labels.join("\n"); };
  connect(card, card.querySelector(".edit"), form, open, async (close) => {
    const labels = [...new Set(box.value.split("\n").map((line) => line.trim()).filter(Boolean))];
    await call(`${pathOf(item)}/labels`, { method: "PUT", json: { labels } });
    item.labels = labels;
    showLabels(card, item);
    close();
    announce(`Stored: the labels of ${item.id}. The next training learns from them.`);
  });
}

function addDeletion(card, item) {
  const form = card.querySelector(".confirmation");
  connect(card, card.querySelector(".delete"), form, () => {}, async () => {
    const { shown } = state;
    await call(pathOf(item), { method: "DELETE" }).catch((error) => {
      if (error.status !== GONE) throw error; // somebody else was faster
    });
    showTotal(Object.assign(shown, { total: shown.total - 1, passing: shown.passing - 1 }));
    const next = card.nextElementSibling ?? card.previousElementSibling;
    card.remove();
    (next?.querySelector(".delete") ?? byId("results")).focus();
    announce(`${item.id} was deleted`);
  });
}

offerCreation(async ({ name }) => {
  history.pushState(null, "", `?${new URLSearchParams({ collection: name })}`);
  byId("creating").open = false;
  await loadCollections();
  byId("adding").open = true;
  byId("adding").querySelector("summary").focus();
});
offerAdding(showAddress);
offerMap();
attempt(loadCollections);
