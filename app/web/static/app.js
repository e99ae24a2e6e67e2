// The search page. It uses only the public API; values from a gallery are written with textContent or as
// properties, never as markup.

import { Problem, call, storeKey } from "./api.js";
import { byId } from "./elements.js";
import { attempt, clearError } from "./messages.js";
import { openModel } from "./model.js";
import { resetOptions } from "./options.js";
import { buildPanels } from "./panels.js";
import { state } from "./state.js";

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  storeKey(byId("key").value.trim());
  byId("key").value = "";
  byId("key-form").hidden = true;
  attempt(state.collection ? refreshAnd(state.retry) : loadCollections);
});

/** Rebuild the panels with the new key, then repeat the last action. */
const refreshAnd = (action) => async () => {
  buildPanels();
  openModel(buildPanels);
  await action();
  state.retry = action;
};

document.addEventListener("paste", (event) => {
  const file = [...(event.clipboardData?.files ?? [])].find((candidate) => candidate.type.startsWith("image/"));
  const panel = [...byId("panels").children].find((candidate) => candidate.takePicture);
  if (!file || !panel) return;
  event.preventDefault();
  panel.takePicture(file);
});

// Dropping a picture outside the zone must not navigate away from the page.
for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());

async function loadCollections() {
  const { collections } = await (await call("/v1/collections")).json();
  const select = byId("collection");
  select.replaceChildren(...collections.map(({ name }) => new Option(name, name)));
  select.disabled = collections.length === 0;
  select.onchange = () => openCollection(collections.find(({ name }) => name === select.value));
  if (collections.length === 0) {
    throw new Problem("There is no collection yet", "Make one with POST /v1/collections, or run “lrbs demo”.", 0);
  }
  openCollection(collections[0]);
}

function openCollection(collection) {
  state.search?.abort();
  state.collection = collection;
  clearError();
  byId("results").hidden = true;
  byId("hits").replaceChildren();
  resetOptions();
  buildPanels();
  openModel(buildPanels);
}

attempt(loadCollections);
