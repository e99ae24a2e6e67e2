// Errors, the request for a key, and what is said to a screen reader.

import { Problem, forgetKey, readKey } from "./api.js";
import { byId, element } from "./elements.js";
import { state } from "./state.js";

export function showError(error) {
  if (error.name === "AbortError") return;
  const box = byId("error");
  byId("results").classList.remove("is-busy");
  say("");
  if (error.status === 401) {
    const refused = readKey() !== null;
    forgetKey();
    byId("key-form").hidden = false;
    byId("key").focus();
    if (!refused) return;
    error = new Problem("The service refused this key", "Check that all of it was pasted, or make a new one.", 401);
  }
  if (error.status === 403) byId("key-form").hidden = false; // another key may do
  box.replaceChildren(element("strong", "", error.message));
  if (error.detail) box.append(element("p", "", error.detail));
  box.hidden = false;
  box.scrollIntoView({ block: "nearest" });
}

export function clearError() {
  byId("error").hidden = true;
  if (readKey() !== null) byId("key-form").hidden = true;
}

export function say(text) {
  byId("status").textContent = text;
}

/** Run what a user asked for; a missing key is asked for and then it is run again. */
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
