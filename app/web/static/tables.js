// CSV files and workbooks: which columns there are, and the cells of their rows, as of `lrbs ingest table`.

import { Problem } from "./api.js";
import { readWorkbook } from "./workbooks.js";

const DELIMITERS = [";", "\t", ",", "|"]; // of those that fit alike, the first: a comma may be a decimal one
const SAMPLE_ROWS = 20;
const LONGEST_RECORD = 1 << 17; // characters within which a quote has to be closed
const STRAY = "its quotes do not pair: one opens a cell and is not closed, or stands within a quoted cell";

/** Return a text that is in UTF-8 or UTF-16, or else in Windows-1252. */
export const readText = async (blob) => (await decode(blob)).text;

async function decode(blob) {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  const utf16 = { "255,254": "utf-16le", "254,255": "utf-16be" }[bytes.slice(0, 2).join()];
  const unmarked = bytes[0] === 0 ? "utf-16be" : bytes[1] === 0 ? "utf-16le" : null;
  if (utf16 ?? unmarked) return { text: new TextDecoder(utf16 ?? unmarked).decode(bytes), isGuess: false };
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(bytes), isGuess: false };
  } catch {
    return { text: new TextDecoder("windows-1252").decode(bytes), isGuess: true };
  }
}

export const isWorkbook = (name) => /\.xls[xm]$/i.test(name);

/** Return {records, notes} of a table with commas, semicolons, tabs or bars between its cells. */
async function readLines(blob) {
  const { text, isGuess } = await decode(blob);
  const lines = text.split(/(?<=\n)|(?<=\r)(?!\n)/);
  const declared = /^sep=(.)\s*$/i.exec(lines[0] ?? "")?.[1];
  const records = [...recordsOf(lines, declared ? 1 : 0, declared ?? delimiterOf(lines))];
  return { records, notes: [isGuess && "not in UTF-8: read as Windows-1252"] };
}

/**
 * Return {header, rows: [{line, cells} or {line, fault}], notes} of a table. Blank lines are passed over, and so are rows of
 * blank cells, which a note counts.
 */
export async function readTable(name, blob) {
  const { records, notes: ofFile } = isWorkbook(name) ? await readWorkbook(new File([blob], name)) : await readLines(blob);
  const nBefore = titlesBefore(records);
  const [first, ...rows] = records.slice(nBefore);
  const header = (first?.cells ?? []).map((cell) => cell.trim().replace(/\s+/g, " "));
  while (header.length > 0 && header.at(-1) === "") header.pop();
  if (header.length === 0) throw new Problem(`${name} is empty`, "The first line of a table names its columns.", 0);
  for (const [number, column] of header.entries()) if (column === "") header[number] = `Unnamed: ${number}`; // as pandas calls it
  const repeated = header.find((column, number) => header.indexOf(column) !== number);
  if (repeated !== undefined) throw new Problem(`${name} has two columns “${repeated}”`, "Give each a name of its own.", 0);
  const full = rows.filter(({ cells }) => !cells || cells.some((cell) => cell.trim()));
  const stray = rows.filter(({ isStray }) => isStray).map(({ line }) => line);
  const notes = [
    nBefore > 0 && `${nBefore} rows before the header, left out`,
    ...ofFile,
    full.length < rows.length && `${rows.length - full.length} empty rows, left out`,
    stray.length > 0 && `quotes that do not pair, taken as signs of the text: line ${stray.slice(0, 3).join(", ")}`,
  ];
  return { header, rows: full.map((row) => fit(row, header.length)), notes: notes.filter(Boolean) };
}

/** Return how many rows before the header are titles: those of one cell that is no usual name of a column. */
function titlesBefore(records) {
  const isHeader = ({ cells = [] }) => cells.filter((cell) => cell.trim()).length > 1 || cells.some((cell) => /^\s*(id|image|text|label)\s*$/i.test(cell));
  return Math.max(0, records.slice(0, SAMPLE_ROWS).findIndex(isHeader));
}

function fit({ line, cells, fault }, width) {
  if (!cells) return { line, fault };
  const isLong = cells.slice(width).some((cell) => cell.trim());
  return isLong || cells.length < width ? { line, fault: `has ${cells.length} cells, the header ${width}` } : { line, cells: cells.slice(0, width) };
}

function delimiterOf(lines) {
  const fits = DELIMITERS.map((delimiter) => {
    const records = recordsOf(lines, 0, delimiter);
    const rows = Array.from({ length: SAMPLE_ROWS + 1 }, () => records.next().value).filter(Boolean).map(({ cells }) => cells ?? []);
    const width = rows[titlesBefore(rows.map((cells) => ({ cells })))]?.length ?? 0;
    const share = rows.filter((cells) => cells.length === width).length / Math.max(rows.length, 1); // of titles, too
    return (width > 1 ? share : share / 1e3) + width / 1e6; // among those that fit alike, what gives most columns
  });
  return DELIMITERS[fits.indexOf(Math.max(...fits))];
}

/**
 * Yield {line, cells, isStray} or {line, fault} of each record (RFC 4180). One that goes on over lines which do not fit is
 * read again as one line, with its quotes as they are, so that a quote that is not closed swallows no line.
 */
function* recordsOf(lines, start, delimiter) {
  let width = null; // of the header
  for (let number = start; number < lines.length;) {
    const line = number + 1;
    if (!lines[number].replace(/[\r\n]/g, "")) {
      number += 1;
      continue;
    }
    const record = recordAt(lines, number, delimiter);
    const taken = record ? lines.slice(number, record.next) : [];
    const nAlone = taken.length > 1 && width ? taken.filter((each) => literal(each, delimiter).length === width).length : 0;
    if (nAlone === taken.length && nAlone > 1 && width > 1) {
      yield { line, fault: `${STRAY}; it ends in line ${record.next}` };
      number = record.next;
    } else if (record && !(nAlone > 0 && record.cells.length !== width)) {
      if (record.cells.filter((cell) => cell.trim()).length > 1) width ??= record.cells.length;
      yield { line, cells: record.cells };
      number = record.next;
    } else {
      const cells = literal(lines[number], delimiter);
      yield cells.length === width ? { line, cells, isStray: true } : { line, fault: STRAY };
      number += 1;
    }
  }
}

/** Return {cells, next} of the record that begins in a line; null if its quotes do not pair. */
function recordAt(lines, start, delimiter) {
  const cells = [];
  let [cell, isQuoted, isClosed, size] = ["", false, false, 0];
  for (let number = start; number < lines.length; number += 1) {
    const line = lines[number];
    size += line.length;
    if (size > LONGEST_RECORD && number > start) return null;
    for (let place = 0; place < line.length; place += 1) {
      const character = line[place];
      if (isQuoted) {
        if (character !== '"') cell += character;
        else if (line[place + 1] === '"') cell += line[place += 1];
        else [isQuoted, isClosed] = [false, true];
      } else if (character === delimiter) {
        cells.push(cell);
        [cell, isClosed] = ["", false];
      } else if (character !== "\n" && character !== "\r") {
        if (isClosed) return null;
        if (character === '"' && cell.trim() === "") [isQuoted, cell] = [true, ""];
        else cell += character;
      }
    }
    if (!isQuoted) return { cells: [...cells, cell], next: number + 1 };
  }
  return null;
}

/** Return the cells of one line, in which a quote is a sign like any other unless a cell stands in two. */
const literal = (line, delimiter) =>
  line.replace(/[\r\n]+$/, "").split(delimiter).map((cell) => (/^\s*"[^"]*"\s*$/.test(cell) ? cell.trim().slice(1, -1) : cell));
