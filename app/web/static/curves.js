// Curves of a fit while it runs: its objective, duality gap and rank over its iterations.

import { byId, element } from "./elements.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, MARGIN] = [300, 90, 4]; // in units of the drawing, which is stretched
const CURVES = [
  { key: "objective", title: "Objective", format: (value) => value.toPrecision(4) },
  { key: "gap", title: "Relative duality gap", format: (value) => value.toExponential(1), isLogarithmic: true },
  { key: "rank", title: "Rank", format: (value) => String(value) },
];

const NO_FIT = { phase: null, heading: "", number: 0, steps: [] };

let fit = NO_FIT;
let isDrawn = true;

/** Forget the curves of another training. */
export function clearCurves() {
  fit = NO_FIT;
  byId("curves").hidden = true;
}

/** Say above the curves that the training they are of has ended. */
export function endCurves() {
  if (fit.steps.length === 0) return;
  fit.heading = `Ended: ${fit.heading.toLowerCase()}`;
  draw();
}

/** Take a step of a training; one that begins another fit begins other curves. */
export function addStep(progress, heading) {
  const { phase, iteration } = progress;
  if (!Number.isFinite(iteration) || phase === "done") return;
  if (phase !== fit.phase || iteration <= fit.steps.at(-1).iteration) {
    fit = { phase, heading, number: phase === fit.phase ? fit.number + 1 : 1, steps: [] };
  }
  fit.steps.push(progress);
  if (isDrawn) requestAnimationFrame(draw);
  isDrawn = false;
}

function draw() {
  isDrawn = true;
  if (fit.steps.length === 0) return;
  byId("curves-title").textContent = fit.number > 1 ? `${fit.heading}, fit ${fit.number}` : fit.heading;
  byId("curves-list").replaceChildren(...CURVES.map(figureOf));
  byId("curves").hidden = false;
}

function figureOf({ key, title, format, isLogarithmic }) {
  const points = fit.steps
    .map((step) => ({ x: step.iteration, value: step[key] }))
    .filter(({ value }) => Number.isFinite(value) && (!isLogarithmic || value > 0));
  const figure = element("figure", "curve");
  const caption = element("figcaption", "", title);
  figure.append(caption);
  if (points.length === 0) {
    caption.append(element("span", "", "not known yet"));
    return figure;
  }
  const last = points.at(-1);
  caption.append(element("span", "", format(last.value)));
  const heights = points.map(({ value }) => (isLogarithmic ? Math.log10(value) : value));
  const drawing = drawingOf(points.map(({ x }) => x), heights);
  drawing.setAttribute("aria-label",
    `${title}: ${format(points[0].value)} at iteration ${points[0].x}, ${format(last.value)} at iteration ${last.x}`);
  figure.append(drawing, element("span", "facts", `iterations ${points[0].x} to ${last.x}${isLogarithmic ? ", logarithmic" : ""}`));
  return figure;
}

function drawingOf(columns, heights) {
  const x = scaleOf(columns, MARGIN, WIDTH - MARGIN);
  const y = scaleOf(heights, HEIGHT - MARGIN, MARGIN);
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  const points = columns.map((column, place) => `${x(column).toFixed(2)},${y(heights[place]).toFixed(2)}`);
  if (points.length === 1) points.push(points[0]); // a line of one point is drawn as a dot
  drawing.append(shape("polyline", { points: points.join(" ") }));
  return drawing;
}

/** Return the map of values onto a line from `start` to `stop`; equal ones lie in its middle. */
function scaleOf(values, start, stop) {
  const least = values.reduce((left, right) => Math.min(left, right));
  const span = values.reduce((left, right) => Math.max(left, right)) - least;
  return (value) => start + (stop - start) * (span === 0 ? 0.5 : (value - least) / span);
}

function shape(name, attributes) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}
