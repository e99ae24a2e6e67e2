// Fields of a form for the plain options of a request, as the API's own document describes them.

import { call } from "./api.js";
import { element } from "./elements.js";

const DESCRIBED_BY = "described-";

let schema = null; // of the body of a retrain

/** Fill a container with a field for each plain option of a retrain; those in `others` have fields of their own. */
export async function buildParameters(container, others) {
  if (schema === null) {
    const description = await (await call("openapi.json")).json();
    schema = description.components.schemas.RetrainIn;
  }
  const names = Object.keys(schema.properties).filter((name) => !others.includes(name));
  container.replaceChildren(...names.map((name) => fieldOf(name, schema.properties[name])));
  container.onchange = () => barUseless(container);
}

function fieldOf(name, property) {
  const kind = property.anyOf?.find(({ type }) => type !== "null") ?? property;
  const field = element("div", "parameter");
  const label = element("label", "", name);
  const input = kind.enum ? choiceOf(kind.enum, property.default) : numberOf(kind, property.default);
  input.name = name;
  input.id = `parameter-${name}`;
  label.htmlFor = input.id;
  field.append(label, input);
  if (property.description) {
    const help = element("p", "facts");
    help.id = `${DESCRIBED_BY}${name}`;
    help.append(...property.description.split("`").map((part, number) => (number % 2 ? element("code", "", part) : part)));
    input.setAttribute("aria-describedby", help.id);
    field.append(help);
  }
  return field;
}

function choiceOf(values, preset) {
  const select = element("select");
  const options = values.map((value) => new Option(value, value, value === preset, value === preset));
  if (preset === undefined || preset === null) options.unshift(new Option("chosen by the training", "", true, true));
  select.append(...options);
  return select;
}

function numberOf({ type, minimum, maximum }, preset) {
  const input = element("input");
  input.type = "number";
  input.step = type === "integer" ? "1" : "any";
  if (minimum !== undefined) input.min = minimum;
  if (maximum !== undefined) input.max = maximum;
  input.placeholder = preset ?? "chosen";
  return input;
}

/** Disable what the chosen values leave no room for, by the condition of the API's document. */
function barUseless(container) {
  const { if: condition, then } = schema;
  const isMet = Object.entries(condition.properties)
    .every(([name, { enum: values }]) => values.includes(container.querySelector(`[name=${name}]`).value));
  for (const name of Object.keys(then.properties)) container.querySelector(`[name=${name}]`).disabled = isMet;
}

/** Return the values that differ from the defaults. */
export function readParameters(container) {
  const inputs = [...container.querySelectorAll("input, select")].filter((input) => !input.disabled && input.value !== "");
  const entries = inputs.map(({ name, type, value }) => [name, type === "number" ? Number(value) : value]);
  return Object.fromEntries(entries.filter(([name, value]) => value !== schema.properties[name].default));
}
