// The search page. It uses only the public API; values from a gallery are written with textContent or as
// properties, never as markup.

import { readCollection, readSearch, writeAddress } from "./address.js";
import { Problem, call, forgetKey, readKey } from "./api.js";
import { buildBar, takePictures } from "./bar.js";
import { byId } from "./elements.js";
import { announce, attempt, clearError, offerKey } from "./messages.js";
import { showModel } from "./model.js";
import { wait } from "./patience.js";
import { search, showNoResults } from "./search.js";
import { collectionPath, queryOf, state } from "./state.js";

const SECONDS_BETWEEN_LOOKS = 5;

let collections = [];

offerKey(() => {
  if (!state.collection) return;
  showKey();
  buildBar();
  if (!state.shown) byId("bar").offer();
});

byId("use-key").addEventListener("click", () => {
  byId("key-label").textContent = "Your key"; // which nothing asked for
  byId("key-form").hidden = false;
  byId("key").focus();
});

byId("forget-key").addEventListener("click", () => {
  forgetKey();
  location.reload();
});

function showKey() {
  byId("use-key").hidden = readKey() !== null;
  byId("forget-key").hidden = readKey() === null;
}

document.addEventListener("paste", (event) => {
  const files = [...(event.clipboardData?.files ?? [])].filter(({ type }) => type.startsWith("image/"));
  if (files.length === 0 || !state.collection) return;
  event.preventDefault();
  takePictures(files);
});

// Dropping a picture outside the bar must not navigate away from the page.
for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());

async function loadCollections() {
  ({ collections } = await (await call("v1/collections")).json());
  const select = byId("collection");
  select.replaceChildren(...collections.map(({ name }) => new Option(name, name)));
  select.disabled = collections.length === 0;
  if (collections.length === 0) {
    throw new Problem("There is no collection yet", "Make one on the page “Collection”.", 0);
  }
  await showAddress();
}

byId("collection").addEventListener("change", () => {
  openCollection(collections.find(({ name }) => name === byId("collection").value));
  writeAddress(state.collection, null, false);
});

window.addEventListener("popstate", () => attempt(showAddress));

/** Show what the address asks for; without a collection's name that is the first one. */
async function showAddress() {
  const name = readCollection();
  const collection = name === null ? collections[0] : collections.find((candidate) => candidate.name === name);
  if (state.collection === null || (collection && collection !== state.collection)) {
    openCollection(collection ?? collections[0]);
  }
  try {
    if (!collection) throw new Problem(`There is no collection “${name}”`, "Choose one of the list.", 404);
    const sought = readSearch();
    if (sought === null) {
      showNoResults();
      return;
    }
    const address = location.href;
    const parts = await Promise.all(sought.parts.map(complete));
    if (location.href === address) await search({ ...sought, parts }, { isInAddress: true });
  } finally {
    if (!state.shown) byId("bar").offer();
  }
}

/** Add to a part that is an item what the page shows of that. */
async function complete(part) {
  if (part.query.itemId === undefined) return part;
  const item = await (await call(`${collectionPath()}/items/${encodeURIComponent(part.query.itemId)}`)).json();
  return { ...part, query: queryOf(item, item.modality) };
}

function openCollection(collection) {
  const isFirst = state.collection === null;
  state.collection = collection;
  byId("collection").value = collection.name;
  const address = new URLSearchParams({ collection: collection.name });
  byId("to-collection").href = `collection?${address}`;
  byId("to-models").href = `models?${address}`;
  clearError();
  showKey();
  buildBar();
  showModel();
  if (!isFirst) showNoResults();
  watchTraining(collection);
}

/** Say so as soon as somebody has trained the first model of a collection. */
async function watchTraining(collection) {
  while (state.collection === collection && collection.active_version === null) {
    await wait(SECONDS_BETWEEN_LOOKS);
    if (document.hidden || state.collection !== collection) continue;
    const answer = await call(collectionPath(collection)).catch(() => null); // it is asked again
    if (answer) Object.assign(collection, await answer.json());
    if (state.collection !== collection || collection.active_version === null) continue;
    showModel();
    announce(`Model ${collection.active_version} is live`);
  }
}

attempt(loadCollections);
