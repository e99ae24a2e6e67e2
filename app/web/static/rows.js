// Items made of files: pictures, sounds and texts of a folder, or the rows of a table and its pictures. A row is
// {place, read}; `read` returns the item as the API takes it, or throws an Error that says why there is none.

import { encode } from "./base64.js";
import { readText } from "./tables.js";

const ENDINGS = { picture: /\.(jpe?g|png|webp|gif|bmp)$/i, sound: /\.(wav|flac)$/i, text: /\.txt$/i };
const FIELDS = { picture: "image_base64", sound: "sound_base64" };
const SPLITS = new Map([["train", true], ["training", true], ["test", false], ["val", false], ["validation", false]]);
const LONGEST_NAME = 46; // of a name in an id, as of `lrbs ingest`: the longest modality and a digest fit beside it
const NAME = /^[A-Za-z0-9_.:@+-]+$/;

export const isTable = ({ name }) => /\.(csv|tsv)$/i.test(name);
export const KINDS = Object.keys(ENDINGS);

/** Return "picture", "sound" or "text" by the ending of a file; undefined for others. */
export const kindOfFile = ({ name }) => KINDS.find((kind) => ENDINGS[kind].test(name));

/**
 * Make a row of each picture, sound and .txt file: those of one name are partners, and the outermost folder is a label.
 *
 * modalities: {picture, sound, text}, names of the collection's modalities that take them, where it has such
 */
export function rowsOfFiles(files, modalities, hasClassFolders) {
  return files.filter(kindOfFile).map((file) => ({
    place: file.name,
    read: async () => {
      const kind = kindOfFile(file);
      return { ...await contentOf(file, kind), ...factsOf(file.name, modalityFor(kind, modalities), hasClassFolders) };
    },
  }));
}

async function contentOf(file, kind) {
  const blob = await file.open();
  return kind === "text" ? { text: (await readText(blob)).trim() } : { [FIELDS[kind]]: await encode(blob) };
}

function modalityFor(kind, modalities) {
  if (!modalities[kind]) throw new Error(`is a ${kind}, which no modality of this collection takes`);
  return modalities[kind];
}

function factsOf(name, modality, hasClassFolders) {
  const folders = name.split("/").slice(0, -1);
  const train = SPLITS.get(folders[0]?.toLowerCase()) ?? true;
  if (SPLITS.has(folders[0]?.toLowerCase())) folders.shift();
  return {
    id: `${modality}-${identifierOf(name)}`,
    modality,
    labels: hasClassFolders ? folders.slice(0, 1) : [],
    pair_id: identifierOf(name.replace(/\.[^./]+$/, "")),
    metadata: { file: name, split: train ? "train" : "test" },
    train,
  };
}

/** Return a file's name where that can stand in an id; else the end of it, and a digest of all of it. */
function identifierOf(name) {
  const path = name.replaceAll("/", ":");
  if (path.length <= LONGEST_NAME && !name.includes(":") && NAME.test(path)) return path;
  return `${path.replace(/[^A-Za-z0-9_.-]+/g, "_").slice(-LONGEST_NAME)}:${digestOf(name)}`;
}

/** Return the 64-bit FNV-1a digest: that of the platform is missing where a page comes without TLS. */
function digestOf(text) {
  let digest = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text)) digest = BigInt.asUintN(64, (digest ^ BigInt(byte)) * 0x100000001b3n);
  return digest.toString(16).padStart(16, "0");
}

/**
 * Make a row of each picture or sound and each text of a table.
 *
 * columns: {id, file, text, label, split}, names of columns or ""; separator: between labels of a cell, or "";
 * files: among which its pictures and sounds are
 */
export function rowsOfTable(table, { header, rows }, columns, separator, files, modalities) {
  const folder = table.name.slice(0, table.name.lastIndexOf("/") + 1);
  const byName = new Map(files.map((file) => [file.name, file]));
  const used = new Set(Object.values(columns));
  const isTrain = (row) => !columns.split || row[columns.split].trim().toLowerCase() === "train";
  const factsOfRow = (row) => Object.fromEntries(Object.entries(row).filter(([column]) => !used.has(column)));
  return rows.flatMap(({ line, cells }) => {
    const place = `${table.name}, line ${line}`;
    if (cells.length !== header.length) return [refusal(place, `has ${cells.length} cells, the header ${header.length}`)];
    const row = Object.fromEntries(header.map((column, number) => [column, cells[number]]));
    const id = columns.id ? row[columns.id] : `line-${line}`;
    const facts = (modality) => ({
      id: `${modality}-${id}`,
      modality,
      labels: columns.label ? labelsOf(row[columns.label], separator) : [],
      pair_id: id,
      metadata: { ...factsOfRow(row), ...(columns.split && { split: isTrain(row) ? "train" : "test" }) },
      train: isTrain(row),
    });
    const name = columns.file ? row[columns.file].trim() : "";
    const text = columns.text ? row[columns.text].trim() : "";
    if (!name && !text) return [refusal(place, "has neither a file nor a text")];
    const made = [];
    if (name) made.push({ place: `${place}, ${name}`, read: () => readFile(byName.get(folder + name), facts, modalities) });
    if (text) made.push({ place, read: async () => ({ text, ...facts(modalityFor("text", modalities)) }) });
    return made;
  });
}

function labelsOf(cell, separator) {
  const labels = (separator ? cell.split(separator) : [cell]).map((label) => label.trim());
  return [...new Set(labels.filter(Boolean))];
}

async function readFile(file, facts, modalities) {
  if (!file) throw new Error("is not among the chosen files");
  const kind = kindOfFile(file);
  if (!kind || kind === "text") throw new Error("is neither a picture nor a sound");
  return { ...await contentOf(file, kind), ...facts(modalityFor(kind, modalities)) };
}

const refusal = (place, reason) => ({ place, read: async () => { throw new Error(reason); } });
