// Filters of results and items: labels and metadata values of the gallery that is shown, with their numbers of items.

import { readValue } from "./address.js";
import { call } from "./api.js";
import { byId, element } from "./elements.js";
import { collectionPath, namesFile, state } from "./state.js";

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
async function countValues({ target, query }) {
  if (state.collection.active_version === null && !query) return { labels: [], metadata: {} };
  const about = new URLSearchParams({ modality: target, limit: String(VALUES_LISTED) });
  return (await call(`${collectionPath()}/values?${about}`)).json();
}

function groupsOf({ labels, metadata }) {
  const groups = Object.entries(metadata).filter(([key, [first]]) => !namesFile(key, first?.value)).map(([key, values]) => groupOf(key, values, (value) => ({ key, value })));
  if (labels.length > 0) groups.unshift(groupOf("Label", labels, (label) => ({ label })));
  return groups;
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

function isChosen(filter, { label, key, value }) {
  return label === undefined ? (filter.metadata.get(key) ?? []).includes(value) : filter.labels.includes(label);
}

const without = (values, value) => values.filter((other) => other !== value);
const withOrWithout = (values, value) => (values.includes(value) ? without(values, value) : [...values, value]);

/** Change what is sought of a gallery, which is ahead of what is shown while a search runs. */
function changed(shown, choice) {
  const latest = state.sought?.target === shown.target ? state.sought : shown;
  return { ...latest, filter: toggle(latest.filter, choice) };
}

function toggle(filter, { label, key, value }) {
  if (label !== undefined) return { ...filter, labels: withOrWithout(filter.labels, label) };
  const metadata = new Map(filter.metadata);
  const values = withOrWithout(metadata.get(key) ?? [], value);
  if (values.length > 0) metadata.set(key, values);
  else metadata.delete(key);
  return { ...filter, metadata };
}

/** Show each choice as a button that takes it back, whether or not the gallery has it. */
function showChosen(shown, run) {
  const { filter } = shown;
  const choices = [
    ...filter.labels.map((label) => ({ label })),
    ...[...filter.metadata].flatMap(([key, values]) => values.map((value) => ({ key, value }))),
  ];
  byId("chosen").hidden = choices.length === 0;
  byId("chosen").replaceChildren(...choices.map((choice) => {
    const text = choice.label === undefined ? `${choice.key}: ${choice.value}` : choice.label;
    const button = element("button", "", text);
    button.type = "button";
    button.setAttribute("aria-label", `Remove the filter ${text}`);
    button.addEventListener("click", () => run(changed(shown, choice)));
    const entry = element("li");
    entry.append(button);
    return entry;
  }));
}
