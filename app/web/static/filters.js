// Filters of results and items: labels and metadata values of the gallery that is shown, with their numbers of items.

import { readValue } from "./address.js";
import { call } from "./api.js";
import { byId, element } from "./elements.js";
import { collectionPath, namesFile, state } from "./state.js";

// A filter is a list of choices: {label}, {key, value}, either with {not: true}, or {key, from, to}, without null.

const VALUES_LISTED = 50;
const VALUES_SHOWN = 12;

let built = null; // gallery, model and revision that the choices are of

/** Show what the results can be filtered by, and by what they are; `run` takes the search that is chosen. */
export async function showFilters(shown, revision, run) {
  const { name, active_version: version } = state.collection;
  const gallery = `${name} ${version} ${shown.target} ${revision}`;
  showChosen(shown, run);
  if (built !== gallery) {
    byId("facets").replaceChildren();
    byId("filters").hidden = true;
    built = null;
    const values = await countValues(shown);
    if (state.shown !== shown) return;
    byId("facets").replaceChildren(...groupsOf(values));
    byId("filters").hidden = byId("facets").childElementCount === 0;
    built = gallery;
  }
  for (const button of byId("facets").querySelectorAll(".value")) {
    button.setAttribute("aria-pressed", String(has(shown.filter, button)));
  }
  byId("facets").onclick = ({ target }) => {
    const button = target.closest(".value");
    if (button) run(changed(shown, choiceOf(button)));
  };
  byId("facets").onsubmit = (event) => {
    event.preventDefault();
    const choice = namedIn(event.target);
    if (choice && !isChosen(shown.filter, choice)) run(changed(shown, choice));
  };
}

/** Return the values of a gallery; none of a list of items where no model serves. */
async function countValues({ target, parts }) {
  if (state.collection.active_version === null && !parts) return { labels: [], metadata: {}, ranges: {} };
  const about = new URLSearchParams({ modality: target, limit: String(VALUES_LISTED) });
  return (await call(`${collectionPath()}/values?${about}`)).json();
}

/** Return a filter as REST has it: values of one key are alternatives, unless they are negated. */
export function conditionsOf(filter) {
  const [labels, metadata] = [{}, Object.create(null)];
  const add = (conditions, name, value) => (conditions[name] ??= []).push(value);
  for (const { label, key, value, not, from, to } of filter) {
    if (label !== undefined) add(labels, not ? "none" : "any", label);
    else if (value !== undefined) add((metadata[key] ??= {}), not ? "not_in" : "in", value);
    else Object.assign((metadata[key] ??= {}), from === undefined ? {} : { gte: from }, to === undefined ? {} : { lte: to });
  }
  return { labels, metadata };
}

function groupsOf({ labels, metadata, ranges }) {
  const groups = Object.entries(metadata).filter(([key, [first]]) => !namesFile(key, first?.value)).map(([key, values]) => groupOf(key, values, (value) => ({ key, value })));
  if (labels.length > 0) groups.unshift(groupOf("Label", labels, (label) => ({ label })));
  return [...groups, ...Object.entries(ranges).map(([key, bounds]) => rangeOf(key, bounds))];
}

function groupOf(heading, values, choiceFrom) {
  const group = element("fieldset");
  const buttons = values.map(({ value, count }) => {
    const button = element("button", "value");
    button.type = "button";
    button.dataset.choice = JSON.stringify(choiceFrom(value));
    button.append(element("span", "", String(value)), element("span", "count", String(count)));
    return button;
  });
  group.append(element("legend", "", heading), ...buttons);
  const rest = buttons.slice(VALUES_SHOWN);
  if (rest.length > 0) group.append(moreButton(heading, rest));
  if (values.length === VALUES_LISTED) group.append(otherField(heading, choiceFrom(values[0].value)));
  return group;
}

/** Return a form for a range of numbers; the bounds that are shown are those of some items. */
function rangeOf(key, bounds) {
  const [group, form] = [element("fieldset"), element("form", "range")];
  form.dataset.key = key;
  const inputs = ["From", "Up to"].map((word, number) => {
    const input = element("input");
    Object.assign(input, { type: "number", step: "any", placeholder: `${word.toLowerCase()} ${bounds[number]}` });
    input.setAttribute("aria-label", `${word}, ${key}`);
    return input;
  });
  form.append(...inputs, element("button", "", "Apply"));
  group.append(element("legend", "", key), form);
  return group;
}

/** Return a form that takes a value that is too rare to be listed; `example` is the choice of one that is listed. */
function otherField(heading, example) {
  const form = element("form", "other-value");
  const input = element("input");
  input.type = "text";
  input.placeholder = "another one";
  input.autocomplete = "off";
  input.setAttribute("aria-label", `Another value of ${heading}`);
  form.dataset.example = JSON.stringify(example);
  form.append(input);
  return form;
}

/** Return the choice that a form names; null where there is none. */
function namedIn(form) {
  if (form.className === "range") {
    const [from, to] = [...form.querySelectorAll("input")].map(({ value }) => (value === "" ? undefined : Number(value)));
    return (from ?? to) === undefined ? null : { key: form.dataset.key, from, to };
  }
  const example = JSON.parse(form.dataset.example);
  const text = form.querySelector("input").value.trim();
  if (text === "") return null;
  if (example.label !== undefined) return { label: text };
  return { key: example.key, value: typeof example.value === "string" ? text : readValue(text) };
}

/** Hide some buttons, and return the one that shows them. */
function moreButton(heading, hidden) {
  for (const button of hidden) button.hidden = true;
  const more = element("button", "more-values", `${hidden.length} more`);
  more.type = "button";
  more.setAttribute("aria-label", `${hidden.length} more values of ${heading}`);
  more.addEventListener("click", () => {
    for (const button of hidden) button.hidden = false;
    hidden[0].focus();
    more.remove();
  });
  return more;
}

const choiceOf = (button) => JSON.parse(button.dataset.choice);

const has = (filter, button) => isChosen(filter, choiceOf(button));

const isSame = (choice, other) => choice.label === other.label && choice.key === other.key && choice.value === other.value;

const isChosen = (filter, choice) => filter.some((other) => isSame(choice, other) && choice.from === other.from && choice.to === other.to);

/** Change what is sought of a gallery, which is ahead of what is shown while a search runs. */
function changed(shown, choice, more = []) {
  const latest = state.sought?.target === shown.target ? state.sought : shown;
  const others = latest.filter.filter((other) => !isSame(choice, other));
  const isNew = !isChosen(latest.filter, choice);
  return { ...latest, filter: [...others, ...(isNew ? [choice] : more)] };
}

const textOf = ({ label, key, value, not, from, to }) =>
  (not ? "not " : "") + (label ?? (value === undefined ? `${key} ${from ?? ""} … ${to ?? ""}` : `${key}: ${value}`));

/** Show each choice as a button that takes it back, whether or not the gallery has it, beside one that negates it. */
function showChosen(shown, run) {
  byId("chosen").hidden = shown.filter.length === 0;
  byId("chosen").replaceChildren(...shown.filter.map((choice) => {
    const entry = element("li");
    const add = (className, text, label, more) => {
      const button = element("button", className, text);
      button.type = "button";
      button.setAttribute("aria-label", `${label} ${textOf(choice)}`);
      button.addEventListener("click", () => run(changed(shown, choice, more)));
      entry.append(button);
    };
    add("", textOf(choice), "Remove the filter");
    if ((choice.label ?? choice.value) !== undefined) add("negate", "≠", "Negate the filter", [{ ...choice, not: !choice.not }]);
    return entry;
  }));
}
