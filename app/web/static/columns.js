// Types of a table's columns, as of `lrbs ingest table`: the whole column decides, and what can be read in two ways is text.

const GAPS = " \\u00a0\\u2009\\u202f";
const GROUPS = `'\\u2019${GAPS}`; // signs between groups of digits, besides points and commas
const CURRENCY = "US\\$|R\\$|[$€£¥₹₩₽₺₴₫₪฿]|zł|Kč|Ft|kr\\.?|Fr\\.?|EUR|USD|GBP|CHF|JPY|CNY|PLN|CZK|SEK|NOK|DKK|INR|CAD|AUD";
const AMOUNT = new RegExp(
  `^([-\\u2212]?)[${GAPS}]*(${CURRENCY})?[${GAPS}]*([-\\u2212]?)([\\d.,](?:[\\d.,${GROUPS}]*\\d)?\\.?(?:[eE][+-]?\\d+)?)[${GAPS}]*(${CURRENCY})?$`,
);
const wholeWith = (marks) => `(?:\\d+|[1-9]\\d{0,2}(?:([${marks}])\\d{3})(?:\\1\\d{3})*)`;
const STYLES = {
  "decimal-comma": { mark: ",", pattern: new RegExp(`^${wholeWith(`.${GROUPS}`)}(?:,\\d+)?$`) },
  "decimal-point": { mark: ".", pattern: new RegExp(`^(?:${wholeWith(`,${GROUPS}`)}(?:\\.\\d*)?|\\.\\d+)(?:[eE][+-]?\\d+)?$`) },
};
const POINT_CURRENCIES = new Set(["$", "US$", "£", "USD", "GBP"]);
const CLOCK = "(?:[T ]+(\\d{1,2}):(\\d\\d)(?::(\\d\\d)(?:\\.\\d+)?)? ?(Z|[+-]\\d\\d:?\\d\\d|[AaPp][Mm])?)?";
const YEAR_FIRST = new RegExp(`^(\\d{4})([-./])(\\d{1,2})\\2(\\d{1,2})${CLOCK}$`);
const YEAR_LAST = new RegExp(`^(\\d{1,2})([-./])(\\d{1,2})\\2(\\d{4})${CLOCK}$`);
const ORDERS = { "year-first": [0, 1, 2], "day-first": [2, 1, 0], "month-first": [2, 0, 1] }; // where year, month and day stand
const ABSENT = new Set(["", "na", "n/a", "nan", "null", "none", "-", "–", "—", "#n/a", "#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!"]);
const CODE = /(?:^|[^a-z])(?:ids?|zip|plz|postal|postcode|postleitzahl|phone|tel|telefon|telephone|mobile|fax|ean|gtin|upc|isbn|asin|sku|barcode|code|nr|nummer|artikelnummer)(?:[^a-z]|$)/;
const [LONGEST_AMOUNT, CODE_DIGITS, MOST_DIGITS, MOST_SLIPS, AMOUNTS_PER_SLIP] = [64, 8, 15, 3, 5];

const isAbsent = (text) => ABSENT.has(text.toLowerCase());

/**
 * Return by column {word: "number", "date" or "text", remark, value}; `value` returns what a cell says, null where it is
 * absent. `usual` is the style of numbers that can be read in two, if the file says it.
 */
export function typesOf(header, rows, usual) {
  const columns = header.map((name, number) => lookAt(name, rows.map(({ cells }) => cells?.[number]?.trim() ?? "")));
  const settled = new Set(columns.filter(({ styles }) => styles.length === 1).map(({ styles }) => styles[0]));
  const decimal = settled.size === 1 ? [...settled][0] : usual;
  return new Map(columns.map((column) => [column.name, decide(column, decimal)]));
}

/** Return what all cells of a column can be. */
function lookAt(name, cells) {
  const present = cells.filter((text) => !isAbsent(text));
  const column = { name, styles: [], orders: [], currencies: [], isWhole: true, differs: false, hasPoints: true };
  if (present.length === 0) return column;
  column.orders = Object.keys(ORDERS).filter((order) => present.every((text) => dateOf(text, order) !== null));
  column.hasPoints = present.every((text) => text.includes("."));
  const amounts = present.map((text) => (text.length > LONGEST_AMOUNT ? null : AMOUNT.exec(text)));
  const isAmount = (amount) => amount && !/^0\d/.test(amount[4]) && !(amount[2] && amount[5])
    && Object.keys(STYLES).some((style) => numberOf(amount[4], style) !== null);
  const odd = new Set(present.filter((_, place) => !isAmount(amounts[place])));
  const numbers = new Set(present.filter((text) => !odd.has(text)));
  if (odd.size > MOST_SLIPS || areCodes(name, [...numbers])) return column;
  const fitting = amounts.filter(isAmount);
  column.currencies = [...new Set(fitting.flatMap((amount) => [amount[2], amount[5]]).filter(Boolean))].sort();
  const styles = Object.keys(STYLES).filter((style) => fitting.every((amount) => numberOf(amount[4], style) !== null));
  if (odd.size > 0) {
    const isLikely = numbers.size >= AMOUNTS_PER_SLIP * odd.size && column.currencies.length < 2 && styles.length > 0;
    const [slip] = odd;
    if (isLikely && ![...odd].some((text) => /^\d+$/.test(text))) column.slip = `“${slip.slice(0, LONGEST_AMOUNT)}” is no number, as most cells are`;
    return column;
  }
  column.styles = styles;
  column.differs = amounts.some((amount) => new Set(column.styles.map((style) => numberOf(amount[4], style))).size > 1);
  return column;
}

function areCodes(name, cells) {
  const lengths = new Set(cells.map((text) => text.length));
  const arePlain = cells.every((text) => /^\d+$/.test(text));
  const longest = Math.max(0, ...lengths);
  return CODE.test(name.toLowerCase()) || (arePlain && ((lengths.size === 1 && longest >= CODE_DIGITS) || longest > MOST_DIGITS));
}

function decide({ styles, orders, currencies, differs, hasPoints, slip }, decimal) {
  const text = (remark = "") => ({ word: "text", remark, value: (cell) => cell.trim() || null });
  if (styles.length > 0) {
    if (currencies.length > 1) return text(`amounts in ${currencies.join(" and ")}`);
    const usual = currencies.length === 1 && POINT_CURRENCIES.has(currencies[0]) ? "decimal-point" : null;
    const style = styles.length === 1 || !differs ? styles.at(-1) : [decimal, usual].find((each) => each && styles.includes(each));
    if (!style) return text("its points or commas may mark thousands or decimals");
    return { word: "number", remark: currencies.join(), value: (cell) => amountOf(cell.trim(), style) };
  }
  if (orders.length > 0) {
    if (orders.includes("day-first") && orders.includes("month-first") && !hasPoints) return text("day or month may come first");
    return { word: "date", remark: "", value: (cell) => (isAbsent(cell.trim()) ? null : dateOf(cell.trim(), orders[0])) };
  }
  return text(slip);
}

function amountOf(text, style) {
  if (isAbsent(text)) return null;
  const [, before, , after, digits] = AMOUNT.exec(text);
  return (before || after ? -1 : 1) * numberOf(digits, style);
}

function numberOf(digits, style) {
  const { mark, pattern } = STYLES[style];
  const match = pattern.exec(digits);
  if (!match) return null;
  const number = Number((match[1] ? digits.replaceAll(match[1], "") : digits).replace(mark, "."));
  return Number.isFinite(number) ? number : null;
}

/** Return a date in ISO 8601, with its time where it has one; null where it is none of this order. */
function dateOf(text, order) {
  const match = (order === "year-first" ? YEAR_FIRST : YEAR_LAST).exec(text);
  if (!match) return null;
  const [year, month, day] = ORDERS[order].map((place) => Number([match[1], match[3], match[4]][place]));
  const date = new Date(Date.UTC(year, month - 1, day));
  if (year < 100 || date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return null;
  const iso = date.toISOString().slice(0, 10);
  if (match[5] === undefined) return iso;
  let [hours, zone] = [Number(match[5]), match[8] ?? ""];
  if (/m/i.test(zone)) {
    if (hours < 1 || hours > 12) return null;
    [hours, zone] = [hours % 12 + (/p/i.test(zone) ? 12 : 0), ""];
  }
  if (hours > 23 || Number(match[6]) > 59 || Number(match[7] ?? 0) > 59) return null;
  const offset = zone === "Z" ? "+00:00" : zone.replace(/^(...)(\d\d)$/, "$1:$2");
  return `${iso}T${String(hours).padStart(2, "0")}:${match[6]}:${match[7] ?? "00"}${offset}`;
}
