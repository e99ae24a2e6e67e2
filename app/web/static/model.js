// Which model serves, and its retrain: asked for, followed as it goes, cancelled.

import { Problem, call, readKey } from "./api.js";
import { byId } from "./elements.js";
import { attempt, say, showError } from "./messages.js";
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
  writing: "writing the model",
  done: "done",
};
const METHODS = {
  lrbs: "It compares features.",
  semantic: "It compares class posteriors.",
  squared: "It compares features, learned with the squared loss.",
};
const WAITS = new Set(["queued", "running"]);
const NOT_ALLOWED = new Set([401, 403]);
const ENDS = new Set(["succeeded", "failed", "cancelled"]);

let followed = null;

/** Show what serves in the open collection, and let it be trained. `onChange` is called when that changes. */
export function openModel(onChange) {
  showModel(onChange);
  // Only who has a key may be an administrator.
  if (readKey() !== null) tellMore(state.collection, onChange).catch(showUnlessNotAllowed);
}

function showModel(onChange) {
  followed?.abort();
  followed = null;
  const version = state.collection.active_version;
  byId("model").hidden = false;
  byId("model").classList.toggle("is-untrained", version === null);
  tell(version === null ? "Not trained yet: nothing can be searched until it is." : `Model ${version} serves.`);
  byId("retrain").textContent = version === null ? "Train" : "Retrain";
  byId("retrain").onclick = () => attempt(() => retrain(onChange));
  showRunning(false);
}

/** Tell how the model was learned, and follow a training that was asked for elsewhere. */
async function tellMore(collection, onChange) {
  const { jobs } = await (await call(`${adminPath(collection)}/jobs?limit=1`)).json();
  const isShown = () => state.collection === collection && followed === null;
  if (jobs.length > 0 && WAITS.has(jobs[0].state)) {
    if (isShown()) await followToEnd(collection, jobs[0], onChange);
  } else if (collection.active_version !== null) {
    const report = await reportOf(collection, collection.active_version);
    if (isShown()) tell(serving(collection.active_version, report));
  }
}

function showUnlessNotAllowed(error) {
  if (!(error instanceof Problem && NOT_ALLOWED.has(error.status))) showError(error);
}

const adminPath = (collection) => `/v1/admin/collections/${encodeURIComponent(collection.name)}`;

function tell(text) {
  byId("model-state").textContent = text;
}

function showRunning(isRunning) {
  byId("retrain").hidden = isRunning;
  byId("cancel").hidden = !isRunning;
  byId("cancel").disabled = false;
  byId("model-progress").hidden = !isRunning;
  byId("model-progress").removeAttribute("value");
}

async function retrain(onChange) {
  const collection = state.collection;
  const job = await (await call(`${adminPath(collection)}/retrain`, { method: "POST" })).json();
  if (state.collection === collection) await followToEnd(collection, job, onChange);
}

async function followToEnd(collection, job, onChange) {
  const following = new AbortController();
  followed?.abort();
  followed = following;
  showRunning(true);
  tell("Training: waiting for a worker");
  byId("cancel").onclick = () => attempt(async () => {
    byId("cancel").disabled = true;
    await call(`/v1/admin/jobs/${job.id}/cancel`, { method: "POST" });
  });
  try {
    const last = await follow(job.id, following.signal);
    const before = collection.active_version;
    Object.assign(collection, await (await call(collectionPath(collection))).json());
    if (followed !== following) return;
    if (collection.active_version !== before) onChange();
    showModel(onChange);
    const text = await outcome(collection, last);
    if (state.collection !== collection || followed !== null) return;
    tell(text);
    say(text);
  } finally {
    if (followed === following) showRunning(false);
  }
}

/** Read events until the last one; a stream that was cut off is taken up where it ended. */
async function follow(jobId, signal) {
  let after = 0;
  for (;;) {
    const headers = { "Last-Event-ID": String(after) };
    const response = await call(`/v1/admin/jobs/${jobId}/events`, { headers, signal });
    for await (const event of readEvents(response)) {
      after = event.id;
      if (event.name === "progress") showProgress(event.data);
      else if (ENDS.has(event.data.state)) return event.data;
    }
  }
}

function showProgress({ phase, iteration, objective, gap, rank, candidate, candidates }) {
  const parts = [`Training: ${PHASES[phase] ?? phase}`];
  if (iteration) parts.push(`step ${iteration}`, `objective ${Number(objective).toPrecision(4)}`, `rank ${rank}`);
  if (gap !== null && gap !== undefined) parts.push(`gap ${Number(gap).toExponential(1)}`);
  tell(parts.join(" · "));
  if (candidates) byId("model-progress").value = candidate / candidates;
}

async function outcome(collection, last) {
  if (last.state === "cancelled") return "The training was cancelled; nothing has changed.";
  if (last.state === "failed") return `The training failed: ${last.error}`;
  const version = last.model_version;
  const report = await reportOf(collection, version);
  if (report.not_activated) return `Model ${version} was trained but does not serve: ${report.not_activated}`;
  return serving(version, report);
}

async function reportOf(collection, version) {
  return (await (await call(`${adminPath(collection)}/models/${version}`)).json()).report;
}

const serving = (version, report) => `Model ${version} serves. ${METHODS[report.method] ?? ""}`;
