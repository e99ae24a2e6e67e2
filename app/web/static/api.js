// Calls to the service: all of them go through `call`, which throws a Problem unless they succeed.

const KEY = "lrbs-key";

let previousKey = null;

export const readKey = () => sessionStorage.getItem(KEY);

export function storeKey(key) {
  previousKey = readKey();
  sessionStorage.setItem(KEY, key);
}

/** Discard a refused key and restore the one that it replaced. */
export function discardKey() {
  if (previousKey === null || previousKey === readKey()) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, previousKey);
  previousKey = null;
}

export const forgetKey = () => sessionStorage.removeItem(KEY);

export class Problem extends Error {
  constructor(title, detail, status) {
    super(title);
    this.detail = detail;
    this.status = status;
  }
}

/** Send a request, with the key if there is one; throw a Problem unless it succeeds. */
export async function call(path, options = {}) {
  const url = new URL(path, location.href);
  const headers = new Headers(options.headers);
  const key = readKey();
  if (key && url.origin === location.origin) headers.set("Authorization", `Bearer ${key}`);
  let response;
  try {
    response = await fetch(url, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The service does not answer", "Check that it is running, then try again.", 0);
  }
  if (!response.ok) throw await readProblem(response);
  return response;
}

async function readProblem(response) {
  const fallback = `The service answered ${response.status}`;
  try {
    const { title, detail, line } = await response.json();
    const problem = new Problem(title || fallback, typeof detail === "string" ? detail : "", response.status);
    return Object.assign(problem, { line, retryAfter: Number(response.headers.get("Retry-After")) });
  } catch {
    return new Problem(fallback, response.statusText, response.status);
  }
}
