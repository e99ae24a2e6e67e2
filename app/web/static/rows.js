// Items made of files: pictures, sounds and texts of a folder, or the rows of a table and its pictures. A row is
// {place, read}; `read` returns the item as the API takes it, or throws an Error that says why there is none.

import { encode } from "./base64.js";
import { sha256 } from "./digest.js";
import { isWorkbook, readText } from "./tables.js";

const ENDINGS = { picture: /\.(apng|avif|bmp|gif|heic|heif|hif|j2[ck]|jfif|jp2|jp[cefgx]|jpeg|mpo|p[bgnp]m|pcx|pfm|png|psd|sgi|tga|tiff?|webp)$/i, sound: /\.(wav|flac)$/i, text: /\.txt$/i };
const FIELDS = { picture: "image_base64", sound: "sound_base64" };
const MORE = "(?:(?:dat(?:a|en)|set|split|image|img|picture|photo|file|sample|item|dir|folder|v|full|mini|small)s?)*";
const TRAINING = splitNamed("train(?:ing|val)?|trn|learn(?:ing)?");
const HELD_OUT = splitNamed("test(?:ing)?|tst|eval(?:uation)?|h[eo]ldout|val(?:id(?:ation|ate)?)?|dev(?:el(?:opment)?)?");
const LONGEST_NAME = 46; // of a name in an id, as of `lrbs ingest`: the longest modality and a digest fit beside it
const DIGEST_CHARACTERS = 16; // likewise
const LONGEST_ID = 63; // the longest modality fits beside it
const NAME = /^[A-Za-z0-9_.:@+-]+$/;

export const isTable = ({ name }) => isWorkbook(name) || /\.(csv|tsv)$/i.test(name);
export const isOtherSheet = ({ name }) => /\.(xlsb?|ods|numbers)$/i.test(name);
export const isTar = ({ name }) => /\.(tar(\.[a-z0-9]+)?|t[bgx]z2?)$/i.test(name);
export const isLabels = ({ name }) => /\.cls$/i.test(name);
export const KINDS = Object.keys(ENDINGS);

/** Return "picture", "sound" or "text" by the ending of a file; undefined for others. */
export const kindOfFile = ({ name }) => KINDS.find((kind) => ENDINGS[kind].test(name));

function splitNamed(names) {
  return new RegExp(`^${MORE}(?:(?:${names})s?${MORE})+$`);
}

/** Return whether the name of a split says that it is learned from, as of `lrbs ingest`; null if it is no such name. */
export function isTrainingSplit(name) {
  const letters = name.normalize("NFKC").toLowerCase().replace(/[^\p{L}]/gu, "");
  if (TRAINING.test(letters)) return true;
  return HELD_OUT.test(letters) ? false : null;
}

/**
 * Return what the folders around files mean, as `lrbs ingest folder` takes them: {splits: Map of folders to whether they
 * are learned from, labelLevel}. Where some are named as splits, all beside them are or both kinds are there.
 *
 * areSplits: whether all folders are splits that are named as such, or none is; undefined: as described
 */
export function layoutOf(names, areSplits) {
  const siblings = new Map();
  for (const folder of new Set(names.flatMap(foldersOf))) {
    const parent = folder.slice(0, Math.max(folder.lastIndexOf("/"), 0));
    if (!siblings.has(parent)) siblings.set(parent, []);
    siblings.get(parent).push([folder, isTrainingSplit(lastStepOf(folder))]);
  }
  const splits = new Map();
  for (const named of siblings.values()) {
    const answers = new Set(named.map(([, isTraining]) => isTraining));
    const isLevel = !answers.has(null) || (answers.has(true) && answers.has(false));
    if (!(areSplits ?? isLevel)) continue;
    for (const [folder, isTraining] of named) if (isTraining !== null) splits.set(folder, isTraining);
  }
  return { splits, labelLevel: splits.size > 0 ? labelLevelOf(names, splits) : 0 };
}

export const lastStepOf = (name) => name.slice(name.lastIndexOf("/") + 1);

/** Return the folders around a file, the outermost first. */
function foldersOf(name) {
  const steps = name.split("/").slice(0, -1);
  return steps.map((_, number) => steps.slice(0, number + 1).join("/"));
}

const wayTo = (name, splits) => foldersOf(name).filter((folder) => !splits.has(folder)).map(lastStepOf);

function labelLevelOf(names, splits) {
  const ways = names.map((name) => wayTo(name, splits));
  const depth = Math.min(...new Set(ways.map((way) => way.length)));
  for (let level = 0; level < depth; level += 1) if (new Set(ways.map((way) => way[level])).size > 1) return level;
  return 0;
}

/**
 * Make a row of each picture, sound and .txt file: those of one name are partners. Labels are the lines of the .cls file
 * of this name, as in a tar file that was unpacked, or else the outermost folder.
 *
 * modalities: {picture, sound, text}, names of the collection's modalities that take them, where it has such;
 * layout: as `layoutOf` returned it
 */
export function rowsOfFiles(files, modalities, layout, hasClassFolders) {
  const pairs = pairsOf(files.filter(kindOfFile));
  const labelFiles = new Map(files.filter(isLabels).map((file) => [stemOf(file), file]));
  return files.filter(kindOfFile).map((file) => ({
    place: file.name,
    read: async () => {
      const kind = kindOfFile(file);
      const facts = factsOf(file.name, modalityFor(kind, modalities), layout, hasClassFolders);
      const labelFile = labelFiles.get(stemOf(file));
      if (labelFile) facts.labels = (await readText(await labelFile.open())).split("\n").map((label) => label.trim()).filter(Boolean);
      return { ...await contentOf(await file.open(), kind), ...facts, pair_id: identifierOf(pairs.get(stemOf(file))) };
    },
  }));
}

const stemOf = ({ name }) => name.replace(/\.[^./]+$/, "");

/** Return the name of the pair of each name without ending: the same where these differ in case alone, of files of different kinds. */
function pairsOf(files) {
  const groups = new Map();
  for (const file of files) {
    const folded = stemOf(file).toLowerCase().trim();
    if (!groups.has(folded)) groups.set(folded, []);
    groups.get(folded).push(file);
  }
  return new Map([...groups.values()].flatMap((group) => {
    const areSame = new Set(group.map(kindOfFile)).size === group.length;
    return group.map((file) => [stemOf(file), stemOf(areSame ? group[0] : file)]);
  }));
}

async function contentOf(blob, kind) {
  return kind === "text" ? { text: (await readText(blob)).trim() } : { [FIELDS[kind]]: await encode(blob) };
}

function modalityFor(kind, modalities) {
  if (!modalities[kind]) throw new Error(`is a ${kind}, which no modality of this collection takes`);
  return modalities[kind];
}

function factsOf(name, modality, { splits, labelLevel }, hasClassFolders) {
  const train = foldersOf(name).every((folder) => splits.get(folder) ?? true);
  return {
    id: `${modality}-${identifierOf(name)}`,
    modality,
    labels: hasClassFolders ? wayTo(name, splits).slice(labelLevel, labelLevel + 1) : [],
    metadata: { source: name, ...(splits.size > 0 && { split: train ? "train" : "test" }) },
    train,
  };
}

/** Return a file's name where that can stand in an id; else the end of it, and a digest of all of it. */
function identifierOf(name) {
  const path = name.replaceAll("/", ":");
  if (path.length <= LONGEST_NAME && !name.includes(":") && NAME.test(path)) return path;
  return `${path.replace(/[^A-Za-z0-9_.-]+/g, "_").slice(-LONGEST_NAME)}:${sha256(name).slice(0, DIGEST_CHARACTERS)}`;
}

/**
 * Make a row of each picture or sound and each text of a table; one without either changes what is stored of its id. A
 * row without an id is one of all that it holds, by which its id is made, as by `lrbs ingest table`.
 *
 * columns: {id, file, text, label, split}, names of columns or ""; types: what the others are, as of `typesOf`; separator:
 * between labels of a cell, or ""; files: among which its pictures and sounds are; findStored: returns the ids of the items
 * that a row's id has
 */
export function rowsOfTable(table, { header, rows }, { columns, types, separator, files, modalities, findStored }) {
  const find = finderOf(files, table.name.slice(0, table.name.lastIndexOf("/") + 1));
  const isIndex = (column) => numbersRows(column, rows.map(({ cells }) => cells?.[header.indexOf(column)] ?? ""));
  const used = new Set([...Object.values(columns), ...header.filter(isIndex)]);
  const isTrain = (row) => !columns.split || isTrainingSplit(row[columns.split]) === true;
  const factsOfRow = (row) => Object.fromEntries(header.filter((column) => !used.has(column) && row[column].trim())
    .map((column) => [column, types.get(column).value(row[column])]).filter(([, value]) => value !== null));
  const counts = new Map(); // of rows that hold the same
  return rows.flatMap(({ line, cells, fault }) => {
    const place = `${table.name}, line ${line}`;
    if (fault) return [refusal(place, fault)];
    const row = Object.fromEntries(header.map((column, number) => [column, cells[number]]));
    const written = columns.id ? row[columns.id].trim() : null;
    if (written === "") return [refusal(place, `column “${columns.id}” is empty`)];
    const named = written !== null && (NAME.test(written) && written.length <= LONGEST_ID ? written : identifierOf(written));
    const labels = columns.label ? labelsOf(row[columns.label], separator) : [];
    let id = named; // without a column of ids, set by the first part that is there
    const itemOf = ({ modality, source, content }) => ({
      ...content,
      id: `${modality}-${id}`,
      modality,
      labels,
      pair_id: id,
      metadata: {
        ...(source && { source }),
        ...(columns.split && { split: isTrain(row) ? "train" : "test" }),
        ...(written && named !== written && { [columns.id]: written }),
        ...factsOfRow(row),
      },
      train: isTrain(row),
    });
    const name = columns.file ? row[columns.file].trim() : "";
    const text = columns.text ? row[columns.text].trim() : "";
    if (!name && !text) {
      if (named) return [{ place, read: () => changesOf(named, labels, factsOfRow(row), findStored) }];
      return [refusal(place, "has neither a picture nor a text, and no id that names an item to change")];
    }
    const readPicture = async () => {
      try {
        const { blob, ...part } = await readFile(find(name), name, modalities);
        id ||= rowName(sha256(new Uint8Array(await blob.arrayBuffer())), text, counts);
        return itemOf(part);
      } catch (error) {
        throw text && !named ? new Error(`${error.message}; ${TEXT_ALONE}`) : error;
      }
    };
    const readWords = () => {
      id ||= rowName("", text, counts);
      return itemOf({ modality: modalityFor("text", modalities), content: { text } });
    };
    return [name && { place: `${place}, ${name}`, read: readPicture }, text && { place, read: readWords }].filter(Boolean);
  });
}

const TEXT_ALONE = "its text is added alone: delete it if the row comes again with its file, or give rows ids";
const OF_NUMBERS = /^(#|n[or°º]\.?|number|nummer|row|index|pos\.?|unnamed: 0)$/i;

/** Return whether a column numbers rows, as a person or pandas does: another table has the same. */
export function numbersRows(column, cells) {
  const numbers = cells.filter((cell) => cell.trim()).map((cell) => (/^\s*\d+\s*$/.test(cell) ? Number(cell) : NaN));
  const areRunning = numbers[0] <= 1 && numbers.every((number, place) => place === 0 || number > numbers[place - 1]);
  return OF_NUMBERS.test(column) && (column.startsWith("Unnamed") ? !numbers.includes(NaN) : areRunning);
}

const BLANK_TO_ONE = /[\x1c-\x1f\x85\ufeff]/g; // to trim, or to Python's strip, alone

/** Return an id for a row by what it holds, whatever its number; `counts` is of the rows before that hold the same. */
function rowName(digest, text, counts) {
  const held = sha256(`${digest}\0${text.replace(BLANK_TO_ONE, "").trim().normalize("NFC")}`).slice(0, DIGEST_CHARACTERS);
  counts.set(held, (counts.get(held) ?? 0) + 1);
  return counts.get(held) === 1 ? held : sha256(`${held}\0${counts.get(held)}`).slice(0, DIGEST_CHARACTERS);
}

async function changesOf(id, labels, metadata, findStored) {
  const stored = await findStored(id);
  if (stored.length === 0) throw new Error("has neither a file nor a text, and there is no item of its id to change");
  return stored.map((item) => ({ id: item, ...(labels.length > 0 && { labels }), metadata }));
}

function labelsOf(cell, separator) {
  const labels = (separator ? cell.split(separator) : [cell]).map((label) => label.trim());
  return [...new Set(labels.filter(Boolean))];
}

const UNSEEN = /[\u200b-\u200f\u202a-\u202e\u2060\ufeff]/g; // what is copied with a name, as from Windows
const ADDRESS = /^([a-z][a-z0-9+.-]+:\/\/|data:|www\.)/i;
const stepsOf = (name) => name.split(/[/\\]/).map((step) => step.normalize("NFC").trim().toLowerCase()).filter((step) => step !== "" && step !== ".");

/** Return what finds the file that a table means by a name: backslashes, capitals and folders that are not here make no difference. */
function finderOf(files, folder) {
  const byName = new Map(files.map((file) => [file.name, file]));
  const byLastStep = new Map();
  for (const file of files) {
    const steps = stepsOf(file.name);
    if (!byLastStep.has(steps.at(-1))) byLastStep.set(steps.at(-1), []);
    byLastStep.get(steps.at(-1)).push({ file, steps });
  }
  return (written) => {
    const name = written.replace(UNSEEN, "");
    if (ADDRESS.test(name)) throw new Error("is an address, and nothing is fetched: download the files, and choose them with the table");
    const exact = byName.get(folder + name.normalize("NFC"));
    if (exact) return exact;
    const steps = stepsOf(name);
    const nCommon = (each) => {
      const count = Math.min(each.length, steps.length);
      return each.slice(-count).join("/") === steps.slice(-count).join("/") ? count : 0;
    };
    const candidates = (byLastStep.get(steps.at(-1)) ?? []).map((each) => ({ ...each, count: nCommon(each.steps) }));
    const fitting = candidates.filter(({ count }) => count > 0 || /^([a-z]:|[/\\])/i.test(name));
    const most = Math.max(0, ...fitting.map(({ count }) => count));
    const nearest = fitting.filter(({ count }) => count === most);
    const whole = nearest.filter((each) => each.steps.length === steps.length);
    const [first, ...others] = whole.length > 0 ? whole : nearest;
    if (!first) throw new Error("is not among the chosen files");
    if (others.length > 0) throw new Error("may be one of several of the chosen files: name its folder, too");
    return first.file;
  };
}

async function readFile(file, source, modalities) {
  const kind = kindOfFile(file);
  if (!kind || kind === "text") throw new Error("is neither a picture nor a sound");
  const modality = modalityFor(kind, modalities);
  const blob = await file.open();
  return { modality, source, blob, content: await contentOf(blob, kind) };
}

const refusal = (place, reason) => ({ place, read: async () => { throw new Error(reason); } });
