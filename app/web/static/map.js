// A map of both galleries: what lies close together is similar in what the model has learned to compare.

import { call } from "./api.js";
import { byId, element } from "./elements.js";
import { attempt } from "./messages.js";
import { collectionPath, plural, state } from "./state.js";

const SVG = "http://www.w3.org/2000/svg";
const ITEMS_PER_GALLERY = 300; // more points than these cover each other
const COLOURS = 8; // as many as can be told apart
const RADIUS = 0.014;

let drawn = null; // collection, model and revision that the map is of

/** Let the map be opened; it is asked for only then. */
export function offerMap() {
  byId("map").addEventListener("toggle", () => {
    if (byId("map").open) attempt(draw);
  });
}

/** Show that the open collection has a map, if it has items of both modalities. */
export function showMap({ total, others }) {
  byId("map").hidden = total === 0 || others.length === 0;
  if (byId("map").open && !byId("map").hidden) attempt(draw);
}

async function draw() {
  const { collection } = state;
  const about = `${collection.name} ${collection.active_version} ${collection.revision}`;
  if (drawn === about) return;
  const { points, shares } = await (await call(`${collectionPath()}/map?limit=${ITEMS_PER_GALLERY}`)).json();
  if (state.collection !== collection) return;
  const all = fitted(Object.keys(collection.modalities).flatMap((modality, side) =>
    (points[modality] ?? []).map((point) => ({ ...point, modality, side }))));
  const labels = mostFrequent(all);
  byId("map-drawing").replaceChildren(...all.map((point) => markOf(point, labels)));
  const share = shares.reduce((sum, each) => sum + each, 0);
  byId("map-title").textContent = `${all.length} items in the common space; the two axes show ${(100 * share).toFixed(0)} % of what differs`;
  byId("map-legend").replaceChildren(...legendOf(Object.keys(collection.modalities), labels, all));
  byId("map-rows").replaceChildren(...all.map(rowOf));
  drawn = about;
}

/** Move and scale points so that they fill the drawing, which reaches from -1 to 1 in both directions. */
function fitted(points) {
  const rangeOf = (values) => [Math.min(...values), Math.max(...values)];
  const [[left, right], [bottom, top]] = [rangeOf(points.map(({ x }) => x)), rangeOf(points.map(({ y }) => y))];
  const scale = 2 / (Math.max(right - left, top - bottom) || 1);
  return points.map((point) => ({
    ...point, x: scale * (point.x - (left + right) / 2), y: scale * (point.y - (bottom + top) / 2),
  }));
}

function mostFrequent(points) {
  const counts = new Map();
  for (const { labels: [first] } of points) if (first !== undefined) counts.set(first, (counts.get(first) ?? 0) + 1);
  return [...counts].sort((left, right) => right[1] - left[1]).slice(0, COLOURS).map(([label]) => label);
}

/** Return the address of a search by an item, for the other modality. */
function searchBy({ id, modality }) {
  const to = Object.keys(state.collection.modalities).find((name) => name !== modality);
  return `./?${new URLSearchParams({ collection: state.collection.name, from: modality, to, item: id })}`;
}

function svg(name, attributes) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

/** Return the mark of a point, which is a link: a disc for the first modality, a square for the second. */
function markOf(point, labels) {
  // The table has the same links for the keyboard and for screen readers.
  const link = svg("a", { href: searchBy(point), tabindex: "-1" });
  const title = svg("title", {});
  title.textContent = [point.id, ...point.labels].join(" · ");
  link.append(title, shapeOf(point.side, point.x, -point.y, colourOf(point.labels[0], labels)));
  return link;
}

function shapeOf(side, x, y, colour) {
  const look = { class: `mark ${colour}` };
  if (side === 0) return svg("circle", { cx: x, cy: y, r: RADIUS, ...look });
  return svg("rect", { x: x - RADIUS, y: y - RADIUS, width: 2 * RADIUS, height: 2 * RADIUS, ...look });
}

const colourOf = (label, labels) => (labels.includes(label) ? `colour-${labels.indexOf(label)}` : "colour-other");

function legendOf(modalities, labels, points) {
  const sides = modalities.map((modality, side) => legendEntry(plural(modality), side, "colour-other"));
  const colours = labels.map((label) => legendEntry(label, null, colourOf(label, labels)));
  const hasOthers = points.some(({ labels: [first] }) => first !== undefined && !labels.includes(first));
  return [...sides, ...colours, ...(hasOthers ? [legendEntry("other labels", null, "colour-other")] : [])];
}

function legendEntry(text, side, colour) {
  const entry = element("li");
  const key = svg("svg", { viewBox: "-0.02 -0.02 0.04 0.04", width: 14, height: 14, "aria-hidden": "true" });
  key.append(shapeOf(side ?? 0, 0, 0, colour));
  entry.append(key, element("span", "", text));
  return entry;
}

function rowOf(point) {
  const row = element("tr");
  const item = element("th");
  item.scope = "row";
  const link = element("a", "", point.id);
  link.href = searchBy(point);
  item.append(link);
  const cells = [point.modality, point.labels.join(", "), point.x.toFixed(2), point.y.toFixed(2)];
  row.append(item, ...cells.map((text) => element("td", "", text)));
  return row;
}
