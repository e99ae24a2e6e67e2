// The active model, as far as everybody may know it.

import { byId } from "./elements.js";
import { state } from "./state.js";

/** Show which version of the open collection is live, and where one can be trained if there is none. */
export function showModel() {
  const version = state.collection.active_version;
  byId("model").hidden = false;
  byId("model").classList.toggle("is-untrained", version === null);
  byId("model-state").textContent = version === null
    ? "Not trained yet: words, labels and likeness alone decide."
    : `Model ${version} is live.`;
  const link = byId("model").querySelector("a");
  link.href = `models?${new URLSearchParams({ collection: state.collection.name })}`;
  link.hidden = version !== null;
}
