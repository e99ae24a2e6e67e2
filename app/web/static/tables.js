// CSV files: which columns there are, and the cells of their rows.

import { Problem } from "./api.js";

const DELIMITERS = [",", ";", "\t", "|"];

/** Return a text that is in UTF-8 or UTF-16, or else in Windows-1252. */
export async function readText(blob) {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  const utf16 = { "255,254": "utf-16le", "254,255": "utf-16be" }[bytes.slice(0, 2).join()];
  if (utf16) return new TextDecoder(utf16).decode(bytes);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

/** Return {header, rows: [{line, cells}]} of a table with commas, semicolons, tabs or bars between its cells. */
export async function readTable(name, blob) {
  const text = await readText(blob);
  const rows = cut(text, delimiterOf(text));
  const header = rows.shift()?.cells.map((cell) => cell.trim()) ?? [];
  if (header.length === 0) throw new Problem(`${name} is empty`, "The first line of a table names its columns.", 0);
  const repeated = header.find((column, number) => header.indexOf(column) !== number);
  if (repeated !== undefined) throw new Problem(`${name} has two columns “${repeated}”`, "Give each a name of its own.", 0);
  return { header, rows };
}

function delimiterOf(text) {
  const first = text.slice(0, text.search(/[\r\n]|$/));
  const counts = DELIMITERS.map((delimiter) => first.split(delimiter).length);
  return DELIMITERS[counts.indexOf(Math.max(...counts))];
}

/** Cut a table into rows of cells (RFC 4180); blank lines are passed over. */
function cut(text, delimiter) {
  const rows = [];
  let [cells, cell, line, first, isQuoted] = [[], "", 1, 1, false];
  const endRow = () => {
    cells.push(cell);
    if (cells.length > 1 || cell.trim()) rows.push({ line: first, cells });
    [cells, cell, first] = [[], "", line];
  };
  for (let place = 0; place < text.length; place += 1) {
    const character = text[place];
    if (character === "\n") line += 1;
    if (isQuoted) {
      if (character !== '"') cell += character;
      else if (text[place + 1] === '"') cell += text[place += 1];
      else isQuoted = false;
    } else if (character === '"' && cell === "") isQuoted = true;
    else if (character === delimiter) cells.push(cell), cell = "";
    else if (character === "\n") endRow();
    else if (character !== "\r") cell += character;
  }
  if (cell || cells.length > 0) endRow();
  return rows;
}
