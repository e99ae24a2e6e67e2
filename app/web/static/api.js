// Calls to the service: all of them go through `call`, which throws a Problem unless they succeed.

/** Where the service stands, under whatever path a proxy has put it. */
const SERVICE = new URL("..", import.meta.url);
/** One origin may have several services, each with keys of its own. */
const KEY = `lrbs-key${SERVICE.pathname.slice(0, -1)}`;
const WORDS_OF_PROXY = {
  413: "A proxy in front of the service takes no upload of this size.",
  502: "A proxy in front of the service does not reach it.",
  504: "A proxy in front of the service did not wait for its answer.",
};

/** As browsers have it over HTTP/1.1; over HTTP/2 they send all at once, more than the service lets wait. */
const MOST_UNANSWERED = 6;
const UNAVAILABLE = new Set([502, 503, 504]);
const SEARCH = /\/search\/[^/]+$/;
const waiting = [];

let unanswered = 0;
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

/** Return the address of something of the service, such as `v1/collections`. */
export const urlOf = (path) => new URL(path, SERVICE);

/** Send a request, with the key if there is one, or a value as `json` by POST; throw a Problem unless it succeeds. */
export async function call(path, options = {}) {
  if (unanswered < MOST_UNANSWERED) unanswered += 1;
  else await new Promise((resolve) => waiting.push(resolve));
  try {
    return await send(path, options);
  } finally {
    const next = waiting.shift();
    if (next) next();
    else unanswered -= 1;
  }
}

async function send(path, { json, ...rest }) {
  const url = urlOf(path);
  const options = json === undefined ? rest : { method: "POST", body: JSON.stringify(json), ...rest };
  const headers = new Headers(options.headers);
  if (json !== undefined) headers.set("Content-Type", "application/json");
  const key = readKey();
  if (key && url.href.startsWith(SERVICE.href)) headers.set("Authorization", `Bearer ${key}`);
  const isLost = (options.method ?? "GET") === "GET" || SEARCH.test(path); // what may be sent again without harm
  let response;
  try {
    response = await fetch(url, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const advice = isLost ? "This page goes on as soon as it does." : "Whether this was done is not known: look, then try again.";
    throw Object.assign(new Problem("The service does not answer", advice, 0), { isLost });
  }
  if (!response.ok) {
    throw Object.assign(await readProblem(response), { isLost: isLost && UNAVAILABLE.has(response.status) });
  }
  return response;
}

/** Return whether the service answers at all; after a 503, whether it has its database and files again. */
export const isReachable = ({ status }) =>
  fetch(urlOf(status === 503 ? "readyz" : "healthz")).then((response) => response.status < 500, () => false);

async function readProblem(response) {
  const fallback = `The service answered ${response.status}`;
  try {
    const { title, detail, line } = await response.json();
    const problem = new Problem(title || fallback, typeof detail === "string" ? detail : "", response.status);
    return Object.assign(problem, { line, retryAfter: Number(response.headers.get("Retry-After")) });
  } catch {
    return new Problem(fallback, WORDS_OF_PROXY[response.status] ?? response.statusText, response.status);
  }
}
