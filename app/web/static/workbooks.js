// Excel workbooks (.xlsx, .xlsm): the rows of their first sheet with cells, as of `lrbs ingest table` (ECMA-376, part 1, 18.3).

import { Problem } from "./api.js";
import { membersOf } from "./archives.js";

const DAY = 86400000; // milliseconds
const DATE_FORMATS = [[14, 22], [27, 36], [45, 47], [50, 58]]; // those that every workbook has
const NOT_OF_DATES = /"[^"]*"|\[(?!h+\]|m+\]|s+\])[^\]]*\]|[\\_]./gi; // of a format: texts, colours, conditions, gaps
const ZEROS = /^0+$/;

/** Return {records: [{line, cells}], notes}: cells are texts, dates of ISO 8601, and all rows have as many. */
export async function readWorkbook(file) {
  try {
    const members = new Map((await membersOf(file)).map((member) => [member.name.replace(/^\//, ""), member]));
    const parse = async (name) => (members.has(name) ? parsed(await (await members.get(name).open()).text()) : null);
    const book = await parse("xl/workbook.xml");
    if (!book) throw new Error("its list of sheets is missing");
    const places = placesOf(await parse("xl/_rels/workbook.xml.rels"));
    const is1904 = all(book, "workbookPr").some((node) => ["1", "true"].includes(node.getAttribute("date1904")));
    const context = { strings: stringsOf(await parse("xl/sharedStrings.xml")), formats: formatsOf(await parse("xl/styles.xml")), is1904 };
    const sheets = all(book, "sheet").map((node) => ({ title: node.getAttribute("name"), place: places.get(idOf(node)) }));
    for (const { title, place } of sheets) {
      const sheet = await parse(place);
      const { records, isLacking } = sheet ? recordsOf(sheet, context) : { records: [] };
      if (records.length === 0) continue;
      const others = sheets.filter((each) => each.title !== title).map((each) => `“${each.title}”`);
      const notes = [
        others.length > 0 && `sheet “${title}” is read, not ${others.join(", ")}`,
        isLacking && "formulas without results are empty cells: open the workbook in a spreadsheet, and save it",
      ];
      return { records, notes };
    }
    return { records: [], notes: [] };
  } catch (error) {
    if (error instanceof Problem) throw error;
    throw new Problem(`${file.name} is no readable workbook`, `${error.message}. Save it as .xlsx or CSV in a spreadsheet.`, 0);
  }
}

function parsed(text) {
  const document = new DOMParser().parseFromString(text, "text/xml");
  if (document.querySelector("parsererror")) throw new Error("a part of it is damaged");
  return document;
}

const all = (node, name) => (node ? [...node.getElementsByTagNameNS("*", name)] : []);

const idOf = (node) => [...node.attributes].find(({ localName, prefix }) => localName === "id" && prefix)?.value;

/** Return by relation where each part is. */
function placesOf(relations) {
  return new Map(all(relations, "Relationship").map((node) => {
    const target = node.getAttribute("Target");
    return [node.getAttribute("Id"), target.startsWith("/") ? target.slice(1) : `xl/${target}`];
  }));
}

/** Return a text without its phonetic signs. */
const textOf = (node) => all(node, "t").filter((part) => part.parentNode.localName !== "rPh").map((part) => part.textContent).join("");

const stringsOf = (document) => all(document, "si").map(textOf);

/** Return by style {isDate, isTime, zeros}: what is shown of its numbers. */
function formatsOf(styles) {
  const codes = new Map(all(styles, "numFmt").map((node) => [Number(node.getAttribute("numFmtId")), node.getAttribute("formatCode")]));
  return all(all(styles, "cellXfs")[0], "xf").map((node) => {
    const id = Number(node.getAttribute("numFmtId"));
    const [code] = (codes.get(id) ?? "").split(";"); // the other sections are of negative numbers and zero
    const isDate = DATE_FORMATS.some(([first, last]) => id >= first && id <= last) || /[dmhys]/i.test(code.replace(NOT_OF_DATES, ""));
    return { isDate, zeros: ZEROS.test(code) ? code.length : 0 };
  });
}

function recordsOf(sheet, context) {
  const rows = [];
  let isLacking = false;
  for (const row of all(sheet, "row")) {
    const cells = [];
    for (const node of all(row, "c")) {
      const column = columnOf(node.getAttribute("r")) ?? cells.length;
      cells[column] = cellOf(node, context);
      isLacking ||= cells[column] === "" && all(node, "f").length > 0;
    }
    rows.push({ line: Number(row.getAttribute("r")) || (rows.at(-1)?.line ?? 0) + 1, cells: Array.from(cells, (cell) => cell ?? "") });
  }
  spread(rows, all(sheet, "mergeCell").map((node) => node.getAttribute("ref")));
  const records = rows.filter(({ cells }) => cells.some((cell) => cell.trim()));
  const width = Math.max(0, ...records.map(({ cells }) => cells.findLastIndex((cell) => cell.trim()) + 1));
  return { records: records.map(({ line, cells }) => ({ line, cells: Array.from({ length: width }, (_, n) => cells[n] ?? "") })), isLacking };
}

/** Return the number of a cell's column, from 0; undefined without a reference. */
function columnOf(reference) {
  const letters = /^[A-Z]{1,3}(?![A-Z])/.exec(reference ?? "")?.[0];
  return letters && [...letters].reduce((number, letter) => number * 26 + letter.charCodeAt(0) - 64, 0) - 1;
}

function cellOf(node, { strings, formats, is1904 }) {
  const written = all(node, "v")[0]?.textContent ?? "";
  const type = node.getAttribute("t") ?? "n";
  if (type === "s") return strings[Number(written)] ?? "";
  if (type === "inlineStr") return textOf(node);
  if (type === "b") return written === "1" ? "TRUE" : "FALSE";
  if (type !== "n" || written === "" || !Number.isFinite(Number(written))) return written;
  const { isDate, zeros } = formats[Number(node.getAttribute("s"))] ?? {};
  const number = Number(written);
  if (isDate) return dateOf(number, is1904);
  return zeros > 1 && Number.isInteger(number) ? (number < 0 ? "-" : "") + String(Math.abs(number)).padStart(zeros, "0") : String(number);
}

/** Return the date of a number of days; its time, too, where it is not midnight. */
function dateOf(days, is1904) {
  const first = is1904 ? Date.UTC(1904, 0, 1) : Date.UTC(1899, 11, days < 60 ? 31 : 30); // Excel's 1900 has a 29th of February
  const date = new Date(first + Math.round((days * DAY) / 1000) * 1000);
  if (Number.isNaN(date.getTime())) return String(days);
  const [day, time] = date.toISOString().slice(0, 19).split("T");
  return days < 1 ? time : time === "00:00:00" ? day : `${day}T${time}`;
}

/** Give all rows of merged cells what the first of them shows. */
function spread(rows, references) {
  const byLine = new Map(rows.map((row) => [row.line, row.cells]));
  for (const reference of references) {
    const [first, last] = reference.split(":").map((cell) => Number(/\d+$/.exec(cell)?.[0]));
    const column = columnOf(reference);
    const shown = byLine.get(first)?.[column] ?? "";
    for (const { line, cells } of shown ? rows : []) {
      if (line > first && line <= last && cells.some((cell) => cell.trim())) cells[column] = shown;
    }
  }
}
