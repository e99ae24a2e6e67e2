// Training: its options, confirmation, progress, curves, cancellation and outcome.

import { Problem, call } from "./api.js";
import { addStep, clearCurves, endCurves } from "./curves.js";
import { byId, element } from "./elements.js";
import { announce, attempt, showError } from "./messages.js";
import { describeOptions, readOptions, showOptions } from "./options.js";
import { isBusy, waitAfter } from "./patience.js";
import { adminPath, collectionPath, state } from "./state.js";
import { readEvents } from "./stream.js";

const PHASES = {
  loading: "reading the items",
  "re-encoding": "encoding the stored items again",
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
const PENDING = new Set(["queued", "running"]);
const FINISHED = new Set(["succeeded", "failed", "cancelled"]);

let following = null; // what ends the reading of events
let onPublished = () => {};

/** Show the last training of the open collection, and follow it if it runs; `refresh` is called when one has ended. */
export async function showTraining(refresh) {
  const collection = state.collection;
  following?.abort();
  following = null;
  onPublished = refresh;
  showForm(null);
  clearCurves();
  showRunning(false);
  showPolicy(collection.retraining);
  const { jobs: [job] } = await (await call(`${adminPath(collection)}/jobs?limit=1`)).json();
  if (state.collection !== collection) return;
  if (job && PENDING.has(job.state)) followToEnd(collection, job).catch(showError);
  else showState(job ? describeOutcome(job) : "There was no training yet.");
}

function showPolicy(policy) {
  byId("retraining").textContent = describePolicy(policy);
  const [from, to] = policy.quiet_hours ?? [];
  for (const [name, value] of Object.entries({ ...policy, from, to })) {
    if (byId("policy").elements[name]) byId("policy").elements[name].value = value ?? "";
  }
}

byId("policy").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(storePolicy, byId("policy"));
});

async function storePolicy() {
  const collection = state.collection;
  const given = Object.fromEntries([...new FormData(byId("policy"))].filter(([, value]) => value !== "").map(([name, value]) => [name, Number(value)]));
  const { from, to, ...limits } = given;
  if (from !== undefined && Object.keys(limits).length === 0) throw new Problem("Nothing says after what it is trained", "Enter one of the numbers, or leave the hours empty.", 0);
  if ((from === undefined) !== (to === undefined)) throw new Problem("One of the two hours is missing", "Enter both, or none.", 0);
  if (from !== undefined && from === to) throw new Problem("The two hours are the same", "Enter two different ones, or none.", 0);
  const policy = { ...limits, ...(from === undefined ? {} : { quiet_hours: [from, to] }) };
  const { retraining } = await (await call(`${adminPath(collection)}/retraining`, { method: "PUT", json: policy })).json();
  collection.retraining = retraining;
  if (state.collection !== collection) return;
  showPolicy(retraining);
  announce(byId("retraining").textContent);
}

/** Say after what a collection is trained by itself, as the command line does. */
function describePolicy({ changed_items: items, judgements, hours, quiet_hours: quiet }) {
  const limits = Object.entries({ "changed items": items, judgements, "hours with changes": hours });
  const named = limits.filter(([, limit]) => limit).map(([name, limit]) => `${limit} ${name}`).join(" or ");
  const when = quiet ? `, from ${quiet[0]}:00 to ${quiet[1]}:00 UTC` : "";
  return named ? `Trained by itself after ${named}${when}` : "Trained when somebody asks for it";
}

const showState = (text) => { byId("training-state").textContent = text; };

function showRunning(isRunning) {
  byId("retrain").hidden = isRunning;
  byId("retrain").textContent = state.collection.active_version === null ? "Train" : "Retrain";
  byId("cancel").hidden = !isRunning;
  byId("cancel").disabled = false;
  byId("training-progress").hidden = !isRunning;
  byId("training-progress").removeAttribute("value");
}

/** Show one of the two forms or none, instead of the button. */
function showForm(id) {
  for (const form of ["options", "confirmation"]) byId(form).hidden = form !== id;
  byId("retrain").hidden = id !== null;
}

byId("retrain").addEventListener("click", () => attempt(async () => {
  const { collection } = state;
  await showOptions();
  if (state.collection !== collection) return;
  showForm("options");
  byId("options-title").focus();
}, byId("options")));

byId("options").addEventListener("submit", (event) => {
  event.preventDefault();
  const { name, active_version: serving } = state.collection;
  byId("confirmation").querySelector("p").textContent = serving === null
    ? `Train “${name}”? The new version is live as soon as it is ready.`
    : `Retrain “${name}”? Version ${serving} stays live meanwhile, and afterwards if the new version is worse.`;
  byId("chosen-options").replaceChildren(...describeOptions().map((text) => element("li", "", text)));
  showForm("confirmation");
  byId("confirmation").querySelector(".primary").focus();
});

byId("confirmation").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(retrain);
});

byId("options").querySelector(".cancel").addEventListener("click", closeForms);
byId("confirmation").querySelector(".cancel").addEventListener("click", () => {
  showForm("options");
  byId("options-title").focus();
});
for (const id of ["options", "confirmation"]) {
  byId(id).addEventListener("keydown", (event) => {
    if (event.key === "Escape") closeForms();
  });
}

function closeForms() {
  showForm(null);
  byId("retrain").focus();
}

async function retrain() {
  const collection = state.collection;
  const job = await (await call(`${adminPath(collection)}/retrain`, { json: readOptions() })).json();
  if (state.collection !== collection) return;
  showForm(null);
  followToEnd(collection, job).catch(showError);
  byId("cancel").focus();
  announce("The training was started");
}

async function followToEnd(collection, job) {
  const controller = new AbortController();
  following = controller;
  clearCurves();
  showRunning(true);
  showState("Waiting for a worker");
  byId("cancel").onclick = () => attempt(async () => {
    byId("cancel").disabled = true;
    await call(`v1/admin/jobs/${job.id}/cancel`, { method: "POST" });
  });
  const hadFocus = () => document.activeElement === byId("cancel") || document.activeElement === document.body;
  try {
    const finished = await follow(job.id, controller.signal);
    const current = await (await call(collectionPath(collection))).json();
    if (following !== controller) return;
    Object.assign(collection, current);
    const outcome = describeOutcome(finished);
    endCurves();
    const movesFocus = hadFocus();
    showRunning(false);
    if (movesFocus) byId("retrain").focus();
    showState(outcome);
    await onPublished();
    announce(outcome);
  } finally {
    if (following === controller) {
      following = null;
      showRunning(false);
    }
  }
}

/** Read events until the job ends; a broken stream is resumed after its last event. */
async function follow(jobId, signal) {
  let lastEventId = 0;
  for (;;) {
    const headers = { "Last-Event-ID": String(lastEventId) };
    try {
      const response = await call(`v1/admin/jobs/${jobId}/events`, { headers, signal });
      for await (const event of readEvents(response)) {
        lastEventId = event.id;
        if (event.name === "progress") showProgress(event.data);
        else if (FINISHED.has(event.data.state)) return event.data;
        else if (event.data.reason) showState(`Waiting for another attempt: ${event.data.reason}`);
      }
    } catch (error) {
      const isLost = error instanceof Problem && error.status === 0;
      if (!isLost && !isBusy(error)) throw error;
      showState(`${isLost ? "The connection was lost" : "The service is busy"}; the training goes on. Trying again.`);
      await waitAfter(error, signal);
    }
  }
}

function showProgress(progress) {
  const { phase, percent, seconds_left: secondsLeft, waiting } = progress;
  const name = PHASES[phase] ?? phase;
  const parts = [percent !== undefined && `${Math.floor(percent)} %`, secondsLeft !== undefined && timeLeft(secondsLeft), name, waiting];
  showState(parts.filter(Boolean).join(" · "));
  if (percent !== undefined) byId("training-progress").value = percent / 100;
  addStep(progress, capitalise(name));
}

const capitalise = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Say the estimate in steps so coarse that it does not rise and fall from one event to the next. */
function timeLeft(seconds) {
  if (seconds < 60) return ""; // a step that takes longer than the others would make it wrong
  const minutes = Math.ceil(seconds / 60);
  return `about ${minutes <= 10 ? minutes : 5 * Math.ceil(minutes / 5)} min left`;
}

function describeOutcome({ state: outcome, error, model_version: version }) {
  if (outcome === "cancelled") return "The last training was cancelled; it changed nothing.";
  if (outcome === "failed") return `The last training failed: ${error}`;
  return state.collection.active_version === version
    ? `The last training made version ${version}, which is live.`
    : `The last training made version ${version}.`;
}
