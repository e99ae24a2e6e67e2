// The page of a collection's models. All of it but the choice of a collection needs a key of scope admin, so
// that nothing else is shown without one. Values from the service are written with textContent.

import { Problem, call, forgetKey, readKey } from "./api.js";
import { resetComparison, showComparison } from "./comparison.js";
import { byId } from "./elements.js";
import { attempt, clearError, offerKey } from "./messages.js";
import { state } from "./state.js";
import { showTraining } from "./training.js";
import { showVersions } from "./versions.js";

let collections = [];

offerKey();

byId("forget-key").addEventListener("click", () => {
  forgetKey();
  location.reload();
});

byId("collection").addEventListener("change", () => {
  history.pushState(null, "", `?${new URLSearchParams({ collection: byId("collection").value })}`);
  attempt(showAddress);
});
window.addEventListener("popstate", () => attempt(showAddress));

async function loadCollections() {
  ({ collections } = await (await call("v1/collections")).json());
  byId("collection").replaceChildren(...collections.map(({ name }) => new Option(name, name)));
  byId("collection").disabled = collections.length === 0;
  if (collections.length === 0) {
    throw new Problem("There is no collection yet", "Make one on the page “Collection”.", 0);
  }
  await showAddress();
}

/** Show the collection that the address names, or the first one. */
async function showAddress() {
  const name = new URLSearchParams(location.search).get("collection") ?? collections[0].name;
  const collection = collections.find((candidate) => candidate.name === name);
  if (!collection) throw new Problem(`There is no collection “${name}”`, "Choose one of the list.", 404);
  state.collection = collection;
  byId("collection").value = name;
  const query = new URLSearchParams({ collection: name });
  byId("to-search").href = `./?${query}`;
  byId("to-collection").href = `collection?${query}`;
  clearError();
  await showCollection();
}

async function showCollection() {
  byId("managed").hidden = true;
  byId("forget-key").hidden = readKey() === null;
  if (readKey() === null) throw new Problem("A key is needed", "", 401); // which the form asks for
  const { collection } = state;
  resetComparison();
  await refresh();
  if (state.collection !== collection) return;
  await showTraining(refresh);
  byId("managed").hidden = state.collection !== collection;
}

/** Show the versions as they are now. */
async function refresh() {
  const { collection } = state;
  const models = await showVersions();
  if (state.collection === collection) showComparison(models);
}

attempt(loadCollections);
