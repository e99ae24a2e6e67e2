// The active model, and its retraining: start, progress, cancellation.

import { Problem, call, readKey } from "./api.js";
import { byId } from "./elements.js";
import { announce, attempt, showError } from "./messages.js";
import { readOptions } from "./options.js";
import { collectionPath, state } from "./state.js";
import { readEvents } from "./stream.js";

const PHASES = {
  loading: "reading the items",
  encoding: "reading the items",
  choosing: "choosing scaling and penalty",
  fitting: "learning from all items",
  indexing: "building the index",
  judging: "judging the new model",
  "judging posteriors": "learning class posteriors, to compare methods",
  "fitting posteriors": "learning class posteriors from all items",
  "judging terms": "learning facets and pairs, to judge them",
  "fitting terms": "learning facets and pairs from all items",
  writing: "writing the model",
  done: "done",
};
const METHODS = {
  lrbs: "It compares features.",
  semantic: "It compares class posteriors.",
  squared: "It compares features, learned with the squared loss.",
  composite: "It compares what labels, facets and pairs have taught.",
};
const PENDING = new Set(["queued", "running"]);
const UNAUTHORISED = new Set([401, 403]);
const FINISHED = new Set(["succeeded", "failed", "cancelled"]);

let activeFollow = null;

/** Show the open collection's model and let it be trained; call `onChange` when another model is activated. */
export function openModel(onChange) {
  showModel(onChange);
  // Without a key there are no administrator's rights.
  if (readKey() !== null) showDetails(state.collection, onChange).catch(showUnlessUnauthorised);
}

function showModel(onChange) {
  activeFollow?.abort();
  activeFollow = null;
  const version = state.collection.active_version;
  byId("model").hidden = false;
  byId("model").classList.toggle("is-untrained", version === null);
  showState(version === null ? "Not trained yet: nothing can be searched until it is." : `Model ${version} is live.`);
  byId("retrain").textContent = version === null ? "Train" : "Retrain";
  byId("retrain").onclick = () => attempt(() => retrain(onChange));
  showRunning(false);
}

/** Show how the model was trained, and follow a training that was started elsewhere. */
async function showDetails(collection, onChange) {
  const { jobs } = await (await call(`${adminPath(collection)}/jobs?limit=1`)).json();
  const isShown = () => state.collection === collection && activeFollow === null;
  if (jobs.length > 0 && PENDING.has(jobs[0].state)) {
    if (isShown()) await followToEnd(collection, jobs[0], onChange);
  } else if (collection.active_version !== null) {
    const report = await readReport(collection, collection.active_version);
    if (isShown()) showState(describeModel(collection.active_version, report));
  }
}

function showUnlessUnauthorised(error) {
  if (!(error instanceof Problem && UNAUTHORISED.has(error.status))) showError(error);
}

const adminPath = (collection) => `/v1/admin/collections/${encodeURIComponent(collection.name)}`;

function showState(text) {
  byId("model-state").textContent = text;
}

function showRunning(isRunning) {
  byId("retrain").hidden = isRunning;
  byId("options").hidden = isRunning;
  byId("cancel").hidden = !isRunning;
  byId("cancel").disabled = false;
  byId("model-progress").hidden = !isRunning;
  byId("model-progress").removeAttribute("value");
}

async function retrain(onChange) {
  const collection = state.collection;
  const job = await (await call(`${adminPath(collection)}/retrain`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(readOptions()),
  })).json();
  if (state.collection === collection) await followToEnd(collection, job, onChange);
}

async function followToEnd(collection, job, onChange) {
  const controller = new AbortController();
  activeFollow?.abort();
  activeFollow = controller;
  showRunning(true);
  showState("Training: waiting for a worker");
  byId("cancel").onclick = () => attempt(async () => {
    byId("cancel").disabled = true;
    await call(`/v1/admin/jobs/${job.id}/cancel`, { method: "POST" });
  });
  try {
    const finished = await follow(job.id, controller.signal);
    const previousVersion = collection.active_version;
    Object.assign(collection, await (await call(collectionPath(collection))).json());
    if (activeFollow !== controller) return;
    if (collection.active_version !== previousVersion) onChange();
    showModel(onChange);
    const text = await describeOutcome(collection, finished);
    if (state.collection !== collection || activeFollow !== null) return;
    showState(text);
    announce(text);
  } finally {
    if (activeFollow === controller) showRunning(false);
  }
}

/** Read events until the job ends; a broken stream is resumed after its last event. */
async function follow(jobId, signal) {
  let lastEventId = 0;
  for (;;) {
    const headers = { "Last-Event-ID": String(lastEventId) };
    const response = await call(`/v1/admin/jobs/${jobId}/events`, { headers, signal });
    for await (const event of readEvents(response)) {
      lastEventId = event.id;
      if (event.name === "progress") showProgress(event.data);
      else if (FINISHED.has(event.data.state)) return event.data;
    }
  }
}

function showProgress({ phase, iteration, objective, gap, rank, percent: done, seconds_left: secondsLeft }) {
  const parts = [`Training: ${PHASES[phase] ?? phase}`];
  if (iteration) parts.push(`step ${iteration}`, `objective ${Number(objective).toPrecision(4)}`, `rank ${rank}`);
  if (gap !== null && gap !== undefined) parts.push(`gap ${Number(gap).toExponential(1)}`);
  if (done !== undefined) parts.push(`${Math.floor(done)} %`);
  if (secondsLeft !== undefined) parts.push(timeLeft(secondsLeft));
  showState(parts.join(" · "));
  if (done !== undefined) byId("model-progress").value = done / 100;
}

/** Say the estimate in steps so coarse that it does not rise and fall from one event to the next. */
function timeLeft(seconds) {
  if (seconds < 60) return "less than a minute left";
  const minutes = Math.ceil(seconds / 60);
  return `about ${minutes <= 10 ? minutes : 5 * Math.ceil(minutes / 5)} min left`;
}

async function describeOutcome(collection, finished) {
  if (finished.state === "cancelled") return "The training was cancelled; nothing has changed.";
  if (finished.state === "failed") return `The training failed: ${finished.error}`;
  const version = finished.model_version;
  const report = await readReport(collection, version);
  if (report.not_activated) return `Model ${version} was trained but is not live: ${report.not_activated}`;
  return describeModel(version, report);
}

async function readReport(collection, version) {
  return (await (await call(`${adminPath(collection)}/models/${version}`)).json()).report;
}

const describeModel = (version, report) =>
  [`Model ${version} is live.`, METHODS[report.method], describeQuality(report), ...describeIndexes(report.index)]
    .filter(Boolean).join(" ");

/** Say how large galleries are searched; others are searched exactly. */
const describeIndexes = ({ recall_at_10: recalls, choices }) =>
  Object.entries(choices).map(([modality, { spec, reason }]) => (spec.kind === "exact"
    ? `${modality} is searched exactly: ${reason}.`
    : `${modality} is searched by inverted lists, which found ${tenths(recalls[modality])} of the best ten.`));

const tenths = (share) => (typeof share === "number" ? `${(100 * share).toFixed(1)} %` : "most");

const FEW_RELEVANT = "(below 100 % where fewer than ten items are relevant)";

const percent = (share) => `${(100 * share).toFixed(0)} %`;

/** Say what held-out items show of facets and partners; nothing where each item has but one label. */
function describeQuality({ data, held_out: heldOut }) {
  if (Object.keys(data.facets).length < 2 && data.n_pairs === 0) return "";
  return Object.entries(heldOut.directions).map(([direction, quality]) => {
    const shares = Object.entries(quality.precision_at_10).map(([name, share]) => `${name} ${percent(share)}`);
    const figures = shares.length > 0 ? [`right in the first ten: ${shares.join(", ")} ${FEW_RELEVANT}`] : [];
    if (quality.recall_at_10 !== null) figures.push(`partner among them: ${percent(quality.recall_at_10)}`);
    return `${direction.replaceAll("-to-", " to ")}: ${figures.join("; ")}.`;
  }).join(" ");
}
