// Adding items from files: what is dropped or chosen is shown first, then stored, with what is refused by name.

import { Problem, call } from "./api.js";
import { byId, element } from "./elements.js";
import { filesOfDrop, filesOfInput } from "./files.js";
import { announce, attempt, showError } from "./messages.js";
import { KINDS, isTable, kindOfFile, rowsOfFiles, rowsOfTable } from "./rows.js";
import { collectionPath, kindOf, state } from "./state.js";
import { readTable } from "./tables.js";
import { upload } from "./uploads.js";

const COLUMNS = { // what a table's columns may be for, and how they are often called
  id: ["id", "key", "sku"],
  file: ["image", "picture", "photo", "sound", "audio", "file", "filename", "path"],
  text: ["text", "caption", "description", "title"],
  label: ["label", "labels", "class", "category"],
  split: ["split"],
};
const HEADINGS = { id: "Ids", file: "Pictures or sounds", text: "Texts", label: "Labels", split: "Split (train or test)" };
const SEPARATORS = [["no: a cell is one label", ""], ...["|", ";", ","].map((mark) => [`separated by ${mark}`, mark])];
const RATE_AFTER_SECONDS = 2; // before that, the start says more about the rate than the files do
const MOST_REFUSALS_SHOWN = 200;

let chosen = null; // {files, table: {file, header, rows} or null}
let running = null;

/** Let files be dropped and chosen; `onAdded` is called once items are stored. */
export function offerAdding(onAdded) {
  const zone = byId("drop");
  for (const name of ["dragenter", "dragover"]) {
    zone.addEventListener(name, (event) => {
      event.preventDefault();
      zone.classList.add("is-over");
    });
  }
  for (const name of ["dragleave", "drop"]) zone.addEventListener(name, () => zone.classList.remove("is-over"));
  zone.addEventListener("drop", (event) => take(filesOfDrop(event.dataTransfer)));
  // Dropping beside the zone must not leave the page.
  for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
  for (const id of ["add-files", "add-folder"]) byId(id).addEventListener("change", () => takeFrom(byId(id)));
  byId("add-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (chosen && !running) attempt(() => add(onAdded));
  });
  byId("add-stop").addEventListener("click", () => running?.abort());
  byId("train").addEventListener("click", () => attempt(train));
}

/** Begin anew, for another collection; files chosen before the first one was known are for that one. */
export function showAdding() {
  const { of } = byId("add-form").dataset;
  if (running || of === state.collection.name) return;
  byId("add-form").dataset.of = state.collection.name;
  if (of === undefined && chosen) {
    showChosen();
    return;
  }
  chosen = null;
  for (const id of ["found", "add-options", "add-progress", "add-state", "refused", "add-start", "train"]) byId(id).hidden = true;
}

function takeFrom(input) {
  take(filesOfInput(input));
  input.value = "";
}

function take(reading) {
  if (running) return;
  attempt(async () => {
    const files = await reading;
    const tables = files.filter(isTable);
    if (tables.length > 1) throw new Problem("There are several tables", "Choose one of them, with its files.", 0);
    if (tables.length === 0 && !files.some(kindOfFile)) {
      throw new Problem("There is nothing that can be added", "Pictures end in .jpg, .png, .webp, .gif or .bmp, sounds in .wav or .flac, texts in .txt, tables in .csv.", 0);
    }
    const table = tables.length === 1 ? { file: tables[0], ...await readTable(tables[0].name, await tables[0].open()) } : null;
    chosen = { files, table };
    if (state.collection) showChosen();
  });
}

function showChosen() {
  const { files, table } = chosen;
  const counts = KINDS.filter((kind) => kind !== "text" || !table)
    .map((kind) => ({ kind, count: files.filter((file) => kindOfFile(file) === kind).length }));
  const nOthers = files.length - (table ? 1 : 0) - counts.reduce((sum, { count }) => sum + count, 0);
  const parts = counts.filter(({ count }) => count > 0).map(({ kind, count }) => amount(count, kind));
  if (table) parts.push(`${table.file.name} with ${amount(table.rows.length, "row")}`);
  if (nOthers > 0) parts.push(`${amount(nOthers, "other file")}, left out`);
  byId("found").textContent = parts.join(" · ");
  byId("add-options").replaceChildren(...modalityChoices(), ...(table ? columnChoices(table.header) : [classFolders(files)]));
  byId("add-start").textContent = "Add them";
  for (const id of ["found", "add-options", "add-start"]) byId(id).hidden = false;
  for (const id of ["add-progress", "add-state", "refused", "train"]) byId(id).hidden = true;
  announce(byId("found").textContent);
  byId("add-start").focus();
}

const amount = (number, name) => `${number} ${name}${number === 1 ? "" : "s"}`;

const modalitiesThatTake = (kind) =>
  Object.keys(state.collection.modalities).filter((name) => kindOf(state.collection.modalities[name]) === kind);

/** Ask which modality is meant where both take the same. */
function modalityChoices() {
  return KINDS.filter((kind) => modalitiesThatTake(kind).length > 1).map((kind) =>
    choiceOf(`to-${kind}`, `Each ${kind} is a`, modalitiesThatTake(kind).map((name) => [name, name])));
}

function columnChoices(header) {
  const choices = Object.entries(COLUMNS).map(([use, names]) => {
    const guess = header.find((column) => names.includes(column.toLowerCase())) ?? "";
    return choiceOf(`column-${use}`, HEADINGS[use], [["none", ""], ...header.map((column) => [column, column])], guess);
  });
  return [...choices, choiceOf("label-separator", "Several labels in a cell", SEPARATORS)];
}

function choiceOf(id, heading, options, value) {
  const field = element("p", "field");
  const label = element("label", "", heading);
  const select = element("select");
  select.id = id;
  label.htmlFor = id;
  select.append(...options.map(([text, each]) => new Option(text, each)));
  if (value !== undefined) select.value = value;
  field.append(label, select);
  return field;
}

function classFolders(files) {
  const label = element("label", "check", "");
  const box = element("input");
  box.id = "class-folders";
  box.type = "checkbox";
  box.checked = true;
  label.append(box, "names of folders are labels");
  label.hidden = !files.some(({ name }) => name.includes("/"));
  return label;
}

function rowsChosen() {
  const { files, table } = chosen;
  const modalities = Object.fromEntries(KINDS.map((kind) => [kind, byId(`to-${kind}`)?.value ?? modalitiesThatTake(kind)[0]]));
  if (!table) return rowsOfFiles(files, modalities, byId("class-folders").checked);
  const columns = Object.fromEntries(Object.keys(COLUMNS).map((use) => [use, byId(`column-${use}`).value]));
  if (!columns.file && !columns.text) throw new Problem("No column has files or texts", "Choose one of the table's columns.", 0);
  return rowsOfTable(table.file, table, columns, byId("label-separator").value, files, modalities);
}

async function add(onAdded) {
  const rows = rowsChosen();
  const refused = [];
  const began = performance.now();
  let hasStored = false;
  running = new AbortController();
  showRunning(true);
  showRefused(refused);
  byId("add-progress").value = 0;
  try {
    const counts = await upload(collectionPath(), rows, {
      signal: running.signal,
      report: ({ done, place }) => {
        hasStored = true;
        showProgress(done, rows.length, place, performance.now() - began);
      },
      refuse: (place, reason) => {
        refused.push(`${place}: ${reason}`);
        showRefused(refused);
      },
    });
    showOutcome(`${amount(counts.created, "new item")}, ${counts.updated} changed, ${counts.unchanged} unchanged`, refused.length);
    byId("train").hidden = false;
    chosen = null;
  } catch (error) {
    showOutcome(error.name === "AbortError" ? "Stopped: what was added stays, and is not sent twice" : "", refused.length);
    byId("add-start").textContent = "Go on";
    throw error;
  } finally {
    running = null;
    showRunning(false);
    if (hasStored) onAdded().catch(showError);
  }
  byId("train").focus();
}

function showRunning(isRunning) {
  for (const id of ["add-start", "add-options"]) byId(id).hidden = isRunning || chosen === null;
  byId("add-stop").hidden = !isRunning;
  for (const id of ["add-files", "add-folder"]) byId(id).disabled = isRunning;
  byId("add-progress").hidden = !isRunning;
  byId("add-state").hidden = false;
  if (isRunning) byId("add-stop").focus();
}

function showProgress(done, total, place, milliseconds) {
  const rate = done / (milliseconds / 1000);
  const pace = milliseconds > 1000 * RATE_AFTER_SECONDS ? `${rate.toFixed(0)} a second, ${timeLeft((total - done) / rate)} left` : "";
  byId("add-progress").value = total ? done / total : 1;
  byId("add-state").textContent = [`${done} of ${total}`, place, pace].filter(Boolean).join(" · ");
}

const timeLeft = (seconds) => (seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.ceil(seconds / 60)} min`);

function showOutcome(text, nRefused) {
  const said = [text, nRefused ? `${nRefused} refused` : ""].filter(Boolean).join("; ");
  byId("add-state").textContent = said;
  announce(said);
}

function showRefused(refused) {
  byId("refused").hidden = refused.length === 0;
  byId("refused-title").textContent = `${refused.length} not added`;
  const rest = refused.length - MOST_REFUSALS_SHOWN;
  const shown = rest > 0 ? [...refused.slice(0, MOST_REFUSALS_SHOWN), `and ${rest} more`] : refused;
  byId("refused-list").replaceChildren(...shown.map((reason) => element("li", "", reason)));
}

/** Start a training with its defaults, and go to the page of models, which follows it. */
async function train() {
  const { name } = state.collection;
  await call(`/v1/admin/collections/${encodeURIComponent(name)}/retrain`, { method: "POST" });
  location.assign(`/models?${new URLSearchParams({ collection: name })}`);
}
