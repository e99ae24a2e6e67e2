// Waiting for a service that is busy or restarts.

import { Problem } from "./api.js";

const BUSY = new Set([429, 502, 503, 504]); // two of them from a proxy whose service restarts
const DEFAULT_SECONDS = 2;
const LONGEST_SECONDS = 60; // the service says more where it cannot before somebody mends it

/** Return whether the service may do later what it refused. */
export const isBusy = (error) =>
  error instanceof Problem && BUSY.has(error.status) && !(error.retryAfter > LONGEST_SECONDS);

export const wait = (seconds) => new Promise((resolve) => { setTimeout(resolve, 1000 * seconds); });

/** Wait as long as a refusal asks for; throw as soon as a signal is aborted. */
export function waitAfter(error, signal) {
  signal?.throwIfAborted();
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, 1000 * (error.retryAfter || DEFAULT_SECONDS));
    signal?.addEventListener("abort", end, { once: true });
  });
}
