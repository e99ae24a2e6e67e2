// The choice of an encoder and of its options: a fieldset with a select, and a field for each plain option.

import { call } from "./api.js";
import { element } from "./elements.js";

const SIMPLE = new Set(["string", "integer", "number", "boolean"]);
const SET_BY_SERVER = /sha256$/;
const NONE = { description: "", options: {}, required: [] };

/** Return the types of encoders that the service has. */
export const loadEncoders = async () => (await (await call("/v1/encoders")).json()).encoders;

/** Return the encoder that is chosen, as the API takes it. */
export const encoderOf = (side) => ({ type: side.querySelector("select").value, ...readOptions(side) });

/** Say what the chosen encoder does, and show its options; a list or a choice of forms is for the API. */
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
