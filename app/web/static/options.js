// Options of a training: what it may learn from, what is better, and the rest as the API describes it.

import { call } from "./api.js";
import { byId, element } from "./elements.js";
import { encoderOf, explain, loadEncoders } from "./encoders.js";
import { attempt } from "./messages.js";
import { buildParameters, readParameters } from "./parameters.js";
import { collectionPath, kindOf, listItems, namesFile, state } from "./state.js";

const KEYS_SHOWN = 32; // as many as a request may name
const OWN = ["supervision", "objective", "encoders"]; // options with fields of their own

let shownFor = null; // the collection whose options are in the form
let encodersFor = ""; // the same, and its live version, which has encoders of its own

byId("learn-facets").addEventListener("change", () => {
  const isChosen = byId("learn-facets").value === "chosen";
  byId("facet-keys").hidden = !isChosen;
  if (isChosen) attempt(showKeys);
});

byId("objective").addEventListener("change", () => {
  byId("objective-weights").hidden = byId("objective").value !== "weights";
});

/** Fill the form for the open collection: with what was chosen for it before, or with the defaults. */
export async function showOptions() {
  const collection = state.collection;
  await showEncoders(collection);
  if (shownFor === collection) return;
  await buildParameters(byId("parameters"), OWN);
  byId("options").reset();
  byId("objective-weights").hidden = true;
  byId("facet-keys").hidden = true;
  clearKeys();
  shownFor = collection;
}

/** Let another encoder be chosen for each modality whose originals are stored. */
async function showEncoders(collection) {
  const { modalities, created_at: made, active_version: live } = await (await call(collectionPath(collection))).json();
  const key = [collection.name, made, live].join(" ");
  if (encodersFor === key) return;
  const encoders = await loadEncoders();
  if (state.collection !== collection) return;
  const sides = Object.entries(modalities).filter(([, modality]) => kindOf(modality) !== "vector");
  byId("other-encoders").replaceChildren(...sides.map(([name, modality], number) => {
    const side = byId("other-encoder").content.firstElementChild.cloneNode(true);
    const [label, choice] = [side.querySelector("label"), side.querySelector("select")];
    side.dataset.modality = name;
    side.querySelector("legend").textContent = `Encoder of “${name}”`;
    choice.id = `encoder-${number}`;
    label.htmlFor = choice.id;
    // What takes several kinds of content is checked by the service.
    const fitting = encoders.filter(({ content }) => content === null || content === kindOf(modality));
    choice.append(
      new Option(`as now: ${modality.encoder.type}`, ""), ...fitting.map(({ type }) => new Option(type, type)),
    );
    choice.addEventListener("change", () => explain(side, encoders, number));
    explain(side, encoders, number);
    return side;
  }));
  encodersFor = key;
}

function readEncoders() {
  const changed = [...byId("other-encoders").children].filter((side) => side.querySelector("select").value !== "");
  if (changed.length === 0) return {};
  return { encoders: Object.fromEntries(changed.map((side) => [side.dataset.modality, encoderOf(side)])) };
}

/** Return the body of a retrain request. */
export function readOptions() {
  const isChecked = (name) => byId(`learn-${name}`).checked;
  return {
    supervision: {
      labels: isChecked("labels"),
      facets: readFacets(byId("learn-facets").value),
      pairs: isChecked("pairs"),
      feedback: isChecked("feedback"),
    },
    objective: readObjective(byId("objective").value),
    ...readEncoders(),
    ...readParameters(byId("parameters")),
  };
}

/** Say what is chosen, a line for each. */
export function describeOptions() {
  const { supervision, objective, encoders = {}, ...parameters } = readOptions();
  const { facets } = supervision;
  const taught = ["labels", "pairs", "feedback"].filter((name) => supervision[name]);
  if (facets === "auto") taught.push("metadata that looks categorical");
  else taught.push(...facets);
  return [
    taught.length > 0 ? `learns from ${taught.join(", ")}` : "learns from nothing",
    `judged by ${byId("objective").selectedOptions[0].text}${weightsOf(objective)}`,
    ...Object.entries(encoders).map(([name, { type }]) => `encodes all stored “${name}” items again, by ${type}`),
    ...Object.entries(parameters).map(([name, value]) => `${name} ${value}`),
  ];
}

const weightsOf = (objective) =>
  (objective !== null && typeof objective === "object"
    ? `: ${Object.entries(objective).map(([name, weight]) => `${weight} × ${name}`).join(", ")}`
    : "");

function readFacets(choice) {
  if (choice === "auto") return "auto";
  if (choice === "none") return [];
  return [...byId("facet-keys").querySelectorAll("input:checked")].map((box) => box.value);
}

function readObjective(choice) {
  if (choice !== "weights") return choice || null;
  return Object.fromEntries(weightInputs().map((input) => [input.name, Number(input.value)]));
}

function weightInputs() {
  return [...byId("objective-weights").querySelectorAll("input")];
}

function clearKeys() {
  byId("facet-keys").replaceChildren(byId("facet-keys").querySelector("legend"));
}

/** Offer the metadata keys of the first items, the most frequent first. */
async function showKeys() {
  const collection = state.collection;
  const sides = await Promise.all(Object.keys(collection.modalities).map((modality) => listItems(modality)));
  if (state.collection !== collection) return;
  const counts = new Map();
  for (const item of sides.flat()) {
    for (const [key, value] of Object.entries(item.metadata ?? {})) if (!namesFile(key, value)) counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const keys = [...counts].sort((left, right) => right[1] - left[1]).map(([key]) => key);
  clearKeys();
  const boxes = keys.slice(0, KEYS_SHOWN).map(keyBox);
  byId("facet-keys").append(...(boxes.length > 0 ? boxes : [element("span", "facts", "The items have no metadata.")]));
}

function keyBox(key) {
  const label = element("label");
  const box = element("input");
  box.type = "checkbox";
  box.value = key;
  label.append(box, key);
  return label;
}
