// The query panels: one for each modality of the collection.

import { Problem } from "./api.js";
import { byId, element, shorten, spreadOut } from "./elements.js";
import { attempt, showError } from "./messages.js";
import { release, showPicture } from "./pictures.js";
import { search } from "./search.js";
import { collectionPath, kindOf, listItems, plural, state } from "./state.js";

const TEXT_EXAMPLES = 4;
const PICTURE_EXAMPLES = 6;
const VECTOR_EXAMPLES = 6;
const LONGEST_QUERY = 160;

/** Build one panel for each modality that can be a query; none while there is no model. */
export function buildPanels() {
  release(state.examples);
  if (state.collection.active_version === null) {
    byId("panels").replaceChildren();
    return;
  }
  const names = Object.keys(state.collection.modalities);
  const build = { text: textPanel, picture: picturePanel, vector: vectorPanel };
  const panels = names
    .map((source) => {
      const target = names.find((name) => name !== source);
      return { kind: kindOf(state.collection.modalities[source]), source, target };
    })
    .filter(({ kind }) => kind in build);
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
    showPicture(image, url, state.examples);
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
    `The items of “${source}” are feature vectors, which cannot be typed here: query with your own through ` +
    "the API, or click one that is stored.";
  addExamples(panel, source, (item) => {
    const button = element("button", "", [item.id, ...(item.labels ?? [])].join(" · "));
    button.addEventListener("click", () => {
      attempt(() => search(source, target, { itemId: item.id, title: item.id }));
    });
    return button;
  }, VECTOR_EXAMPLES);
  return panel;
}

/** Fill a panel's examples from the collection; having none is not an error. */
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
