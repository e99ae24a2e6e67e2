// The versions of a collection's model: their quality, which of them is live, and the history of activations.

import { call } from "./api.js";
import { confirmBy } from "./confirmation.js";
import { byId, element } from "./elements.js";
import { announce } from "./messages.js";
import { WHEN, describeTraining, qualityOf, remarksOn } from "./reports.js";
import { adminPath, collectionPath, state } from "./state.js";

const HISTORY_SHOWN = 20;
const CONFLICT = 409;

/** Show the versions of the open collection; return them, newest first. */
export async function showVersions() {
  const collection = state.collection;
  const admin = adminPath(collection);
  const [{ models }, { activations }] = await Promise.all([
    readJson(`${admin}/models`),
    readJson(`${admin}/activations?limit=${HISTORY_SHOWN}`),
  ]);
  if (state.collection !== collection) return models;
  const active = models.find((model) => model.is_active);
  byId("versions-title").textContent = titleOf(models, active);
  byId("version-list").replaceChildren(...models.map((model) => cardOf(model, active)));
  showHistory(activations);
  offerRollBack(active, activations[0]?.previous ?? null);
  return models;
}

const readJson = async (path) => (await call(path)).json();

function titleOf(models, active) {
  if (models.length === 0) return "Not trained yet";
  const number = models.length === 1 ? "One version" : `${models.length} versions`;
  return active ? `${number}; version ${active.version} is live` : `${number}; none is live`;
}

function cardOf(model, active) {
  const card = byId("version").content.firstElementChild.cloneNode(true);
  const { version, report } = model;
  card.dataset.version = version;
  card.classList.toggle("is-active", model.is_active);
  card.querySelector("h3").textContent = `Version ${version}`;
  card.querySelector(".badge").hidden = !model.is_active;
  card.querySelector(".facts").textContent = `${WHEN.format(new Date(model.created_at))} · ${describeTraining(report)}`;
  if (report.not_activated) {
    card.querySelector(".refusal").textContent = `Not activated after its training: ${report.not_activated}. Activate it all the same if you know better.`;
    card.querySelector(".refusal").hidden = false;
  }
  showQuality(card.querySelector(".quality"), model);
  card.querySelector(".remarks").replaceChildren(...remarksOn(report).map((text) => element("li", "", text)));
  const details = card.querySelector(".details");
  details.href = `model?${new URLSearchParams({ collection: state.collection.name, version })}`;
  details.setAttribute("aria-label", `Plots and queries of version ${version}`);
  offerActivation(card, model, active);
  return card;
}

function showQuality(table, { version, report }) {
  const { directions, rows } = qualityOf(report);
  table.querySelector("caption").textContent = `Quality of version ${version} on held-out items`;
  if (rows.length === 0) {
    const text = "Too few items could be held out to measure its quality.";
    table.replaceWith(...report.held_out.caution ? [] : [element("p", "facts", text)]); // which says so, too
    return;
  }
  const heads = ["Held out", ...directions].map((name) => scoped("col", name));
  table.tHead.rows[0].replaceChildren(...heads);
  table.tBodies[0].replaceChildren(...rows.map(({ name, meaning, values }) => {
    const row = element("tr");
    const head = scoped("row", name);
    head.title = meaning;
    row.append(head, ...values.map((value) => element("td", "", value)));
    return row;
  }));
}

function scoped(scope, text) {
  const cell = element("th", "", text);
  cell.scope = scope;
  return cell;
}

function offerActivation(card, model, active) {
  const button = card.querySelector(".activate");
  button.hidden = model.is_active;
  button.setAttribute("aria-label", `Activate version ${model.version}`);
  const form = card.querySelector("form");
  form.querySelector("p").textContent = active
    ? `Activate version ${model.version}? It answers searches in the place of version ${active.version}.`
    : `Activate version ${model.version}? It answers searches from then on.`;
  confirmBy(button, form, (values) =>
    change(`${adminPath()}/models/${model.version}/activate`, active, values));
}

/** Activate a version or roll back, unless another version is live than the one that is shown. */
async function change(path, active, values) {
  const reason = values.get("reason").trim();
  const request = { json: { expected_version: active?.version ?? 0, ...(reason && { reason }) } };
  let model = null;
  try {
    model = await (await call(path, request)).json();
  } catch (error) {
    if (error.status === CONFLICT) await showVersions(); // of others, meanwhile
    throw error;
  }
  Object.assign(state.collection, await readJson(collectionPath()));
  await showVersions();
  byId("versions").focus();
  announce(`Version ${model.version} is live`);
}

let rollBack = () => {}; // what the form confirms
confirmBy(byId("roll-back"), byId("roll-back-form"), (values) => rollBack(values));

function offerRollBack(active, previous) {
  const button = byId("roll-back");
  const form = byId("roll-back-form");
  form.hidden = true;
  button.hidden = previous === null;
  button.textContent = `Roll back to version ${previous}`;
  form.querySelector("p").textContent =
    `Roll back? Version ${previous} answers searches in the place of version ${active?.version}.`;
  rollBack = (values) => change(`${adminPath()}/rollback`, active, values);
}

function showHistory(activations) {
  byId("history").hidden = activations.length === 0;
  byId("activations").replaceChildren(...activations.map(({ version, at, by, reason }) => {
    const entry = element("li");
    const when = element("time", "", WHEN.format(new Date(at)));
    when.dateTime = at;
    entry.append(when, ` version ${version}, by ${by}${reason ? `: ${reason}` : ""}`);
    return entry;
  }));
}
