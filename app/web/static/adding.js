// Adding items from files: what is dropped or chosen is shown first, then stored, with what is refused by name.

import { Problem, call } from "./api.js";
import { typesOf } from "./columns.js";
import { byId, element } from "./elements.js";
import { filesOfDrop, filesOfInput, isHidden } from "./files.js";
import { announce, attempt, showError } from "./messages.js";
import { KINDS, isLabels, isOtherSheet, isTable, isTar, isTrainingSplit, kindOfFile, lastStepOf, layoutOf, numbersRows, rowsOfFiles, rowsOfTable } from "./rows.js";
import { collectionPath, kindOf, state } from "./state.js";
import { isWorkbook, readTable } from "./tables.js";
import { upload } from "./uploads.js";

const COLUMNS = { // what a table's columns may be for, and how they are often called, the surest first
  id: "id key sku uid uuid identifier artikelnummer artikelnr artnr artikel article item product referenz référence referencia código codice nr no number asin ean code unnamed:0",
  file: "image picture photo img pic sound audio file filename path bild bilder foto datei dateiname fichier imagen archivo immagine zdjęcie",
  text: "text caption description title name beschreibung titel bezeichnung titre descripción título nombre descrizione titolo nome nom opis beschrijving",
  label: "label labels class category kind type kategorie klasse warengruppe catégorie categoría categoria rubrik tags",
  split: "split",
};
const [GUESS_ROWS, PROSE_CHARACTERS, LEAST_DIFFERENT] = [50, 15, 0.8]; // a few rows may come twice
const HEADINGS = { id: "Ids", file: "Pictures or sounds", text: "Texts", label: "Labels", split: "Split (train or test)" };
const SEPARATORS = [["no: a cell is one label", ""], ...["|", ";", ","].map((mark) => [`separated by ${mark}`, mark])];
const RATE_AFTER_SECONDS = 2; // before that, the start says more about the rate than the files do
const [EXAMPLES, MOST_REFUSALS_SHOWN] = [3, 200];

let chosen = null; // {files, layouts, nHidden, table: {file, header, rows} or null}
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
    if (chosen && !running) attempt(() => add(onAdded), byId("add-form"));
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
    const all = await reading;
    const files = all.filter((file) => !isHidden(file));
    const tables = files.filter(isTable);
    if (tables.length > 1) throw new Problem("There are several tables", "Choose one of them, with its files.", 0);
    if (tables.length === 0 && files.some(isOtherSheet) && !files.some(kindOfFile)) {
      throw new Problem(`${files.find(isOtherSheet).name} is a spreadsheet of another kind`, "Save it as .xlsx or CSV and add that.", 0);
    }
    if (tables.length === 0 && files.some(isTar) && !files.some(kindOfFile)) {
      throw new Problem(`${files.find(isTar).name} is a tar file`, "Bring it in by the command lrbs ingest tar, or unpack it and choose the folder.", 0);
    }
    if (tables.length === 0 && !files.some(kindOfFile)) {
      throw new Problem("There is nothing that can be added", "Pictures end in .jpg, .png, .webp, .gif, .bmp, .tif, .avif or .heic, sounds in .wav or .flac, texts in .txt, tables in .csv or .xlsx.", 0);
    }
    const table = tables.length === 1 ? { file: tables[0], ...await readTable(tables[0].name, await tables[0].open()) } : null;
    if (table) table.types = typesOf(table.header, table.rows, isWorkbook(table.file.name) ? "decimal-point" : null);
    const names = files.filter(kindOfFile).map(({ name }) => name);
    const layouts = [layoutOf(names), layoutOf(names, true)].filter(({ splits }) => splits.size > 0);
    chosen = { files, layouts, nHidden: all.length - files.length, table };
    if (state.collection) showChosen();
  });
}

function showChosen() {
  const { files, layouts, nHidden, table } = chosen;
  const counts = KINDS.filter((kind) => kind !== "text" || !table)
    .map((kind) => ({ kind, count: files.filter((file) => kindOfFile(file) === kind).length }));
  const others = files.filter((file) => file !== table?.file && !counts.some(({ kind }) => kind === kindOfFile(file)) && (table || !isLabels(file)));
  const parts = counts.filter(({ count }) => count > 0).map(({ kind, count }) => amount(count, kind));
  if (table) parts.push(`${table.file.name} with ${amount(table.rows.length, "row")}`);
  if (others.length > 0) parts.push(`${amount(others.length, "other file")} (${endingsOf(others)}), left out`);
  if (nHidden > 0) parts.push(`${amount(nHidden, "hidden file")}, left out`);
  parts.push(...table?.notes ?? []);
  byId("found").textContent = parts.join(" · ");
  byId("add-options").replaceChildren(...modalityChoices(), ...(table ? columnChoices(table) : [splitFolders(layouts), classFolders(files)]));
  byId("add-start").textContent = "Add them";
  for (const id of ["found", "add-options", "add-start"]) byId(id).hidden = false;
  for (const id of ["add-progress", "add-state", "refused", "train"]) byId(id).hidden = true;
  announce(byId("found").textContent);
  byId("add-start").focus();
}

const endingsOf = (files) => [...new Set(files.map(({ name }) => /\.[^./]*$/.exec(name)?.[0].toLowerCase() ?? "without ending"))].join(", ");

const amount = (number, name) => `${number} ${name}${number === 1 ? "" : "s"}`;

const modalitiesThatTake = (kind) =>
  Object.keys(state.collection.modalities).filter((name) => kindOf(state.collection.modalities[name]) === kind);

/** Ask which modality is meant where both take the same. */
function modalityChoices() {
  return KINDS.filter((kind) => modalitiesThatTake(kind).length > 1).map((kind) =>
    choiceOf(`to-${kind}`, `Each ${kind} is a`, modalitiesThatTake(kind).map((name) => [name, name])));
}

function columnChoices({ header, rows, types }) {
  const guesses = guessColumns(header, rows);
  const choices = Object.keys(COLUMNS).map((use) =>
    choiceOf(`column-${use}`, HEADINGS[use], [["none", ""], ...header.map((column) => [column, column])], guesses[use] ?? ""));
  const others = [...types].filter(([column]) => !Object.values(guesses).includes(column));
  const named = (word) => others.filter(([, type]) => type.word === word).map(([column, { remark }]) => (remark ? `${column} (${remark})` : column));
  const parts = [["numbers", named("number")], ["dates", named("date")]].filter(([, columns]) => columns.length > 0);
  const unclear = others.filter(([, { word, remark }]) => word === "text" && remark).map(([column, { remark }]) => `${column} is text: ${remark}`);
  return [
    ...choices,
    choiceOf("label-separator", "Several labels in a cell", SEPARATORS),
    checkOf("typed-columns", parts.map(([word, columns]) => `${word}: ${columns.join(", ")}`).join("; "), parts.length > 0),
    ...unclear.map((said) => element("p", "hint", said)),
  ];
}

/** Return by use the column that is probably for it: as it is called, or as what stands in it says. */
function guessColumns(header, rows) {
  const sample = (column) => rows.slice(0, GUESS_ROWS).map(({ cells }) => cells?.[header.indexOf(column)]?.trim() ?? "").filter(Boolean);
  const holdsFiles = (cells) => cells.filter((cell) => ["picture", "sound"].includes(kindOfFile({ name: cell }))).length * 2 > cells.length;
  const tests = {
    file: holdsFiles,
    id: (cells, column) => !holdsFiles(cells) && !numbersRows(column, cells) && (column.toLowerCase() === "id" || new Set(cells).size >= LEAST_DIFFERENT * cells.length),
    text: (cells) => !holdsFiles(cells),
    label: () => true,
    split: (cells) => cells.length > 0 && cells.every((cell) => isTrainingSplit(cell) !== null),
  };
  const holdsProse = (cells) => cells.length > 0 && cells.filter((cell) => cell.includes(" ")).join("").length > PROSE_CHARACTERS * cells.length;
  const guesses = {};
  for (const [use, fits] of Object.entries(tests)) {
    const names = COLUMNS[use].split(" ");
    const rank = (column) => Math.min(...column.toLowerCase().split(/[^\p{L}\p{N}:]|_/u).concat(column.toLowerCase().replace(/ /g, "")).map((word) => names.indexOf(word)).filter((place) => place >= 0));
    const free = header.filter((column) => !Object.values(guesses).includes(column));
    const called = free.filter((column) => Number.isFinite(rank(column)) && fits(sample(column), column)).sort((left, right) => rank(left) - rank(right));
    const likely = { file: holdsFiles, text: (cells) => holdsProse(cells) && !holdsFiles(cells) }[use];
    const guess = called[0] ?? (likely && free.find((column) => likely(sample(column))));
    if (guess) guesses[use] = guess;
  }
  return guesses;
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

function checkOf(id, text, isOffered, isChecked = true) {
  const label = element("label", "check", "");
  const box = element("input");
  box.id = id;
  box.type = "checkbox";
  box.checked = isChecked;
  label.append(box, text);
  label.hidden = !isOffered;
  return label;
}

const classFolders = (files) => checkOf("class-folders", "names of folders are labels", files.some(({ name }) => name.includes("/")));

/** Say which folders are learned from and which are held out; layouts: the one that is likely, and that with all that are so named. */
function splitFolders(layouts) {
  const splits = [...layouts[0]?.splits ?? []];
  const named = (wanted) => [...new Set(splits.filter(([, isTraining]) => isTraining === wanted).map(([folder]) => lastStepOf(folder)))];
  const parts = [[named(true), "learned from"], [named(false), "held out"]].filter(([names]) => names.length > 0);
  const said = parts.map(([names, use]) => `${names.join(", ")}: ${use}`).join("; ");
  return checkOf("split-folders", `folders are splits (${said})`, splits.length > 0, layouts.length > 1);
}

function rowsChosen() {
  const { files, table } = chosen;
  const modalities = Object.fromEntries(KINDS.map((kind) => [kind, byId(`to-${kind}`)?.value ?? modalitiesThatTake(kind)[0]]));
  if (!table) {
    const layout = (byId("split-folders").checked && chosen.layouts[0]) || { splits: new Map(), labelLevel: 0 };
    return rowsOfFiles(files, modalities, layout, byId("class-folders").checked);
  }
  const columns = Object.fromEntries(Object.keys(COLUMNS).map((use) => [use, byId(`column-${use}`).value]));
  if (!columns.file && !columns.text && !columns.id) throw new Problem("No column has files, texts or ids", "Choose one of the table's columns.", 0);
  const types = byId("typed-columns").checked ? table.types : new Map(table.header.map((column) => [column, AS_TEXT]));
  return rowsOfTable(table.file, table, { columns, types, separator: byId("label-separator").value, files, modalities, findStored });
}

const AS_TEXT = { value: (cell) => cell.trim() };

/** Return the ids of the stored items that a row of a table is, by the id of the row. */
async function findStored(id) {
  const ids = [id, ...Object.keys(state.collection.modalities).map((modality) => `${modality}-${id}`)];
  const { items } = await (await call(`${collectionPath()}/items?${new URLSearchParams(ids.map((each) => ["item_id", each]))}`)).json();
  return items.map((item) => item.id);
}

async function add(onAdded) {
  const rows = rowsChosen();
  const refused = { count: 0, groups: new Map() };
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
      refuse: (place, reason, kind = reason.split(", got ")[0]) => {
        const group = refused.groups.get(kind) ?? { size: 0, first: [] };
        refused.count += 1;
        group.size += 1;
        if (group.size <= EXAMPLES) group.first.push({ place, reason });
        showRefused({ ...refused, groups: refused.groups.set(kind, group) });
      },
    });
    const copies = counts.copies > 0 ? `; ${counts.copies} of the new ones have the picture of one of another id` : "";
    showOutcome(`${amount(counts.created, "new item")}, ${counts.updated} changed, ${counts.unchanged} unchanged${copies}`, refused.count);
    byId("train").hidden = false;
    chosen = null;
  } catch (error) {
    showOutcome(error.name === "AbortError" ? "Stopped: what was added stays, and is not sent twice" : "", refused.count);
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

/** List what was refused; where many have the same reason, their number and the first of them. */
function showRefused({ count, groups }) {
  byId("refused").hidden = count === 0;
  byId("refused-title").textContent = `${count} not added`;
  const shown = [...groups].flatMap(([kind, { size, first }]) => {
    if (size <= EXAMPLES) return first.map(({ place, reason }) => `${place}: ${reason}`);
    return [`${size} rows: ${kind}: ${first.map(({ place }) => place).join("; ")} and ${size - EXAMPLES} more`];
  });
  byId("refused-list").replaceChildren(...shown.slice(0, MOST_REFUSALS_SHOWN).map((said) => element("li", "", said)));
}

/** Start a training with its defaults, and go to the page of models, which follows it. */
async function train() {
  const { name } = state.collection;
  await call(`v1/admin/collections/${encodeURIComponent(name)}/retrain`, { method: "POST" });
  location.assign(`models?${new URLSearchParams({ collection: name })}`);
}
