// The query panels: one for each modality of the collection.

import { Problem } from "./api.js";
import { byId, element, shorten } from "./elements.js";
import { attempt, showError } from "./messages.js";
import { release, showFile } from "./pictures.js";
import { search } from "./search.js";
import { collectionPath, kindOf, listExamples, listLabels, plural, state } from "./state.js";

const TEXT_EXAMPLES = 4;
const PICTURE_EXAMPLES = 6;
const STORED_EXAMPLES = 6;
const KINDS_SHOWN = 12;
const LONGEST_QUERY = 160;
const TYPING_PAUSE_MS = 250; // about what lies between two letters of a slow writer

/** Build one panel for each modality that can be a query. */
export function buildPanels() {
  release(state.examples);
  const names = Object.keys(state.collection.modalities);
  const build = { text: textPanel, picture: picturePanel, sound: storedPanel, vector: storedPanel };
  const panels = names
    .map((source) => {
      const targets = [...names.filter((name) => name !== source), source];
      return { kind: kindOf(state.collection.modalities[source]), source, targets };
    })
    .filter(({ kind }) => kind in build);
  const order = ["text", "picture", "sound", "vector"];
  panels.sort((left, right) => order.indexOf(left.kind) - order.indexOf(right.kind));
  byId("panels").replaceChildren(...panels.map(({ kind, source, targets }) => build[kind](source, targets)));
}

/**
 * Build a panel that searches its own modality or the other one.
 *
 * `panel.run` searches what is chosen; `panel.showQuery` is told of every search, and shows the panel's own query by
 * `show`, which gets null when another one comes.
 */
function fromTemplate(id, heading, source, targets, show = () => {}) {
  const panel = byId(id).content.firstElementChild.cloneNode(true);
  panel.querySelector("h2").textContent = heading;
  const choices = targets.map((target) => targetChoice(source, target));
  panel.querySelector(".targets").append(...choices);
  const inputs = choices.map((choice) => choice.querySelector("input"));
  inputs[0].checked = true;
  let own = null;
  panel.run = (query, options) => {
    const target = targets[inputs.findIndex((input) => input.checked)];
    attempt(() => search({ source, target, query }, options), search);
  };
  panel.querySelector(".targets").addEventListener("change", () => {
    if (own) panel.run(own);
  });
  panel.showQuery = (shown) => {
    own = shown?.source === source ? shown.query : null;
    if (own) inputs[targets.indexOf(shown.target)].checked = true;
    show(own);
  };
  return panel;
}

function targetChoice(source, target) {
  const label = element("label");
  const input = element("input");
  input.type = "radio";
  input.name = `target-of-${source}`;
  label.append(input, element("span", "", source === target ? `similar ${plural(target)}` : plural(target)));
  return label;
}

function textPanel(source, targets) {
  const panel = fromTemplate("text-panel", "Search with a text", source, targets, (own) => {
    clearTimeout(timer);
    const text = own?.text ?? "";
    if (input.value.trim() !== text) input.value = text;
  });
  const input = panel.querySelector("input[type=search]");
  let timer = 0;
  input.setAttribute("aria-label", "Search with a text");
  input.placeholder = "Describe what you look for";
  const run = (options) => {
    clearTimeout(timer);
    const text = input.value.trim();
    if (text) panel.run({ text }, options);
  };
  panel.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  input.addEventListener("input", (event) => {
    clearTimeout(timer);
    if (!event.isComposing) timer = setTimeout(() => run({ isTyped: true }), TYPING_PAUSE_MS);
  });
  const queryButton = (text) => {
    const button = element("button", "", shorten(text, 70));
    button.addEventListener("click", () => {
      input.value = text;
      run();
    });
    return button;
  };
  addExamples(panel, source, (item) => {
    if (!item.text) return null;
    return queryButton(shorten(item.text, LONGEST_QUERY));
  }, TEXT_EXAMPLES);
  fill(panel, ".kinds", async () => (await listLabels(targets[0])).slice(0, KINDS_SHOWN).map(queryButton));
  return panel;
}

function picturePanel(source, targets) {
  const heading = "Search with a picture";
  const panel = fromTemplate("picture-panel", heading, source, targets, (own) => showChosen(own?.picture ?? null));
  const zone = panel.querySelector(".drop");
  const input = panel.querySelector("input[type=file]");
  const preview = panel.querySelector(".preview");
  const [title, hint] = zone.querySelectorAll(".drop-text > *");
  const [emptyTitle, emptyHint] = [title.textContent, hint.textContent];
  let chosen = null;
  input.setAttribute("aria-label", `${heading}: choose a file`);

  const showChosen = (file) => {
    if (file === chosen) return;
    chosen = file;
    if (preview.src) URL.revokeObjectURL(preview.src);
    preview.removeAttribute("src");
    preview.hidden = file === null;
    if (file) preview.src = URL.createObjectURL(file);
    title.textContent = file ? shorten(file.name || "Pasted picture", 40) : emptyTitle;
    hint.textContent = file ? "Drop, choose or paste another one" : emptyHint;
  };
  panel.takePicture = (file) => {
    if (file) panel.run({ picture: file });
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
    const url = `${collectionPath()}/items/${encodeURIComponent(item.id)}/content`;
    const button = element("button");
    const image = element("img");
    image.alt = item.labels?.length ? `Picture: ${item.labels.join(", ")}` : `Picture ${item.id}`;
    showFile(image, url, state.examples);
    button.append(image);
    button.addEventListener("click", () => {
      panel.run({ itemId: item.id, pictureUrl: url });
    });
    return button;
  }, PICTURE_EXAMPLES);
  return panel;
}

/** Build the panel of a modality whose queries are stored items here: sounds and feature vectors. */
function storedPanel(source, targets) {
  const panel = fromTemplate("stored-panel", `Search with ${plural(source)}`, source, targets);
  const what = kindOf(state.collection.modalities[source]) === "sound" ? "sounds" : "feature vectors";
  panel.querySelector("p.facts").textContent =
    `The items of “${source}” are ${what}: query with your own through the API, or click one that is stored.`;
  addExamples(panel, source, (item) => {
    const button = element("button", "", [item.id, ...(item.labels ?? [])].join(" · "));
    button.addEventListener("click", () => {
      panel.run({ itemId: item.id, title: item.id });
    });
    return button;
  }, STORED_EXAMPLES);
  return panel;
}

const addExamples = (panel, modality, makeButton, count) =>
  fill(panel, ".examples", async () => (await listExamples(modality, count)).map(makeButton).filter(Boolean));

/** Fill a part of a panel with buttons that are made from the collection; having none is not an error. */
async function fill(panel, part, makeButtons) {
  try {
    const buttons = await makeButtons();
    const list = panel.querySelector(`${part} ul`);
    for (const button of buttons) {
      button.type = "button";
      const entry = element("li");
      entry.append(button);
      list.append(entry);
    }
    panel.querySelector(part).hidden = buttons.length === 0;
  } catch (error) {
    if (error.status === 401) showError(error);
  }
}
