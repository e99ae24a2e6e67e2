// The bar: the parts that it holds are the query. A text alone stays in the field; beside others each part is a chip.

import { writeAddress } from "./address.js";
import { Problem } from "./api.js";
import { byId, element, radioOf, shorten } from "./elements.js";
import { attempt, showError } from "./messages.js";
import { release, showFile } from "./pictures.js";
import { search, showNoResults } from "./search.js";
import { collectionPath, isPlain, kindOf, listExamples, listLabels, nameOf, plural, state } from "./state.js";

const TEXT_EXAMPLES = 4;
const PICTURE_EXAMPLES = 6;
const STORED_EXAMPLES = 6;
const KINDS_SHOWN = 12;
const LONGEST_QUERY = 160;
const TYPING_PAUSE_MS = 250; // about what lies between two letters of a slow writer
const REFUSED = new Set([413, 415, 422]);

const [bar, field, chooser] = [byId("bar"), byId("text"), byId("pictures")];
const chips = new Map(); // {chip, weight, urls} by the query that it shows
let parts = []; // that of the field's text is the last one
let typed = null; // the query that the field's text is
let picked = null; // the modality to find, if it is not the one that follows from the parts
let timer = 0;

const modalities = () => Object.keys(state.collection.modalities);
const kindOfName = (name) => kindOf(state.collection.modalities[name]);
const other = (modality) => modalities().find((name) => name !== modality);

/** Return the modality of a text or picture: where both are of that kind, the one that is not to be found. */
function sourceOf(kind) {
  const takers = modalities().filter((name) => kindOfName(name) === kind);
  return takers.find((name) => name !== byId("targets").querySelector(":checked")?.value) ?? takers[0];
}

/** Return what parts find unless something else is picked: of both modalities the one that is not text. */
function targetOf(changed) {
  const sources = new Set(changed.map(({ source }) => source));
  if (sources.size === 1) return other(...sources);
  return modalities().find((name) => kindOfName(name) !== "text") ?? modalities()[0];
}

/** Let the bar take what the open collection can be searched by. */
export function buildBar() {
  release(state.examples);
  bar.hidden = false;
  byId("query").hidden = !sourceOf("text");
  chooser.parentElement.hidden = !sourceOf("picture");
  bar.querySelector("[type=submit]").hidden = byId("query").hidden;
  byId("targets").querySelectorAll("label").forEach((label) => label.remove());
  byId("targets").append(...modalities().map((target) => radioOf("target", target, plural(target), false)));
  bar.showQuery(null);
  byId("offers").replaceChildren();
}

/** Offer examples of the open collection, which are asked for only where no results hide them. */
bar.offer = () => {
  if (byId("offers").hasChildNodes()) return;
  const isText = (name) => kindOfName(name) === "text";
  for (const source of modalities().sort((left, right) => isText(right) - isText(left))) offerExamples(source);
};

/** Return the parts of the chips and the field, also of letters that were typed just now. */
function read() {
  const text = field.value.trim();
  parts = parts.filter(({ query }) => query !== typed);
  if (text !== typed?.text) typed = text ? { text } : null;
  if (typed) parts = [...parts, { source: sourceOf("text"), query: typed, weight: 1 }];
  return parts;
}

function run(changed, options) {
  clearTimeout(timer);
  if (changed.length === 0) {
    clear();
    return;
  }
  const of = isPlain({ parts: changed }) ? [{ ...changed[0], weight: 1 }] : changed; // of one part it has no effect
  const sought = { parts: of, target: picked ?? targetOf(of) };
  attempt(() => search(sought, options).catch((error) => {
    if (REFUSED.has(error.status)) leaveOutPictures();
    throw error;
  }), search);
}

/** Leave out pictures that were refused: they would be in the way of the next ones. */
function leaveOutPictures() {
  const shown = state.shown?.parts ?? [];
  parts = parts.filter(({ query }) => !query.picture || shown.some((part) => part.query === query));
  showChips();
}

function clear({ isTyped = false } = {}) {
  attempt(showNoResults);
  writeAddress(state.collection, null, isTyped);
  moveFocus();
}

/** Give the focus to what takes the next part: without texts and pictures to what is to be found. */
function moveFocus() {
  const places = [field, chooser, byId("targets").querySelector("input")];
  places.find((place) => place.offsetParent !== null)?.focus();
}

bar.read = read;

/** Show the parts of a search, or an empty bar; of several parts a text is in the field only while it is typed. */
bar.showQuery = (shown, isTyped) => {
  clearTimeout(timer);
  parts = shown?.parts ?? [];
  const { query } = parts.at(-1) ?? {};
  const isInField = query?.text !== undefined && (isPlain({ parts }) || (isTyped && query === typed));
  typed = isInField ? query : null;
  if (field.value.trim() !== (typed?.text ?? "")) field.value = typed?.text ?? "";
  for (const input of byId("targets").querySelectorAll("input")) input.checked = input.value === shown?.target;
  picked = shown && shown.target !== targetOf(parts) ? shown.target : null;
  showChips();
};

/** Add pictures to the query. */
export function takePictures(files) {
  const source = sourceOf("picture");
  if (!source) return;
  run([...read(), ...files.map((picture) => ({ source, query: { picture }, weight: 1 }))]);
}

bar.addEventListener("submit", (event) => {
  event.preventDefault();
  if (read().length > 0) run(parts);
});
field.addEventListener("input", (event) => {
  clearTimeout(timer);
  if (event.isComposing) return;
  timer = setTimeout(() => {
    if (read().length > 0) run(parts, { isTyped: true });
    else if (state.sought) clear({ isTyped: true });
  }, TYPING_PAUSE_MS);
});
byId("add-text").addEventListener("click", () => {
  clearTimeout(timer);
  read();
  typed = null;
  field.value = "";
  showChips();
  field.focus();
});
byId("clear").addEventListener("click", () => clear());
byId("targets").addEventListener("change", ({ target }) => {
  picked = target.value;
  if (read().length > 0) run(parts);
});
chooser.addEventListener("change", () => {
  takePictures([...chooser.files]);
  chooser.value = "";
});
for (const name of ["dragenter", "dragover"]) {
  bar.addEventListener(name, (event) => {
    event.preventDefault();
    bar.classList.add("is-over");
  });
}
for (const name of ["dragleave", "drop"]) bar.addEventListener(name, () => bar.classList.remove("is-over"));
bar.addEventListener("drop", (event) => {
  event.preventDefault();
  const files = [...event.dataTransfer.files];
  if (files.length > 0) takePictures(files);
  else showError(new Problem("That is not a file", "Drop a picture file from your computer.", 0));
});

/** Show a chip for each part that is not in the field; those that stay keep the focus. */
function showChips() {
  const own = parts.filter(({ query }) => query !== typed);
  const shownBefore = chips.size;
  for (const [query, { chip, urls }] of chips) {
    if (own.some((part) => part.query === query)) continue;
    release(urls);
    chip.remove();
    chips.delete(query);
  }
  for (const part of own) {
    if (!chips.has(part.query)) chips.set(part.query, chipOf(part));
    const { chip, weight } = chips.get(part.query);
    weight.value = part.weight;
    weight.hidden = isPlain({ parts });
    chip.classList.toggle("is-less", part.weight < 0);
    if (!chip.isConnected) byId("parts").append(chip);
  }
  byId("parts").hidden = own.length === 0;
  if (own.length > shownBefore) byId("parts").scrollLeft = byId("parts").scrollWidth; // to the new one
  byId("clear").hidden = parts.length === 0;
  field.placeholder = own.length === 0 ? "Describe it, or drop a picture here" : "Add a text";
}

function chipOf({ query }) {
  const [chip, weight, remove, urls] = [element("li"), element("input"), element("button", "remove", "×"), []];
  const name = nameOf(query);
  if (query.picture || query.pictureUrl) {
    const image = element("img", "preview");
    image.alt = name;
    image.addEventListener("error", () => { image.hidden = true; }); // of a format that this browser does not show
    if (query.pictureUrl) showFile(image, query.pictureUrl, urls);
    else urls.push(image.src = URL.createObjectURL(query.picture));
    chip.append(image);
  }
  if (!query.pictureUrl) chip.append(element("span", "", shorten(query.text ?? query.title ?? name, 30)));
  Object.assign(weight, { type: "number", step: "0.5", title: "Weight: below 0 leads away from it" });
  weight.setAttribute("aria-label", `Weight of ${name}`);
  weight.addEventListener("change", () => {
    const change = (part) => (part.query === query ? { ...part, weight: Number(weight.value) } : part);
    run(read().map(change));
  });
  remove.setAttribute("aria-label", `Remove ${name}`);
  remove.addEventListener("click", () => {
    moveFocus();
    run(read().filter((part) => part.query !== query));
  });
  chip.append(weight, remove);
  return { chip, weight, urls };
}

/** Offer items of a modality, and kinds of what its texts find, as queries. */
function offerExamples(source) {
  const kind = kindOfName(source);
  const column = element("div");
  byId("offers").append(column);
  const button = (query, label) => {
    const made = element("button", "", label);
    made.addEventListener("click", () => run([{ source, query, weight: 1 }], { movesFocus: true }));
    return made;
  };
  const ofText = (text) => button({ text }, shorten(text, 70));
  const examples = (count, make) => async () => (await listExamples(source, count)).map(make).filter(Boolean);
  if (kind === "text") {
    offer(column, "texts", "Try one of these", examples(TEXT_EXAMPLES, ({ text }) => text && ofText(shorten(text, LONGEST_QUERY))));
    offer(column, "kinds", "or look for one of these kinds", async () => (await listLabels(other(source))).slice(0, KINDS_SHOWN).map(ofText));
  } else if (kind === "picture") {
    offer(column, "thumbnails", "Drop or paste a picture, or take one of these", examples(PICTURE_EXAMPLES, (item) => {
      const pictureUrl = `${collectionPath()}/items/${encodeURIComponent(item.id)}/content`;
      const image = element("img");
      image.alt = item.labels?.length ? `Picture: ${item.labels.join(", ")}` : `Picture ${item.id}`;
      showFile(image, pictureUrl, state.examples);
      const made = button({ itemId: item.id, pictureUrl });
      made.ariaLabel = image.alt; // also until it is there
      made.append(image);
      return made;
    }));
  } else {
    const what = kind === "sound" ? "sounds" : "feature vectors";
    const title = `The items of “${source}” are ${what}: query with your own through the API, or click one that is stored.`;
    offer(column, "stored", title, examples(STORED_EXAMPLES, ({ id, labels }) => button({ itemId: id, title: id }, [id, ...(labels ?? [])].join(" · "))));
  }
}

/** Offer buttons that are made from the collection; having none is not an error. */
async function offer(column, name, title, makeButtons) {
  const [group, list] = [element("div"), element("ul", `${name} chips`)];
  group.append(element("p", "facts", title), list);
  group.hidden = true;
  column.append(group);
  try {
    const buttons = await makeButtons();
    for (const button of buttons) {
      const entry = element("li");
      entry.append(button);
      list.append(entry);
    }
    group.hidden = buttons.length === 0;
  } catch (error) {
    group.remove(); // so that they are asked for again
    if (!column.hasChildNodes()) column.remove();
    if (error.status === 401) showError(error);
  }
}
