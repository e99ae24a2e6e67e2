// Searching: the first results, and more of them as one scrolls.

import { writeAddress } from "./address.js";
import { call } from "./api.js";
import { byId, element, shorten } from "./elements.js";
import { offerFeedback } from "./feedback.js";
import { conditionsOf, showFilters } from "./filters.js";
import { announce, attempt, showError } from "./messages.js";
import { release, showFile } from "./pictures.js";
import { resultCard, showPartners } from "./results.js";
import { collectionPath, pictureUrlOf, plural, state } from "./state.js";

const RESULTS_PER_PAGE = 24;

/**
 * Search a modality, and show the first results; a search that runs is cancelled.
 *
 * sought: {source, target, query, filter}; query: {text} | {picture: File} | {itemId, title, pictureUrl};
 * filter: a list of choices as of filters.js; without one, that of the results before stays for the same gallery
 * options: whether the query is being typed, and whether the address bar already has it
 */
export async function search(sought, { isTyped = false, isInAddress = false } = {}) {
  const filter = sought.target === state.shown?.target ? state.shown.filter : [];
  const shown = { filter, ...sought, offset: 0, ids: new Set() };
  for (const panel of byId("panels").children) panel.showQuery?.(shown);
  announce("Searching");
  state.sought = shown;
  const result = await request(shown).catch((error) => {
    if (state.sought === shown) state.sought = state.shown;
    throw error;
  });
  if (!isInAddress) writeAddress(state.collection, shown, isTyped);
  state.shown = shown;
  showResults(shown, result, isTyped);
  const run = (changed) => attempt(() => search(changed), search);
  showFilters(shown, result.index_revision, run).catch(showError);
}

/** Leave no result on the page. */
export function showNoResults() {
  state.search?.abort();
  state.shown = null;
  state.sought = null;
  byId("results").hidden = true;
  byId("hits").replaceChildren();
  for (const panel of byId("panels").children) panel.showQuery?.(null);
}

async function request(shown) {
  state.search?.abort();
  const running = new AbortController();
  state.search = running;
  const busy = setTimeout(() => byId("results").classList.add("is-busy"), 120);
  try {
    const direction = `${encodeURIComponent(shown.source)}-to-${encodeURIComponent(shown.target)}`;
    const options = { method: "POST", signal: running.signal, ...bodyOf(shown) };
    return await (await call(`${collectionPath()}/search/${direction}`, options)).json();
  } finally {
    clearTimeout(busy);
    if (state.search === running) {
      state.search = null;
      byId("results").classList.remove("is-busy");
    }
  }
}

function bodyOf({ query, filter, offset }) {
  const conditions = conditionsOf(filter);
  if (query.picture) {
    const body = new FormData();
    body.append("picture", query.picture, query.picture.name || "picture");
    body.append("k", String(RESULTS_PER_PAGE));
    body.append("offset", String(offset));
    body.append("filter", JSON.stringify(conditions));
    return { body };
  }
  const content = query.itemId === undefined ? { text: query.text } : { item_id: query.itemId };
  return {
    body: JSON.stringify({ ...content, k: RESULTS_PER_PAGE, offset, filter: conditions }),
    headers: { "Content-Type": "application/json" },
  };
}

function showResults(shown, result, isTyped) {
  const { source, target, query } = shown;
  const section = byId("results");
  release(state.pictures);
  const title = query.text ?? query.title;
  byId("results-title").textContent = source === target
    ? `${capitalise(plural(target))} like ${title ? `“${shorten(title, 140)}”` : "this picture"}`
    : `${capitalise(plural(target))} for ${title ? `“${shorten(title, 140)}”` : "this picture"}`;
  byId("results-facts").textContent = [
    result.model_version === 0 ? "not trained" : `model ${result.model_version}`,
    `revision ${result.index_revision}`,
    result.exact ? "exact" : "approximate",
    `${Number(result.took_ms).toFixed(1)} ms`,
  ].join(" · ");
  showQueryPicture(query);
  const notices = result.notices.map((notice) => notice.message);
  if (result.hits.length === 0 && notices.length === 0) notices.push(`No ${plural(target)} were found.`);
  byId("notices").replaceChildren(...notices.map((message) => element("li", "", message)));
  const offers = result.notices.flatMap((notice) => notice.did_you_mean);
  if (offers.length > 0) byId("notices").append(offerQueries(shown, offers));
  byId("notices").hidden = notices.length === 0;
  byId("hits").classList.toggle("is-texts", !result.hits.some((hit) => pictureUrlOf(hit, target)));
  byId("hits").replaceChildren();
  section.hidden = false;
  append(shown, result);
  announce([`${result.hits.length || "No"} ${plural(target, result.hits.length)} found`, ...notices.map(capitalise)].join(". "));
  if (!isTyped) bringIntoView(section, query.itemId !== undefined);
}

/** Return "did you mean" with queries to click. */
function offerQueries(shown, texts) {
  const entry = element("li", "", "did you mean ");
  for (const text of texts) {
    const button = element("button", "link", text);
    button.type = "button";
    button.addEventListener("click", () => attempt(() => search({ ...shown, query: { text } }), search));
    entry.append(button, " ");
  }
  return entry;
}

const capitalise = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Append results that are not on the page yet: items may be written between two of its requests. */
function append(shown, result) {
  const hits = result.hits.filter((hit) => !shown.ids.has(hit.id));
  const cards = hits.map((hit) => resultCard(hit, shown, (sought) => attempt(() => search(sought), search)));
  hits.forEach((hit) => shown.ids.add(hit.id));
  byId("hits").append(...cards);
  shown.offset += result.hits.length;
  byId("more").hidden = result.hits.length < RESULTS_PER_PAGE;
  watchEnd();
  showPartners(hits, cards).catch(showError);
  if (shown.source !== shown.target) offerFeedback(shown, hits, cards);
}

async function showMore() {
  const { shown } = state;
  if (!shown || state.search) return;
  const result = await request(shown);
  if (state.shown !== shown) return;
  append(shown, result);
  announce(`${shown.ids.size} ${plural(shown.target, shown.ids.size)} ${shown.ids.size === 1 ? "is" : "are"} shown`);
}

const endOfResults = new IntersectionObserver((entries) => {
  if (entries.some((entry) => entry.isIntersecting)) attempt(showMore);
}, { rootMargin: "200px" });

/** Tell the observer anew that the end is in sight, if it is. */
function watchEnd() {
  endOfResults.disconnect();
  if (!byId("more").hidden) endOfResults.observe(byId("more"));
}

byId("query-picture").addEventListener("error", (event) => { event.target.hidden = true; }); // of a format that this browser does not show

byId("more").addEventListener("click", () => attempt(showMore));

function showQueryPicture(query) {
  const image = byId("query-picture");
  image.hidden = !(query.picture || query.pictureUrl);
  image.removeAttribute("src");
  delete image.dataset.url;
  if (query.picture) {
    image.src = URL.createObjectURL(query.picture);
    state.pictures.push(image.src);
  } else if (query.pictureUrl) {
    showFile(image, query.pictureUrl, state.pictures);
  }
}

/** Scroll to the results: after a click on a result always, after a query only if they are out of sight. */
function bringIntoView(section, moveFocus) {
  if (moveFocus) section.focus({ preventScroll: true });
  const top = section.getBoundingClientRect().top;
  if (moveFocus ? top < 0 : top > innerHeight * 0.75) section.scrollIntoView({ block: "start" });
}
