// The page of one model version: its quality, plots of it with tables of the same numbers, its worst and best queries.

import { Problem, call } from "./api.js";
import { byId, element } from "./elements.js";
import { announce, attempt, clearError, offerKey } from "./messages.js";
import { isBusy, waitAfter } from "./patience.js";
import { release } from "./pictures.js";
import { WHEN, describeTraining, qualityOf, remarksOn } from "./reports.js";
import { pictureOf } from "./results.js";
import { adminPath, collectionPath, pictureUrlOf, state } from "./state.js";

const IDS_AT_ONCE = 10; // as many as a request may name
const MOST_TRIES = 3; // of a drawing: the tables hold its numbers

const share = (value) => value.toFixed(3);
const dark = matchMedia("(prefers-color-scheme: dark)");

let collections = [];
let shown = null; // the version on the page
let reading = null; // ends what is read for the address before
let drawing = null; // ends the fetching of plots
const drawings = []; // addresses of plots, to be released

offerKey();
byId("collection").addEventListener("change", ({ target }) => open({ collection: target.value }));
byId("version").addEventListener("change", ({ target }) =>
  open({ collection: state.collection.name, version: target.value }));
window.addEventListener("popstate", () => attempt(showAddress));
dark.addEventListener("change", () => {
  if (shown) drawPlots();
});

function open(parameters) {
  history.pushState(null, "", `?${new URLSearchParams(parameters)}`);
  attempt(showAddress);
}

async function loadCollections() {
  ({ collections } = await (await call("v1/collections")).json());
  byId("collection").replaceChildren(...collections.map(({ name }) => new Option(name, name)));
  byId("collection").disabled = collections.length === 0;
  if (collections.length === 0) {
    throw new Problem("There is no collection yet", "Make one on the page “Collection”.", 0);
  }
  await showAddress();
}

const modelPath = (version) => `${adminPath()}/models/${version}`;

/** Show the version that the address names, or the one that serves. */
async function showAddress() {
  const parameters = new URLSearchParams(location.search);
  const name = parameters.get("collection") ?? collections[0].name;
  const collection = collections.find((candidate) => candidate.name === name);
  if (!collection) throw new Problem(`There is no collection “${name}”`, "Choose one of the list.", 404);
  state.collection = collection;
  byId("collection").value = name;
  byId("to-search").href = `./?${new URLSearchParams({ collection: name })}`;
  byId("to-models").href = `models?${new URLSearchParams({ collection: name })}`;
  byId("to-collection").href = `collection?${new URLSearchParams({ collection: name })}`;
  clearError();
  byId("report").hidden = true;
  shown = null;
  drawing?.abort();
  reading?.abort();
  reading = new AbortController();
  const { signal } = reading;
  const { models } = await (await call(`${adminPath()}/models`, { signal })).json();
  if (models.length === 0) {
    throw new Problem(`“${name}” has no model yet`, "Train one, then its report is shown here.", 0);
  }
  const wanted = parameters.get("version") ?? (models.find((model) => model.is_active) ?? models[0]).version;
  byId("version").replaceChildren(...models.map(({ version, is_active: isActive }) =>
    new Option(isActive ? `${version} (live)` : String(version), version)));
  byId("version").value = String(wanted);
  await showVersion(await (await call(modelPath(encodeURIComponent(wanted)), { signal })).json());
}

async function showVersion(model) {
  const { report } = model;
  shown = model;
  byId("title").textContent = `Version ${model.version}${model.is_active ? ", live" : ""}`;
  byId("facts").textContent =
    `${describeTraining(report)} · rank ${report.fit.rank}${dimensionsOf(report.fit)} · trained ${WHEN.format(new Date(model.created_at))}`;
  const refusal = report.not_activated ? [`Not activated after its training: ${report.not_activated}`] : [];
  const remarks = [...refusal, ...remarksOn(report)];
  byId("remarks").replaceChildren(...remarks.map((remark) => element("li", "", remark)));
  byId("remarks").hidden = remarks.length === 0;
  showQuality(report);
  showColumns(report.data);
  showDoubtful(report.data);
  showQueries(report.held_out);
  byId("report").hidden = false;
  document.title = `LRBS: version ${model.version} of ${state.collection.name}`;
  announce(`The report of version ${model.version} is shown`);
  showPlots(report);
  await drawPlots();
}

const dimensionsOf = ({ dimensions }) => {
  const parts = Object.entries(dimensions).map(([term, width]) => `${term} ${width}`);
  return parts.length ? ` (${parts.join(", ")})` : "";
};

const titleOf = (direction) => direction.replaceAll("-to-", " to ");

function showQuality(report) {
  const { directions, rows } = qualityOf(report);
  byId("no-quality").hidden = rows.length > 0 || report.held_out.caution !== null; // which says so, too
  byId("quality").hidden = rows.length === 0;
  fillTable(byId("quality"), "Quality by direction", ["", ...directions],
    rows.map(({ name, meaning, values }) => [headOf(name, meaning), ...values]));
}

const shownAs = (value, format) => (value === null || value === undefined ? "" : format(value));

function showColumns({ columns }) {
  byId("columns-section").hidden = columns.length === 0;
  fillTable(byId("columns"), "Columns of metadata", ["Column", "Weight", "Why"],
    columns.map(({ name, weight, reason }) => [name, weight === null ? "out" : share(weight), reason]));
}

function showDoubtful({ doubtful }) {
  byId("doubtful-section").hidden = doubtful.length === 0;
  fillTable(byId("doubtful"), "Labels worth a look", ["Item", "Facet", "Carries", "Content says", "Probability"],
    doubtful.map(({ id, modality, facet, carried, likely, probability }) =>
      [linkTo(id, modality), facet, carried, likely, share(probability)]));
  const { signal } = reading;
  attempt(() => showContents([...byId("doubtful").querySelectorAll("a")], signal));
}

/** Show before the ids of links what these items are. */
async function showContents(links, signal) {
  for (let start = 0; start < links.length; start += IDS_AT_ONCE) {
    const some = links.slice(start, start + IDS_AT_ONCE);
    const ids = new Set(some.map(({ dataset }) => dataset.id));
    const query = new URLSearchParams([...ids].map((id) => ["item_id", id]));
    const { items } = await (await call(`${collectionPath()}/items?${query}`, { signal })).json();
    const byItem = new Map(items.map((item) => [item.id, item]));
    for (const link of some) {
      const item = byItem.get(link.dataset.id);
      if (item && pictureUrlOf(item, item.modality)) link.prepend(pictureOf(item));
      else if (item?.text) link.prepend(element("span", "", item.text));
    }
  }
}

/** Return a link to the search for what an item of a modality is like. */
function linkTo(id, modality) {
  const link = element("a", "item");
  link.dataset.id = id;
  link.append(element("small", "", id));
  const { name, modalities } = state.collection;
  const to = Object.keys(modalities).find((each) => each !== modality);
  link.href = `./?${new URLSearchParams({ collection: name, from: modality, to, item: id })}`;
  return link;
}

function headOf(name, meaning) {
  const head = element("span", "", name);
  head.append(element("small", "", meaning));
  return head;
}

/** Fill a table; the first column of a row names it. */
function fillTable(table, caption, header, rows) {
  const head = element("tr");
  head.append(...header.map((name) => {
    const cell = element(name ? "th" : "td", "", name);
    if (name) cell.scope = "col";
    return cell;
  }));
  const body = rows.map(([first, ...values]) => {
    const row = element("tr");
    const name = element("th");
    name.scope = "row";
    name.append(first);
    row.append(name, ...values.map((value) => element("td", "", value)));
    return row;
  });
  const parts = [element("caption", "visually-hidden", caption), element("thead"), element("tbody")];
  parts[1].append(head);
  parts[2].append(...body);
  table.replaceChildren(...parts);
}

/** Put up a figure for everything that can be plotted, with a table of its numbers. */
function showPlots({ fit, held_out: heldOut, method }) {
  const figures = [
    ...Object.entries(heldOut.directions).flatMap(([direction, quality]) => curvesOf(direction, quality, method)),
    ...reliabilityOf(heldOut.reliability),
    ...spectrumOf(fit),
    ...convergenceOf(fit),
  ];
  byId("plots").replaceChildren(...figures);
}

function tellLack({ fit, method }) {
  const hasPlots = byId("plots").childElementCount > 0;
  const reason = hasPlots ? lackOf(fit, method) : "The report holds nothing that could be plotted.";
  byId("no-plots").textContent = reason;
  byId("no-plots").hidden = reason === "";
}

/** Say why there are no singular values to be plotted; nothing where there are. */
function lackOf({ singular_values: values, convergence }, method) {
  if (values?.length) return "";
  if (convergence !== null) return "M is zero: it has no singular values to be plotted.";
  return `${method} is no single matrix M: it has no singular values, and its fit no convergence, to be plotted.`;
}

function curvesOf(direction, { curve, rivals, chance }, method) {
  if (!curve) return [];
  const curves = { [method]: curve, ...rivals };
  const text = `A line for each method that was tried, and chance${chance === null ? "" : ` (${share(chance)})`}.`;
  const recall = figureOf("precision-recall", direction, `Precision against recall: ${titleOf(direction)}`, text,
    ["recall", ...Object.keys(curves)],
    curve.recall.map((level, row) => [level.toFixed(2), ...columns(curves, (each) => each.precision[row])]));
  if (curve.scopes.length === 0) return [recall];
  return [recall, figureOf("precision-scope", direction, `Precision of the first results: ${titleOf(direction)}`, text,
    ["results", ...Object.keys(curves)],
    curve.scopes.map((scope, row) => [String(scope), ...columns(curves, (each) => each.precision_at_scope[row])]))];
}

const columns = (curves, valueOf) => Object.values(curves).map((curve) => shownAs(valueOf(curve), share));

function reliabilityOf(reliability) {
  if (!reliability) return [];
  const { probabilities, shares, counts, balanced } = reliability;
  const text = "How many of the held-out pairs that were given a probability really match; a reliable model follows " +
    `the diagonal.${balanced ? " Its probabilities are as if matches were half of all pairs, and so are the shares." : ""}`;
  return [figureOf("reliability", null, "Reliability of the probabilities", text,
    ["estimated", "match", "pairs"],
    probabilities.map((value, row) => [share(value), share(shares[row]), String(counts[row])]))];
}

function spectrumOf({ singular_values: values }) {
  if (!values?.length) return [];
  return [figureOf("singular-values", null, "Singular values of M",
    "How much each dimension of the common space counts; the penalty makes all others zero.",
    ["number", "value"], values.map((value, row) => [String(row + 1), value.toPrecision(4)]))];
}

function convergenceOf({ history: steps }) {
  if (!steps?.length) return [];
  return [figureOf("convergence", null, "Convergence",
    "Objective, relative duality gap (a bound of its distance from the optimum) and rank of M by iteration.",
    ["iteration", "objective", "gap", "rank"],
    steps.map(({ iteration, objective, gap, rank }) =>
      [String(iteration), objective.toPrecision(6), gap === null ? "" : gap.toExponential(1), String(rank)]))];
}

function figureOf(kind, direction, title, text, header, rows) {
  const figure = element("figure");
  figure.dataset.kind = kind;
  if (direction !== null) figure.dataset.direction = direction;
  const caption = element("figcaption");
  caption.append(element("h3", "", title), element("p", "", text));
  const image = element("img");
  image.alt = `${title}. ${text} The numbers are in the table below.`;
  image.hidden = true;
  const details = element("details");
  const box = element("div", "scroll");
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", `Numbers of: ${title}`);
  const table = element("table");
  fillTable(table, title, header, rows);
  box.append(table);
  details.append(element("summary", "", "Numbers"), box);
  figure.append(caption, image, details);
  return figure;
}

/** Fetch the drawings, with the key; where the service cannot draw, say so and open the tables. */
async function drawPlots() {
  const { version, report } = shown;
  tellLack(report);
  const figures = [...byId("plots").children];
  drawing?.abort();
  drawing = new AbortController();
  const { signal } = drawing;
  release(drawings);
  for (const [number, figure] of figures.entries()) {
    try {
      const blob = await fetchPlot(plotPath(version, figure.dataset), signal);
      const image = figure.querySelector("img");
      image.src = URL.createObjectURL(blob);
      image.hidden = false;
      drawings.push(image.src);
    } catch (error) {
      if (error.name === "AbortError") return;
      showTables(figures.slice(number), error);
      return;
    }
  }
}

/** Return a drawing, also from a service that is busy for a while. */
async function fetchPlot(path, signal) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await (await call(path, { signal })).blob();
    } catch (error) {
      if (!isBusy(error) || tries === MOST_TRIES) throw error;
      await waitAfter(error, signal);
    }
  }
}

function plotPath(version, { kind, direction }) {
  const parameters = new URLSearchParams({ theme: dark.matches ? "dark" : "light" });
  if (direction) parameters.set("direction", direction);
  return `${modelPath(version)}/plots/${kind}?${parameters}`;
}

function showTables(figures, error) {
  byId("no-plots").textContent = `Plots cannot be drawn: ${error.detail || error.message}. The tables hold the same numbers.`;
  byId("no-plots").hidden = false;
  for (const figure of figures) {
    figure.querySelector("img").hidden = true;
    figure.querySelector("details").open = true;
  }
}

function showQueries({ directions }) {
  const groups = Object.entries(directions).flatMap(([direction, { worst, best }]) => [
    ...groupOf(`Worst: ${titleOf(direction)}`, direction, worst ?? []),
    ...groupOf(`Best: ${titleOf(direction)}`, direction, best ?? []),
  ]);
  byId("queries").replaceChildren(...groups);
  byId("queries-section").hidden = groups.length === 0;
}

/** Return a group of queries whose items are read when it is opened. */
function groupOf(title, direction, examples) {
  if (examples.length === 0) return [];
  const group = element("details", "group");
  const list = element("ol");
  group.append(element("summary", "", title), list);
  group.addEventListener("toggle", () => attempt(async () => {
    if (!group.open || list.childElementCount > 0) return;
    const rows = await Promise.all(examples.map((example) => exampleOf(direction, example)));
    list.replaceChildren(...rows);
  }));
  return [group];
}

async function exampleOf(direction, { id, average_precision: value, n_relevant: count, hits }) {
  const [query, ...items] = await Promise.all([id, ...hits.map((hit) => hit.id)].map(readItem));
  const row = element("li", "example");
  row.setAttribute("aria-label", `Query ${id} of ${titleOf(direction)}`);
  const list = element("ul");
  list.append(...items.map((item, place) => {
    const entry = element("li");
    entry.append(cardOf(item, hits[place].relevant ? "✓ relevant" : "✗ not relevant", hits[place].relevant ? "hit right" : "hit"));
    return entry;
  }));
  row.append(cardOf(query, `average precision ${share(value)}, ${count} relevant`, "hit"), list);
  return row;
}

/** Return an item; one that is no longer there has nothing but its id. */
async function readItem(id) {
  try {
    return await (await call(`${collectionPath()}/items/${encodeURIComponent(id)}`)).json();
  } catch (error) {
    if (error.status !== 404) throw error;
    return { id, labels: [], isGone: true };
  }
}

function cardOf(item, mark, className) {
  const card = element("div", className);
  card.dataset.id = item.id;
  if (!item.isGone && pictureUrlOf(item, item.modality)) card.append(pictureOf(item));
  else if (item.text) card.append(element("span", "hit-text", item.text));
  const body = element("span", "hit-body");
  const labels = element("span", "labels");
  labels.append(...item.labels.map((label) => element("span", "", label)));
  body.append(labels, element("span", "mark", mark));
  body.append(element("span", "hit-id", item.isGone ? `${item.id}, no longer in the collection` : item.id));
  card.append(body);
  return card;
}

attempt(loadCollections);
