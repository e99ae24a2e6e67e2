// Making a collection: its name, and for each of its two modalities a name and an encoder.

import { call } from "./api.js";
import { byId, element } from "./elements.js";
import { announce, attempt } from "./messages.js";

const SIDES = [
  { title: "First kind", name: "image", encoder: "hog-color" },
  { title: "Second kind", name: "text", encoder: "tfidf" },
];
const SIMPLE = new Set(["string", "integer", "number", "boolean"]);
const CONTENTS = { picture: "Pictures", sound: "Sounds", text: "Texts", vector: "Features of your own" };
const SET_BY_SERVER = /sha256$/;

let encoders = null;

/** Let a collection be made; `onCreated` takes it. */
export function offerCreation(onCreated) {
  byId("creating").addEventListener("toggle", () => {
    if (byId("creating").open && encoders === null) attempt(showEncoders);
  });
  byId("create-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(async () => {
      const collection = await create();
      byId("new-name").value = "";
      announce(`The collection ${collection.name} was made`);
      await onCreated(collection);
    });
  });
}

async function create() {
  const modalities = Object.fromEntries([...byId("new-modalities").children].map((side) => [
    side.querySelector("input").value.trim(),
    { encoder: { type: side.querySelector("select").value, ...readOptions(side) } },
  ]));
  const response = await call("/v1/collections", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ name: byId("new-name").value.trim(), modalities }),
  });
  return response.json();
}

async function showEncoders() {
  ({ encoders } = await (await call("/v1/encoders")).json());
  byId("new-modalities").replaceChildren(...SIDES.map(sideOf));
}

function sideOf({ title, name, encoder }, number) {
  const side = byId("new-modality").content.firstElementChild.cloneNode(true);
  const [nameBox, choice] = [side.querySelector("input"), side.querySelector("select")];
  const [nameLabel, choiceLabel] = side.querySelectorAll("label");
  side.querySelector("legend").textContent = title;
  for (const [label, control, id] of [[nameLabel, nameBox, "name"], [choiceLabel, choice, "encoder"]]) {
    control.id = `new-${id}-${number}`;
    label.htmlFor = control.id;
  }
  nameBox.value = name;
  choice.append(...Object.entries(CONTENTS).map(([content, heading]) => {
    const group = element("optgroup");
    group.label = heading;
    group.append(...encoders.filter((each) => each.content === content).map(({ type }) => new Option(type, type)));
    return group;
  }));
  choice.value = encoder;
  choice.addEventListener("change", () => explain(side, number));
  explain(side, number);
  return side;
}

/** Say what the chosen encoder does, and show its options; a list or a choice of forms is for the API. */
function explain(side, number) {
  const { description, options, required } = encoders.find(({ type }) => type === side.querySelector("select").value);
  side.querySelector(".explanation").textContent = description;
  const simple = Object.entries(options).filter(([name, { type }]) => SIMPLE.has(type) && !SET_BY_SERVER.test(name));
  const fieldsOf = (entries, isRequired) => entries.map(([name, option]) => fieldOf(name, option, isRequired, number));
  side.querySelector(".required").replaceChildren(...fieldsOf(simple.filter(([name]) => required.includes(name)), true));
  const optional = fieldsOf(simple.filter(([name]) => !required.includes(name)), false);
  side.querySelector(".optional").replaceChildren(...optional);
  side.querySelector("details").hidden = optional.length === 0;
}

function fieldOf(name, { type, description, enum: values }, isRequired, number) {
  const field = element("p", "field");
  const label = element("label", "", name);
  const choices = values ?? (type === "boolean" ? [true, false] : null);
  const control = element(choices ? "select" : "input");
  if (choices) control.append(new Option("default", ""), ...choices.map((value) => new Option(String(value), JSON.stringify(value))));
  else control.type = type === "string" ? "text" : "number";
  if (control.type === "number") control.step = type === "integer" ? "1" : "any";
  control.id = `new-${name}-${number}`;
  control.name = name;
  control.required = isRequired;
  control.dataset.type = choices ? "json" : type;
  label.htmlFor = control.id;
  const hint = element("span", "facts", description ?? "");
  hint.id = `${control.id}-hint`;
  control.setAttribute("aria-describedby", hint.id);
  field.append(label, control, hint);
  return field;
}

/** Return the options that are filled in; those left empty have their defaults. */
function readOptions(side) {
  const filled = [...side.querySelectorAll("[data-type]")].filter(({ value }) => value.trim() !== "");
  return Object.fromEntries(filled.map(({ name, value, dataset }) => [
    name, dataset.type === "string" ? value.trim() : JSON.parse(value),
  ]));
}
