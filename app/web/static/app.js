// The search page. It knows the public API and nothing else; every value that came from a gallery is
// written with textContent or as a property, never as markup.

const RESULTS_PER_SEARCH = 24;
const EXAMPLES_SCANNED = 200;
const TEXT_EXAMPLES = 4;
const PICTURE_EXAMPLES = 6;
const LONGEST_QUERY = 160;
const KEY = "lrbs-key";
const PICTURE_ENCODERS = new Set(["hog-color", "sift-bovw", "onnx"]);
const TEXT_ENCODERS = new Set(["tfidf", "word-frequency", "lda"]);

const byId = (id) => document.getElementById(id);
const state = { collection: null, search: null, retry: null, pictures: [] };

// ---------------------------------------------------------------- the API

class Problem extends Error {
  constructor(title, detail, status) {
    super(title);
    this.detail = detail;
    this.status = status;
  }
}

/** Send a request with the key, when there is one; anything but success becomes a Problem. */
async function call(path, options = {}) {
  const url = new URL(path, location.href);
  const headers = new Headers(options.headers);
  const key = sessionStorage.getItem(KEY);
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
    const { title, detail } = await response.json();
    return new Problem(title || fallback, typeof detail === "string" ? detail : "", response.status);
  } catch {
    return new Problem(fallback, response.statusText, response.status);
  }
}

const collectionPath = () => `/v1/collections/${encodeURIComponent(state.collection.name)}`;

/** The first items of a modality, to take examples from. */
async function listItems(modality) {
  const query = new URLSearchParams({ modality, limit: String(EXAMPLES_SCANNED) });
  const response = await call(`${collectionPath()}/items?${query}`);
  return (await response.json()).items;
}

// ---------------------------------------------------------------- small tools

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function shorten(text, length) {
  const flat = text.replace(/\s+/g, " ").trim();
  if (flat.length <= length) return flat;
  const cut = flat.slice(0, length);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(" "), length / 2))}…`;
}

function spreadOut(values, count) {
  if (values.length <= count) return values;
  return Array.from({ length: count }, (_, i) => values[Math.floor(((i + 0.5) * values.length) / count)]);
}

/** Load a picture of the service; with a key it is fetched, since an <img> cannot carry a header. */
async function showPicture(image, url, owned) {
  image.dataset.url = url;
  if (!sessionStorage.getItem(KEY)) {
    image.src = url;
    return;
  }
  try {
    const blob = await (await call(url)).blob();
    if (image.dataset.url !== url) return;
    image.src = URL.createObjectURL(blob);
    owned.push(image.src);
  } catch {
    image.alt = "This picture could not be loaded";
  }
}

function release(urls) {
  urls.splice(0).forEach((url) => URL.revokeObjectURL(url));
}

function kindOf(modality) {
  const type = modality?.encoder?.type;
  if (PICTURE_ENCODERS.has(type)) return "picture";
  return TEXT_ENCODERS.has(type) ? "text" : "vector";
}

/** "pictures" for a modality named image; a modality with a name of its own keeps it. */
function plural(name) {
  if (name === "image") return "pictures";
  if (name === "text") return "texts";
  return `“${name}” items`;
}

// ---------------------------------------------------------------- errors and the key

function showError(error) {
  if (error.name === "AbortError") return;
  const box = byId("error");
  byId("results").classList.remove("is-busy");
  say("");
  if (error.status === 401) {
    const refused = sessionStorage.getItem(KEY) !== null;
    sessionStorage.removeItem(KEY);
    byId("key-form").hidden = false;
    byId("key").focus();
    if (!refused) return;
    error = new Problem("The service refused this key", "Check that all of it was pasted, or make a new one.", 401);
  }
  box.replaceChildren(element("strong", "", error.message));
  if (error.detail) box.append(element("p", "", error.detail));
  box.hidden = false;
  box.scrollIntoView({ block: "nearest" });
}

function clearError() {
  byId("error").hidden = true;
}

function say(text) {
  byId("status").textContent = text;
}

/** Run what a user asked for; a missing key is asked for and then it is run again. */
async function attempt(action) {
  state.retry = action;
  clearError();
  try {
    await action();
  } catch (error) {
    if (!(error instanceof Problem) && error.name !== "AbortError") console.error(error);
    showError(error);
  }
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("key").value.trim());
  byId("key").value = "";
  byId("key-form").hidden = true;
  attempt(state.collection ? refresh(state.retry) : loadCollections);
});

/** Build the panels again with the new key, then repeat what was asked for. */
const refresh = (action) => async () => {
  buildPanels();
  await action();
  state.retry = action;
};

// ---------------------------------------------------------------- searching

/**
 * Search one modality with another.
 *
 * query: {text} | {picture: File} | {itemId, title, pictureUrl}
 */
async function search(source, target, query) {
  state.search?.abort();
  const running = new AbortController();
  state.search = running;
  const busy = setTimeout(() => byId("results").classList.add("is-busy"), 120);
  say("Searching");
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
  const asked = query.itemId === undefined ? { text: query.text } : { item_id: query.itemId };
  return {
    body: JSON.stringify({ ...asked, k: RESULTS_PER_SEARCH }),
    headers: { "Content-Type": "application/json" },
  };
}

function showResults(source, target, query, result) {
  const hits = result.hits;
  const arePictures = hits.some((hit) => hit.content_url);
  const section = byId("results");
  release(state.pictures);

  const asked = query.text ?? query.title;
  const count = `${hits.length} ${plural(target)}`;
  byId("results-title").textContent = asked ? `${count} for “${shorten(asked, 140)}”` : `${count} for this picture`;
  byId("results-facts").textContent = [
    `model ${result.model_version}`,
    `revision ${result.index_revision}`,
    result.exact ? "exact" : "approximate",
    `${Number(result.took_ms).toFixed(1)} ms`,
  ].join(" · ");
  showQueryPicture(query);

  const list = byId("hits");
  list.classList.toggle("is-texts", !arePictures);
  list.replaceChildren(...hits.map((hit) => resultCard(hit, target, source)));
  section.hidden = false;
  say(hits.length ? `${count} found` : `No ${plural(target)} found`);
  bringIntoView(section, query.itemId !== undefined);
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

/** A click on a result moves to the new results; a typed query only when they are out of sight. */
function bringIntoView(section, moveFocus) {
  if (moveFocus) section.focus({ preventScroll: true });
  const top = section.getBoundingClientRect().top;
  if (moveFocus ? top < 0 : top > innerHeight * 0.75) section.scrollIntoView({ block: "start" });
}

/** One result; a click on it searches the other way. */
function resultCard(hit, modality, other) {
  const item = element("li");
  const card = element("button", "hit");
  card.type = "button";
  card.dataset.id = hit.id;
  card.title = `Find ${plural(other)} that match this one`;

  if (hit.content_url) card.append(pictureOf(hit));
  if (hit.text || !hit.content_url) card.append(element("span", "hit-text", hit.text || hit.id));
  card.append(factsOf(hit));
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

function factsOf(hit) {
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

// ---------------------------------------------------------------- the panels

/** One panel for each modality that a visitor can ask with. */
function buildPanels() {
  const names = Object.keys(state.collection.modalities);
  const build = { text: textPanel, picture: picturePanel, vector: vectorPanel };
  const panels = names.map((source) => {
    const target = names.find((name) => name !== source);
    return { kind: kindOf(state.collection.modalities[source]), source, target };
  });
  const order = ["text", "picture", "vector"];
  panels.sort((left, right) => order.indexOf(left.kind) - order.indexOf(right.kind));
  byId("panels").replaceChildren(...panels.map(({ kind, source, target }) => build[kind](source, target)));
}

function fromTemplate(id, heading) {
  const panel = byId(id).content.firstElementChild.cloneNode(true);
  panel.querySelector("h2").textContent = heading;
  return panel;
}

function textPanel(source, target) {
  const heading = `Find ${plural(target)} with a text`;
  const panel = fromTemplate("text-panel", heading);
  const input = panel.querySelector("input");
  input.setAttribute("aria-label", heading);
  input.placeholder = `Describe the ${plural(target)} you want`;
  const run = () => {
    const text = input.value.trim();
    if (text) attempt(() => search(source, target, { text }));
  };
  panel.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  addExamples(panel, source, (item) => {
    if (!item.text) return null;
    const text = shorten(item.text, LONGEST_QUERY);
    const button = element("button", "", shorten(text, 70));
    button.addEventListener("click", () => {
      input.value = text;
      run();
    });
    return button;
  }, TEXT_EXAMPLES);
  return panel;
}

function picturePanel(source, target) {
  const heading = `Find ${plural(target)} with a picture`;
  const panel = fromTemplate("picture-panel", heading);
  const zone = panel.querySelector(".drop");
  const input = panel.querySelector("input");
  const preview = panel.querySelector(".preview");
  const [title, hint] = zone.querySelectorAll(".drop-text > *");
  input.setAttribute("aria-label", `${heading}: choose a file`);

  panel.takePicture = (file) => {
    if (!file) return;
    if (preview.src) URL.revokeObjectURL(preview.src);
    preview.src = URL.createObjectURL(file);
    preview.hidden = false;
    title.textContent = shorten(file.name || "Pasted picture", 40);
    hint.textContent = "Drop, choose or paste another one";
    attempt(() => search(source, target, { picture: file }));
  };
  preview.addEventListener("error", () => { preview.hidden = true; });
  input.addEventListener("change", () => {
    panel.takePicture(input.files[0]);
    input.value = "";
  });
  for (const name of ["dragenter", "dragover"]) {
    zone.addEventListener(name, (event) => {
      event.preventDefault();
      zone.classList.add("is-over");
    });
  }
  for (const name of ["dragleave", "drop"]) zone.addEventListener(name, () => zone.classList.remove("is-over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    const file = event.dataTransfer.files[0];
    if (file) panel.takePicture(file);
    else showError(new Problem("That is not a file", "Drop a picture file from your computer.", 0));
  });

  addExamples(panel, source, (item) => {
    const url = item.content_url ?? `${collectionPath()}/items/${encodeURIComponent(item.id)}/content`;
    const button = element("button");
    const image = element("img");
    image.alt = item.labels?.length ? `Picture: ${item.labels.join(", ")}` : `Picture ${item.id}`;
    showPicture(image, url, []);
    button.append(image);
    button.addEventListener("click", () => {
      attempt(() => search(source, target, { itemId: item.id, pictureUrl: url }));
    });
    return button;
  }, PICTURE_EXAMPLES);
  return panel;
}

function vectorPanel(source, target) {
  const panel = fromTemplate("vector-panel", `Find ${plural(target)} with ${plural(source)}`);
  panel.querySelector("p").textContent =
    `The items of “${source}” are feature vectors, which cannot be typed here: query them through the API, ` +
    "or click one among the results.";
  return panel;
}

/** Fill a panel's examples from the collection; a panel without examples is not an error. */
async function addExamples(panel, modality, makeButton, count) {
  try {
    const items = await listItems(modality);
    const buttons = spreadOut(items, count).map(makeButton).filter(Boolean);
    const list = panel.querySelector(".examples ul");
    for (const button of buttons) {
      button.type = "button";
      const entry = element("li");
      entry.append(button);
      list.append(entry);
    }
    panel.querySelector(".examples").hidden = buttons.length === 0;
  } catch (error) {
    if (error.status === 401) showError(error);
  }
}

document.addEventListener("paste", (event) => {
  const file = [...(event.clipboardData?.files ?? [])].find((each) => each.type.startsWith("image/"));
  const panel = [...byId("panels").children].find((each) => each.takePicture);
  if (!file || !panel) return;
  event.preventDefault();
  panel.takePicture(file);
});

// A picture dropped beside the zone must not make the browser leave the page.
for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());

// ---------------------------------------------------------------- start

async function loadCollections() {
  const { collections } = await (await call("/v1/collections")).json();
  const select = byId("collection");
  select.replaceChildren(...collections.map((each) => new Option(each.name, each.name)));
  select.disabled = collections.length === 0;
  select.onchange = () => openCollection(collections.find((each) => each.name === select.value));
  if (collections.length === 0) {
    throw new Problem("There is no collection yet", "Make one with POST /v1/collections, or run “lrbs demo”.", 0);
  }
  openCollection(collections[0]);
}

function openCollection(collection) {
  state.search?.abort();
  state.collection = collection;
  clearError();
  byId("results").hidden = true;
  byId("hits").replaceChildren();
  buildPanels();
}

attempt(loadCollections);
