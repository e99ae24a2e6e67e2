// The search page. It knows the public API and nothing else; every value that came from a gallery is
// written with textContent or as a property, never as markup.

import { Problem, call, keepKey } from "./api.js";
import { byId } from "./elements.js";
import { attempt, clearError } from "./messages.js";
import { openModel } from "./model.js";
import { buildPanels } from "./panels.js";
import { state } from "./state.js";

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepKey(byId("key").value.trim());
  byId("key").value = "";
  byId("key-form").hidden = true;
  attempt(state.collection ? refresh(state.retry) : loadCollections);
});

/** Build the panels again with the new key, then repeat what was asked for. */
const refresh = (action) => async () => {
  buildPanels();
  openModel(buildPanels);
  await action();
  state.retry = action;
};

document.addEventListener("paste", (event) => {
  const file = [...(event.clipboardData?.files ?? [])].find((each) => each.type.startsWith("image/"));
  const panel = [...byId("panels").children].find((each) => each.takePicture);
  if (!file || !panel) return;
  event.preventDefault();
  panel.takePicture(file);
});

// A picture dropped beside the zone must not make the browser leave the page.
for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());

async function loadCollections() {
  const { collections } = await (await call("/v1/collections")).json();
  const select = byId("collection");
  select.replaceChildren(...collections.map((each) => new Option(each.name, each.name)));
  select.disabled = collections.length === 0;
  select.onchange = () => openCollection(collections.find((each) => each.name === select.value));
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
  buildPanels();
  openModel(buildPanels);
}

attempt(loadCollections);
