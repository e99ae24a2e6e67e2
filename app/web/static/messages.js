// Errors, the form for a key, and announcements to screen readers.

import { Problem, discardKey, readKey } from "./api.js";
import { byId, element } from "./elements.js";
import { state } from "./state.js";

export function showError(error) {
  if (error.name === "AbortError") return;
  const box = byId("error");
  byId("results")?.classList.remove("is-busy");
  announce("");
  if (error.status === 401) {
    const hadKey = readKey() !== null;
    discardKey();
    byId("key-form").hidden = false;
    byId("key").focus();
    if (!hadKey) return;
    error = new Problem("The service refused this key", "Check that all of it was pasted, or make a new one.", 401);
  }
  if (error.status === 403) byId("key-form").hidden = false; // another key may have the scope
  box.replaceChildren(element("strong", "", error.message));
  if (error.detail) box.append(element("p", "", error.detail));
  box.hidden = false;
  box.scrollIntoView({ block: "nearest" });
}

export function clearError() {
  byId("error").hidden = true;
  if (readKey() !== null) byId("key-form").hidden = true;
}

export function announce(text) {
  byId("status").textContent = text;
}

/** Run a user's action; if it needs a key, ask for one, and run the action again with it. */
export async function attempt(action) {
  state.retry = action;
  clearError();
  try {
    await action();
  } catch (error) {
    if (!(error instanceof Problem) && error.name !== "AbortError") console.error(error);
    showError(error);
  }
}
