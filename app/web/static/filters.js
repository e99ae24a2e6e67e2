// Filters of results and items: labels and metadata values of the gallery that is shown, with their numbers of items among
// those that pass the other filters; and what results are grouped by.

import { MOST_OF_GROUP, readValue } from "./address.js";
import { call } from "./api.js";
import { byId, element } from "./elements.js";
import { collectionPath, hasItems, namesFile, state } from "./state.js";

// A filter is a list of choices: {label}, {key, value}, either with {not: true}, or {key, from, to}, without null.

const CONFLICT = 409;
const VALUES_LISTED = 50;
const VALUES_SHOWN = 12;
const NUMBERS = { // of a search, by their fields, and what one of it is there
  "group-size": { name: "groupSize", unit: 1 },
  "min-probability": { name: "minProbability", unit: 100 }, // percent, as cards say it
  diversity: { name: "diversity", unit: 1 },
};

const expanded = new Set(); // groups of which all values are shown
let built = null; // {gallery, revision, counted, whole, counts}: values of the whole gallery, and of what passes the filter in `counted`

/**
 * Show what the results can be filtered by, and by what they are; `run` takes the search that is chosen. Returns the numbers of
 * items {passing, all}; null where something else is shown by then.
 */
export async function showFilters(shown, revision, run) {
  const { name, active_version: version } = state.collection;
  const gallery = `${name} ${version} ${shown.target}`;
  const counted = `${revision} ${JSON.stringify(shown.filter)}`;
  if (built?.gallery !== gallery) {
    byId("chosen").classList.remove("keeps-room");
    byId("facets").replaceChildren();
    byId("filters").hidden = true;
    built = null;
    expanded.clear();
  }
  showChosen(shown, run);
  if (built?.counted !== counted) {
    const all = built?.revision === revision ? built.whole : countValues(shown, []);
    const [whole, counts] = await Promise.all([all, countWithin(shown, all)]);
    if (state.shown !== shown) return null;
    const groups = groupsOf(whole, counts, shown);
    replaceFacets(groups);
    byId("filters").hidden = groups.length === 0;
    built = { gallery, revision, counted, whole, counts };
  }
  for (const button of byId("facets").querySelectorAll(".value")) showPressed(button, shown.filter);
  if (byId("group-by")) showGrouping(shown);
  byId("facets").onchange = ({ target }) => {
    if (target.id === "group-by") run({ ...latestOf(shown), groupBy: target.value || null });
    if (target.id === "include-given") run({ ...latestOf(shown), includesGiven: target.checked });
    if (Object.hasOwn(NUMBERS, target.id) && target.reportValidity()) {
      const { name, unit } = NUMBERS[target.id];
      run({ ...latestOf(shown), [name]: Number((Number(target.value) / unit).toPrecision(12)) });
    }
    if (target.type === "range") target.form.requestSubmit();
  };
  byId("facets").onclick = ({ target }) => {
    const button = target.closest(".value");
    if (button) run(changed(shown, choiceOf(button)));
  };
  byId("facets").onsubmit = (event) => {
    event.preventDefault();
    const choice = namedIn(event.target);
    if (choice && !isChosen(latestOf(shown).filter, choice)) run(changed(shown, choice));
  };
  return { passing: built.counts.items, all: built.whole.items };
}

/** Show whether a value is chosen, and whether it is so by what it is not. */
function showPressed(button, filter) {
  const choice = chosenBy(button, filter);
  const { label, value } = choiceOf(button);
  button.setAttribute("aria-pressed", String(choice !== undefined));
  button.classList.toggle("is-not", Boolean(choice?.not));
  button.firstElementChild.textContent = `${choice?.not ? "not " : ""}${label ?? value}`;
}

const NO_VALUES = { labels: [], metadata: {}, ranges: {} };

/** Return the values of a gallery that pass a filter; none of an empty list, and where an untrained one cannot be searched. */
async function countValues({ target, total }, filter) {
  if (total === 0) return NO_VALUES;
  const about = new URLSearchParams({ modality: target, limit: String(VALUES_LISTED), filter: JSON.stringify(conditionsOf(filter)) });
  const answer = await call(`${collectionPath()}/values?${about}`).catch((error) => {
    if (error.status !== CONFLICT || state.collection.active_version !== null) throw error;
  });
  return answer?.json() ?? NO_VALUES;
}

const subjectOf = ({ label, key }) => (label === undefined ? key : null);

/** Count values of what passes all choices: those of labels or a key, which are alternatives, by the others alone. */
async function countWithin(shown, whole) {
  const subjects = [...new Set(shown.filter.map(subjectOf))];
  const count = (filter) => (filter.length === 0 ? whole : countValues(shown, filter));
  const without = (subject) => count(shown.filter.filter((choice) => subjectOf(choice) !== subject));
  const [counts, ...others] = await Promise.all([count(shown.filter), ...subjects.map(without)]);
  const metadata = { __proto__: null, ...counts.metadata };
  let { labels } = counts;
  others.forEach((other, number) => {
    const subject = subjects[number];
    if (subject === null) ({ labels } = other);
    else if (Object.hasOwn(other.metadata, subject)) metadata[subject] = other.metadata[subject];
  });
  return { ...counts, labels, metadata };
}

/** Return the values of a gallery with their numbers among what passes: none of those that nothing there has, which stay in sight. */
function merge(all, counted) {
  const counts = new Map(counted.map(({ value, count }) => [String(value), count]));
  const isWhole = counted.length < VALUES_LISTED; // else those that are missing are only too rare to be listed
  const listed = all.map(({ value }) => ({ value, count: counts.get(String(value)) ?? 0 })).filter(({ count }) => isWhole || count > 0);
  const names = new Set(listed.map(({ value }) => String(value)));
  const values = [...listed, ...counted.filter(({ value }) => !names.has(String(value)))];
  if (values.length > VALUES_SHOWN) return values.sort((left, right) => right.count - left.count);
  return values.every(({ value }) => typeof value === "number") ? values.sort((left, right) => left.value - right.value) : values;
}

/** Show other facets in place of those before; the control that has the focus keeps it. */
function replaceFacets(groups) {
  const nameIn = (control) => control.dataset.choice ?? control.getAttribute("aria-label") ?? control.id;
  const place = byId("facets").contains(document.activeElement) ? nameIn(document.activeElement) : null;
  byId("facets").replaceChildren(...groups);
  const control = [...byId("facets").querySelectorAll("button, input, select")].find((one) => nameIn(one) === place);
  if (place === null || !control) return;
  control.hidden = false;
  control.focus({ preventScroll: true });
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

function groupsOf({ labels, metadata, ranges }, counts, { parts, filter }) {
  const ofKeys = Object.entries(metadata).filter(([key, [first]]) => first && !namesFile(key, first.value));
  const add = (heading, values, counted, choiceFrom) => groupOf(heading, merge(values, counted), choiceFrom, filter);
  const groups = ofKeys.map(([key, values]) => add(key, values, counts.metadata[key] ?? [], (value) => ({ key, value })));
  for (const [key, bounds] of Object.entries(ranges)) {
    let group = groups.find((one) => one.firstElementChild.textContent === key);
    if (!group) groups.push(group = groupOf(key, [], null, filter));
    group.append(rangeOf(key, bounds, filter));
  }
  if (labels.length > 0) groups.unshift(add("Label", labels, counts.labels, (label) => ({ label })));
  if (parts) groups.unshift(grouping([...(labels.length > 0 ? ["label"] : []), ...ofKeys.map(([key]) => key)]));
  return groups;
}

/** Return what says of which label, value or pair the results are a few each, how probable they are at least, how much they differ, and
 * whether items of the query are among them. */
function grouping(names) {
  const [line, choice, size, least, diversity, given] = ["p", "select", "input", "input", "input", "input"].map((name) => element(name));
  line.className = "grouping";
  choice.append(new Option("–", ""), ...names.map((name) => new Option(name, name)), new Option("pair", "pair_id"));
  Object.assign(size, { type: "number", min: 1, max: MOST_OF_GROUP, required: true });
  Object.assign(least, { type: "number", min: 0, max: 100, step: "any", required: true });
  Object.assign(diversity, { type: "number", min: 0, max: 1, step: "any", required: true });
  given.type = "checkbox";
  const controls = [
    [choice, "group-by", "Group by"],
    [size, "group-size", "results of each, at most"],
    [least, "min-probability", "Least probability, %"],
    [diversity, "diversity", "Diversity"],
    [given, "include-given", "Items of the query, too"],
  ];
  for (const [control, id, label] of controls) {
    control.id = id;
    line.append(Object.assign(element("label", "", label), { htmlFor: id }), control);
  }
  return line;
}

/** Show how results are chosen: what they are grouped by may be of nothing that passes the filters. */
function showGrouping(shown) {
  const { groupBy } = shown;
  const [choice, size, least, given] = ["group-by", "group-size", "min-probability", "include-given"].map(byId);
  if (groupBy && ![...choice.options].some(({ value }) => value === groupBy)) choice.add(new Option(groupBy, groupBy));
  choice.value = groupBy ?? "";
  for (const [id, { name, unit }] of Object.entries(NUMBERS)) byId(id).value = Number((unit * shown[name]).toPrecision(12));
  given.checked = shown.includesGiven;
  for (const part of [size, size.labels[0]]) part.hidden = !groupBy;
  for (const part of [least, least.labels[0]]) part.hidden = !shown.hasProbabilities;
  for (const part of [given, given.labels[0]]) part.hidden = !hasItems(shown);
}

function groupOf(heading, values, choiceFrom, filter) {
  const group = element("fieldset");
  const buttons = values.map(({ value, count }) => {
    const button = element("button", "value");
    button.dataset.choice = JSON.stringify(choiceFrom(value));
    button.classList.toggle("is-none", count === 0);
    button.append(element("span"), element("span", "count", String(count)));
    return button;
  });
  group.append(element("legend", "", heading), ...buttons);
  const rest = expanded.has(heading) ? [] : buttons.slice(VALUES_SHOWN).filter((button) => !chosenBy(button, filter));
  if (rest.length > 0) group.append(moreButton(heading, rest));
  if (values.length >= VALUES_LISTED) group.append(otherField(heading, choiceFrom(values[0].value)));
  return group;
}

/** Return a number as exactly as a handle can be moved between two bounds. */
const round = (number, [least, most]) => Number(number.toFixed(Math.min(Math.max(3 - Math.floor(Math.log10(most - least)), 0), 100)));

/** A number as people type it: a field of type "number" reads 12,50 as 1250 where the browser's language has a point. */
const NUMBER = "\\s*[+\\-]?[0-9]*[.,]?[0-9]+(e[+\\-]?[0-9]+)?\\s*";

/** Return a form for a range of numbers: fields, and two handles from the least to the most value of some items. */
function rangeOf(key, bounds, filter) {
  const { from, to } = filter.find((choice) => choice.key === key && choice.value === undefined) ?? {};
  const [form, track] = [element("form", "range"), element("div", "track")];
  form.dataset.key = key;
  const step = bounds.every(Number.isInteger) ? 1 : "any";
  const inputOf = (options, value) => Object.assign(element("input"), { ...options, value });
  const fields = ["From", "Up to"].map((word, end) => {
    const placeholder = `${word.toLowerCase()} ${bounds[end]}`;
    const options = { type: "text", inputMode: "decimal", pattern: NUMBER, title: "a number, such as 12.50 or 12,50", autocomplete: "off" };
    return inputOf({ ariaLabel: `${word}, ${key}`, placeholder, ...options }, [from, to][end] ?? "");
  });
  const handles = ["Least", "Most"].map((word, end) => (
    inputOf({ ariaLabel: `${word} ${key}`, type: "range", min: bounds[0], max: bounds[1], step }, [from, to][end] ?? bounds[end])
  ));
  const [least, most] = handles;
  const show = () => {
    const shares = handles.map(({ valueAsNumber }) => (valueAsNumber - bounds[0]) / (bounds[1] - bounds[0]));
    ["--from", "--to"].forEach((name, end) => track.style.setProperty(name, `${100 * shares[end]}%`));
    least.style.zIndex = shares[0] > 0.5 ? 1 : 0; // of two in one place, the one that can go on
  };
  handles.forEach((handle, end) => handle.addEventListener("input", () => {
    if (least.valueAsNumber > most.valueAsNumber) handle.value = handles[1 - end].value;
    fields[end].value = handle.valueAsNumber === bounds[end] ? "" : step === 1 ? handle.value : round(handle.valueAsNumber, bounds);
    show();
  }));
  show();
  track.append(...handles);
  track.hidden = bounds[0] === bounds[1];
  const apply = Object.assign(element("button", "", "Apply"), { type: "submit", ariaLabel: `Apply the range of ${key}` });
  form.append(track, ...fields, apply);
  return form;
}

/** Return a form that takes a value that is too rare to be listed; `example` is the choice of one that is listed. */
function otherField(heading, example) {
  const form = element("form", "other-value");
  const options = { type: "text", placeholder: "another one", autocomplete: "off", ariaLabel: `Another value of ${heading}` };
  form.dataset.example = JSON.stringify(example);
  form.append(Object.assign(element("input"), options));
  return form;
}

/** Return the choice that a form names; null where there is none. */
function namedIn(form) {
  if (form.className === "range") {
    const [from, to] = [...form.querySelectorAll("[type=text]")].map(({ value }) => (value.trim() === "" ? undefined : Number(value.replace(",", "."))));
    return { key: form.dataset.key, from, to };
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
  more.ariaLabel = `${hidden.length} more values of ${heading}`;
  more.addEventListener("click", () => {
    expanded.add(heading);
    for (const button of hidden) button.hidden = false;
    hidden[0].focus();
    more.remove();
  });
  return more;
}

const choiceOf = (button) => JSON.parse(button.dataset.choice);

const isSame = (choice, other) => choice.label === other.label && choice.key === other.key && choice.value === other.value;

const chosenBy = (button, filter) => filter.find((choice) => isSame(choice, choiceOf(button)));

const isChosen = (filter, choice) => filter.some((other) => isSame(choice, other) && choice.from === other.from && choice.to === other.to);

/** Return what is sought of a gallery, which is ahead of what is shown while a search runs. */
const latestOf = (shown) => (state.sought?.target === shown.target ? state.sought : shown);

function changed(shown, choice, more = []) {
  const latest = latestOf(shown);
  const others = latest.filter.filter((other) => !isSame(choice, other));
  const isNew = !isChosen(latest.filter, choice) && [choice.label, choice.value, choice.from, choice.to].some((one) => one !== undefined);
  return { ...latest, filter: [...others, ...(isNew ? [choice] : more)] };
}

const boundsOf = ({ from, to }) => (from === undefined ? `≤ ${to}` : to === undefined ? `≥ ${from}` : `${from} … ${to}`);

const textOf = ({ label, key, value, not, ...bounds }) =>
  (not ? "not " : "") + (label ?? `${key}${value === undefined ? ` ${boundsOf(bounds)}` : `: ${value}`}`);

/** Show each choice as a button that takes it back, whether or not the gallery has it, beside one that negates it. */
function showChosen(shown, run) {
  byId("chosen").hidden = shown.filter.length === 0;
  if (shown.filter.length > 0) byId("chosen").classList.add("keeps-room"); // when the last one goes
  byId("chosen").replaceChildren(...shown.filter.map((choice) => {
    const entry = element("li");
    const add = (className, text, label, more) => {
      const button = element("button", className, text);
      button.setAttribute("aria-label", `${label} ${textOf(choice)}`);
      button.addEventListener("click", () => run(changed(shown, choice, more)));
      entry.append(button);
    };
    add("", textOf(choice), "Remove the filter");
    if ((choice.label ?? choice.value) !== undefined) add("negate", "≠", "Negate the filter", [{ ...choice, not: !choice.not }]);
    return entry;
  }));
}
