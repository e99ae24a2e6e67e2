// Searching, and showing the results, each of which can be the next query.

import { call } from "./api.js";
import { byId, element, shorten } from "./elements.js";
import { offerFeedback } from "./feedback.js";
import { announce, attempt } from "./messages.js";
import { release, showPicture } from "./pictures.js";
import { collectionPath, plural, state } from "./state.js";

const RESULTS_PER_SEARCH = 24;

/**
 * Search one modality with another.
 *
 * query: {text} | {picture: File} | {itemId, title, pictureUrl}
 */
export async function search(source, target, query) {
  state.search?.abort();
  const running = new AbortController();
  state.search = running;
  const busy = setTimeout(() => byId("results").classList.add("is-busy"), 120);
  announce("Searching");
  try {
    const path = `${collectionPath()}/search/${encodeURIComponent(source)}-to-${encodeURIComponent(target)}`;
    const response = await call(path, { method: "POST", signal: running.signal, ...requestOf(query) });
    showResults(source, target, query, await response.json());
  } finally {
    clearTimeout(busy);
    if (state.search === running) byId("results").classList.remove("is-busy");
  }
}

function requestOf(query) {
  if (query.picture) {
    const body = new FormData();
    body.append("picture", query.picture, query.picture.name || "picture");
    body.append("k", String(RESULTS_PER_SEARCH));
    return { body };
  }
  const content = query.itemId === undefined ? { text: query.text } : { item_id: query.itemId };
  return {
    body: JSON.stringify({ ...content, k: RESULTS_PER_SEARCH }),
    headers: { "Content-Type": "application/json" },
  };
}

function showResults(source, target, query, result) {
  const hits = result.hits;
  const arePictures = hits.some((hit) => hit.content_url);
  const section = byId("results");
  release(state.pictures);

  const title = query.text ?? query.title;
  const count = `${hits.length} ${plural(target)}`;
  byId("results-title").textContent = title ? `${count} for “${shorten(title, 140)}”` : `${count} for this picture`;
  byId("results-facts").textContent = [
    `model ${result.model_version}`,
    `revision ${result.index_revision}`,
    result.exact ? "exact" : "approximate",
    `${Number(result.took_ms).toFixed(1)} ms`,
  ].join(" · ");
  showQueryPicture(query);
  const notices = result.notices.map((notice) => notice.message);
  byId("notices").replaceChildren(...notices.map((message) => element("li", "", message)));
  byId("notices").hidden = notices.length === 0;

  const list = byId("hits");
  list.classList.toggle("is-texts", !arePictures);
  list.replaceChildren(...hits.map((hit) => resultCard(hit, target, source)));
  section.hidden = false;
  announce([hits.length ? `${count} found` : `No ${plural(target)} found`, ...notices].join(". "));
  bringIntoView(section, query.itemId !== undefined);
  offerFeedback(source, target, query, hits);
}

function showQueryPicture(query) {
  const image = byId("query-picture");
  image.hidden = !(query.picture || query.pictureUrl);
  image.removeAttribute("src");
  delete image.dataset.url;
  if (query.picture) {
    image.src = URL.createObjectURL(query.picture);
    state.pictures.push(image.src);
  } else if (query.pictureUrl) {
    showPicture(image, query.pictureUrl, state.pictures);
  }
}

/** Scroll to the results: after a click on a result always, after a typed query only if they are out of sight. */
function bringIntoView(section, moveFocus) {
  if (moveFocus) section.focus({ preventScroll: true });
  const top = section.getBoundingClientRect().top;
  if (moveFocus ? top < 0 : top > innerHeight * 0.75) section.scrollIntoView({ block: "start" });
}

/** Build one result; a click on it searches in the other direction. */
function resultCard(hit, modality, other) {
  const item = element("li");
  const card = element("button", "hit");
  card.type = "button";
  card.dataset.id = hit.id;
  card.title = `Find ${plural(other)} that match this one`;

  if (hit.content_url) card.append(pictureOf(hit));
  if (hit.text || !hit.content_url) card.append(element("span", "hit-text", hit.text || hit.id));
  card.append(detailsOf(hit));
  card.addEventListener("click", () => {
    const title = hit.content_url ? undefined : hit.text || hit.id;
    attempt(() => search(modality, other, { itemId: hit.id, title, pictureUrl: hit.content_url }));
  });
  item.append(card);
  return item;
}

function pictureOf(hit) {
  const frame = element("span", "hit-picture");
  const image = element("img");
  image.alt = hit.labels?.length ? `Picture: ${hit.labels.join(", ")}` : `Picture ${hit.id}`;
  image.decoding = "async";
  showPicture(image, hit.content_url, state.pictures);
  frame.append(image);
  return frame;
}

function detailsOf(hit) {
  const body = element("span", "hit-body");
  const line = element("span", "hit-line");
  const percent = `${(100 * hit.probability).toFixed(1)} %`;
  const probability = element("span", "hit-probability", percent);
  probability.title = "Estimated probability of a match";
  line.append(
    element("span", "hit-rank", `#${hit.rank}`),
    element("span", "hit-score", Number(hit.score).toFixed(3)),
    probability,
  );
  const bar = element("progress");
  bar.max = 1;
  bar.value = hit.probability;
  bar.setAttribute("aria-hidden", "true");
  body.append(line, bar);
  if (hit.labels?.length) {
    const labels = element("span", "labels");
    labels.append(...hit.labels.map((label) => element("span", "", label)));
    body.append(labels);
  }
  return body;
}
