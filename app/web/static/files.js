// Files that are dropped or chosen: those of folders and ZIP files as well, each as {name, open}.

import { membersOf } from "./archives.js";

const HIDDEN = /(^|\/)(\.|(__macosx|@eadir|\$recycle\.bin)\/|(eh)?thumbs\.db$|desktop\.ini$)/i;

/** Return whether a file is hidden, or one that operating systems put beside those of people. */
export const isHidden = ({ name }) => HIDDEN.test(name);

/** List what a file input holds; the name of a chosen folder is no part of the names. */
export function filesOfInput(input) {
  return unpackAll([...input.files].map((file) => ({ name: withoutRoot(file.webkitRelativePath) || file.name, file })));
}

/** List what was dropped; the name of a folder that was dropped alone is no part of the names. */
export async function filesOfDrop(transfer) {
  // Both are gone after the first pause.
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const files = [...transfer.files];
  if (!entries.some((entry) => entry.isDirectory)) return unpackAll(files.map((file) => ({ name: file.name, file })));
  const found = (await Promise.all(entries.map((entry) => walk(entry)))).flat();
  return unpackAll(entries.length === 1 ? found.map(({ name, file }) => ({ name: withoutRoot(name), file })) : found);
}

const withoutRoot = (name) => name.slice(name.indexOf("/") + 1);

async function walk(entry, folder = "") {
  const name = `${folder}${entry.name}`;
  if (entry.isFile) return [{ name, file: await new Promise((resolve, reject) => entry.file(resolve, reject)) }];
  const reader = entry.createReader();
  const inside = [];
  for (;;) { // a folder is listed in parts
    const part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (part.length === 0) break;
    inside.push(...part);
  }
  const found = [];
  for (const each of inside) found.push(...await walk(each, `${name}/`));
  return found;
}

async function unpackAll(chosen) {
  const found = [];
  for (const { name, file } of chosen) {
    if (/\.zip$/i.test(name)) found.push(...unwrap(await membersOf(file)));
    else found.push({ name, open: async () => file });
  }
  return found.map(({ name, open }) => ({ name: name.normalize("NFC"), open })).sort((left, right) => (left.name < right.name ? -1 : 1));
}

/** Leave out the folder in which everything lies: programs that make ZIP files put one around what they pack. */
function unwrap(members) {
  const roots = new Set(members.filter((member) => !isHidden(member)).map(({ name }) => (name.includes("/") ? name.slice(0, name.indexOf("/")) : "")));
  return roots.size === 1 && !roots.has("") ? members.map((each) => ({ ...each, name: withoutRoot(each.name) })) : members;
}
