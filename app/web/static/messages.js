// Errors, the form for a key, and announcements to screen readers.

import { Problem, discardKey, isReachable, readKey, storeKey } from "./api.js";
import { byId, element } from "./elements.js";
import { wait } from "./patience.js";
import { state } from "./state.js";

const FIRST_PAUSE_SECONDS = 1;
const LONGEST_PAUSE_SECONDS = 15;
const awaitingKey = new Map(); // what was refused for want of a key: the last action of each subject

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

/**
 * Run a user's action; what needs a key is run again with it, and what met no service as soon as there is one.
 *
 * Of actions with one subject, such as a form that is sent twice, only the last one is run again.
 */
export const attempt = (action, subject = action) => attemptAll([[subject, action]]);

async function attemptAll(entries) {
  clearError();
  for (const [subject, action] of entries) {
    state.retry = action;
    try {
      await action();
    } catch (error) {
      if (!(error instanceof Problem) && error.name !== "AbortError") console.error(error);
      if (error.status === 401) awaitingKey.set(subject, action);
      if (error.isLost) recover(error, action, subject);
      showError(error);
    }
  }
}

/** Run an action again when the service answers, unless another one was begun meanwhile. */
async function recover(error, action, subject) {
  let pause = Math.min(error.retryAfter || FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS);
  for (; state.retry === action; pause = Math.min(2 * pause, LONGEST_PAUSE_SECONDS)) {
    await wait(pause);
    if (state.retry === action && await isReachable(error)) {
      await attempt(action, subject);
      return;
    }
  }
}

/** Take a key from its form, and run again all that needed one, or else the last action; `refresh` goes first. */
export function offerKey(refresh = () => {}) {
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    storeKey(byId("key").value.trim());
    byId("key").value = "";
    byId("key-form").hidden = true;
    const entries = awaitingKey.size > 0 ? [...awaitingKey] : [[state.retry, state.retry]];
    awaitingKey.clear();
    refresh();
    attemptAll(entries);
  });
}
