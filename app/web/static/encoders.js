// The choice of an encoder and of its options: a fieldset with a select, and a field for each plain option.

import { call } from "./api.js";
import { element } from "./elements.js";

const SIMPLE = new Set(["string", "integer", "number", "boolean", "array"]);
const SET_BY_SERVER = /sha256$/;
const NONE = { description: "", options: {}, required: [] };

/** Return the types of encoders that the service has. */
export const loadEncoders = async () => (await (await call("v1/encoders")).json()).encoders;

/** Return the encoder that is chosen, as the API takes it. */
export const encoderOf = (side) => ({ type: side.querySelector("select").value, ...readOptions(side) });

/** Say what the chosen encoder does, and show its options; a choice of forms is for the API. */
export function explain(side, encoders, number) {
  const chosen = encoders.find(({ type }) => type === side.querySelector("select").value);
  const { description, options, required } = chosen ?? NONE;
  side.querySelector(".explanation").textContent = description;
  const simple = Object.entries(options).filter(([name, { type }]) => SIMPLE.has(type) && !SET_BY_SERVER.test(name));
  const fieldsOf = (entries, isRequired) => entries.map(([name, option]) => fieldOf(name, option, isRequired, number));
  side.querySelector(".required").replaceChildren(...fieldsOf(simple.filter(([name]) => required.includes(name)), true));
  const optional = fieldsOf(simple.filter(([name]) => !required.includes(name)), false);
  side.querySelector(".optional").replaceChildren(...optional);
  side.querySelector("details").hidden = optional.length === 0;
}

function fieldOf(name, option, isRequired, number) {
  const field = element("p", "field");
  const label = element("label", "", name);
  const { control, how = "" } = controlOf(option);
  control.id = `new-${name}-${number}`;
  control.name = name;
  control.required = isRequired;
  label.htmlFor = control.id;
  const hint = element("span", "facts", [option.description, how].filter(Boolean).join("; "));
  hint.id = `${control.id}-hint`;
  control.setAttribute("aria-describedby", hint.id);
  field.append(label, control, hint);
  return field;
}

/** Return the control of an option, and how it is filled in where that is not obvious. */
function controlOf({ type, items, examples, enum: values }) {
  const choices = values ?? (type === "boolean" ? [true, false] : null);
  if (choices) {
    const control = element("select");
    control.append(new Option("default", ""), ...choices.map((value) => new Option(String(value), JSON.stringify(value))));
    control.dataset.type = "json";
    return { control };
  }
  if (type === "array") return listOf(items, examples);
  const control = element("input");
  control.type = type === "string" ? "text" : "number";
  if (control.type === "number") control.step = type === "integer" ? "1" : "any";
  control.dataset.type = type;
  return { control };
}

/** Return the control of a list: names in a line, or anything else as JSON. */
function listOf(items, examples) {
  if (items?.type === "string") {
    const control = element("input");
    control.type = "text";
    control.dataset.type = "names";
    return { control, how: `separated by commas${items.examples ? `, such as ${items.examples.join(", ")}` : ""}` };
  }
  const control = element("textarea");
  control.rows = 3;
  control.spellcheck = false;
  control.dataset.type = "json";
  const explainFault = () => control.setCustomValidity(isList(control.value) ? "" : `${control.name}: no list in JSON`);
  control.addEventListener("input", explainFault);
  return { control, how: `a list in JSON${examples ? `, such as ${JSON.stringify(examples[0])}` : ""}` };
}

function isList(text) {
  if (text.trim() === "") return true;
  try {
    return Array.isArray(JSON.parse(text));
  } catch {
    return false;
  }
}

const VALUES = {
  string: (value) => value.trim(),
  names: (value) => value.split(",").map((name) => name.trim()).filter(Boolean),
};

/** Return the options that are filled in; those left empty have their defaults. */
function readOptions(side) {
  const filled = [...side.querySelectorAll("[data-type]")].filter(({ value }) => value.trim() !== "");
  return Object.fromEntries(filled.map(({ name, value, dataset }) => [
    name, (VALUES[dataset.type] ?? JSON.parse)(value),
  ]));
}
