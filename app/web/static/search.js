// Searching: the first results, and more of them as one scrolls.

import { MOST_PARTS, writeAddress } from "./address.js";
import { Problem, call } from "./api.js";
import { byId, element, shorten } from "./elements.js";
import { showEmphasis } from "./emphasis.js";
import { contentOf, offerFeedback } from "./feedback.js";
import { conditionsOf, showFilters } from "./filters.js";
import { announce, attempt, showError } from "./messages.js";
import { release } from "./pictures.js";
import { resultCard, showPartners } from "./results.js";
import { collectionPath, hasItems, isPlain, pictureUrlOf, plural, state } from "./state.js";

const RESULTS_PER_PAGE = 24;
const SHOWN = ["labels", "metadata", "text", "content_url"];

/**
 * Search a modality, and show the first results; a search that runs is cancelled.
 *
 * sought: {parts, target, filter, groupBy, groupSize, minProbability, diversity, emphasis, includesGiven}; parts: of {source, query, weight}, where source is the modality of the query, that is
 * {text} | {picture: File} | {itemId, title, pictureUrl};
 * filter: a list of choices as of filters.js; groupBy: a key, "label", "pair_id" or null; emphasis: weights by part of the score. What is
 * not there stays as it was for the results before, of the same gallery
 * options: whether a text is being typed, the address bar already has all of it, or the focus goes to the results
 */
export async function search(sought, { isTyped = false, isInAddress = false, movesFocus = false } = {}) {
  if (sought.parts.length > MOST_PARTS) throw new Problem(`A query has ${MOST_PARTS} parts at most`, "Take one out before you add another.", 0);
  const before = sought.target === state.shown?.target ? state.shown : {};
  const { filter = [], groupBy = null, groupSize = 1, minProbability = 0, diversity = 0, emphasis = {}, includesGiven = false } = before;
  const shown = { filter, groupBy, groupSize, minProbability, diversity, emphasis, includesGiven, ...sought, offset: 0, ids: new Set() };
  byId("bar").showQuery(shown, isTyped);
  announce("Searching");
  state.sought = shown;
  const result = await request(shown).catch((error) => {
    if (state.sought === shown) state.sought = state.shown;
    throw error;
  });
  if (!isInAddress) writeAddress(state.collection, shown, isTyped);
  shown.hasProbabilities = mayMatch(shown) && (shown.minProbability > 0 || result.hits.some(({ probability }) => probability !== null));
  state.shown = shown;
  showResults(shown, result);
  if (!isTyped) bringIntoView(byId("results"), movesFocus);
  const run = (changed) => attempt(() => search(changed), search);
  showFilters(shown, result.index_revision, run).then((numbers) => showPassing(shown, numbers), showError);
  showEmphasis(shown, result, (changed) => run({ ...state.sought, emphasis: changed }));
}

/** Leave no result on the page. */
export function showNoResults() {
  state.search?.abort();
  state.shown = null;
  state.sought = null;
  byId("results").hidden = true;
  byId("hits").replaceChildren();
  byId("bar").showQuery(null);
  byId("bar").offer();
}

async function request(shown) {
  state.search?.abort();
  const running = new AbortController();
  state.search = running;
  const busy = setTimeout(() => byId("results").classList.add("is-busy"), 120);
  try {
    const direction = [...(isPlain(shown) ? [shown.parts[0].source] : []), shown.target].map(encodeURIComponent).join("-to-");
    const options = { method: "POST", signal: running.signal, ...await bodyOf(shown) };
    return await (await call(`${collectionPath()}/search/${direction}`, options)).json();
  } finally {
    clearTimeout(busy);
    if (state.search === running) {
      state.search = null;
      byId("results").classList.remove("is-busy");
    }
  }
}

/** Return whether hits of a search may have probabilities: not by parts, emphasised, of one modality, or untrained. */
const mayMatch = ({ parts, target, emphasis }) =>
  state.collection.active_version !== null && isPlain({ parts }) && parts[0].source !== target && Object.keys(emphasis).length === 0;

/** Return what is asked for beside the first results; why each has its score, where that is wanted. */
const refined = ({ groupBy, groupSize, minProbability, diversity, emphasis, includesGiven, ...shown }) => ({
  ...(byId("with-reasons").checked ? { include: [...SHOWN, "explanation"] } : {}),
  ...(groupBy ? { group_by: groupBy, group_size: groupSize } : {}),
  ...(minProbability > 0 && mayMatch({ emphasis, ...shown }) ? { min_probability: minProbability } : {}),
  ...(diversity > 0 ? { diversity } : {}),
  ...(Object.keys(emphasis).length > 0 ? { emphasis } : {}),
  ...(includesGiven && hasItems(shown) ? { include_given: true } : {}),
});

async function bodyOf(shown) {
  const { parts, filter, offset } = shown;
  const [{ query }] = parts;
  const conditions = conditionsOf(filter);
  if (isPlain(shown) && query.picture) {
    const body = new FormData();
    body.append("picture", query.picture, query.picture.name || "picture");
    body.append("k", String(RESULTS_PER_PAGE));
    body.append("offset", String(offset));
    body.append("filter", JSON.stringify(conditions));
    for (const [name, value] of Object.entries(refined(shown))) body.append(name, typeof value === "string" ? value : JSON.stringify(value));
    return { body };
  }
  const content = isPlain(shown) ? await contentOf(query) : { queries: await Promise.all(parts.map(partOf)) };
  return { json: { ...content, k: RESULTS_PER_PAGE, offset, filter: conditions, ...refined(shown) } };
}

const partOf = async ({ source, query, weight }) => ({ ...await contentOf(query), modality: source, weight });

/** Return what is sought, such as "Pictures for this picture + “blue”". */
function titleOf({ parts, target }) {
  const signed = parts.toSorted((left, right) => (left.weight < 0) - (right.weight < 0)).map(({ query: { text, title }, weight }, number) => {
    const name = text ?? title ? `“${shorten(text ?? title, 140)}”` : "this picture";
    return `${weight < 0 ? "− " : number > 0 ? "+ " : ""}${name}`;
  });
  const isLikeness = parts.length === 1 && parts[0].source === target;
  return `${capitalise(plural(target))} ${isLikeness ? "like" : "for"} ${signed.join(" ")}`;
}

function showResults(shown, result) {
  const { target } = shown;
  release(state.pictures);
  byId("results-title").textContent = titleOf(shown);
  byId("results-facts").textContent = [
    result.model_version === 0 ? "not trained" : `model ${result.model_version}`,
    `revision ${result.index_revision}`,
    result.exact ? "exact" : "approximate",
    `${Number(result.took_ms).toFixed(1)} ms`,
  ].join(" · ");
  const notices = result.notices.map((notice) => notice.message);
  if (result.known_words) notices.push(`the model knows ${result.known_words.map((word) => `“${word}”`).join(", ") || "no word of the query"}`);
  if (result.hits.length === 0 && notices.length === 0) notices.push(`No ${plural(target)} were found.`);
  byId("notices").replaceChildren(...notices.map((message) => element("li", "", message)));
  const offers = result.notices.flatMap((notice) => notice.did_you_mean);
  const texts = shown.parts.filter(({ query }) => query.text !== undefined);
  if (offers.length > 0 && texts.length === 1) byId("notices").append(offerQueries(shown, texts[0], offers));
  byId("notices").hidden = notices.length === 0;
  byId("hits").classList.toggle("is-texts", !result.hits.some((hit) => pictureUrlOf(hit, target)));
  byId("hits").replaceChildren();
  byId("results").hidden = false;
  append(shown, result);
  announce([`${result.hits.length || "No"} ${plural(target, result.hits.length)} found`, ...notices.map(capitalise)].join(". "));
}

/** Say how many items pass the filters, of how many. */
function showPassing({ filter }, numbers) {
  if (numbers && filter.length > 0) byId("chosen").append(element("li", "facts", `${numbers.passing} of ${numbers.all} pass`));
}

/** Return "did you mean" with texts to click, which take the place of a part. */
function offerQueries(shown, replaced, texts) {
  const entry = element("li", "", "did you mean ");
  for (const text of texts) {
    const button = element("button", "link", text);
    const parts = shown.parts.map((part) => (part === replaced ? { ...part, query: { text } } : part));
    button.addEventListener("click", () => attempt(() => search({ ...shown, parts }), search));
    entry.append(button, " ");
  }
  return entry;
}

const capitalise = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Append results that are not on the page yet: items may be written between two of its requests. */
function append(shown, result) {
  const hits = result.hits.filter((hit) => !shown.ids.has(hit.id));
  const run = (sought) => attempt(() => search(sought, { movesFocus: true }), search);
  const cards = hits.map((hit) => resultCard(hit, shown, run));
  hits.forEach((hit) => shown.ids.add(hit.id));
  byId("hits").append(...cards);
  shown.offset += result.hits.length;
  byId("more").hidden = result.hits.length < RESULTS_PER_PAGE;
  watchEnd();
  showPartners(hits, cards).catch(showError);
  if (isPlain(shown) && shown.parts[0].source !== shown.target) offerFeedback(shown, hits, cards);
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

byId("more").addEventListener("click", () => attempt(showMore));
byId("with-reasons").addEventListener("change", () => {
  if (state.shown) attempt(() => search(state.shown, { isInAddress: true }), search);
});

/** Scroll to the results: if the focus goes there always, after a query only if they are out of sight. */
function bringIntoView(section, moveFocus) {
  if (moveFocus) section.focus({ preventScroll: true });
  const top = section.getBoundingClientRect().top;
  if (moveFocus ? top < 0 : top > innerHeight * 0.75) section.scrollIntoView({ block: "start" });
}
