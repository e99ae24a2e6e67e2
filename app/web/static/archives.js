// ZIP files: their members are read one by one, when they are needed, and never all at once.

import { Problem } from "./api.js";

const [END, ENTRY, LOCAL] = [0x06054b50, 0x02014b50, 0x04034b50]; // how records of the format begin
const [END_BYTES, ENTRY_BYTES, LOCAL_BYTES] = [22, 46, 30];
const LONGEST_COMMENT = 0xffff;
const [STORED, DEFLATED] = [0, 8];
const [ENCRYPTED, UTF8] = [1, 1 << 11];
const MOST_DIRECTORY_BYTES = 32 << 20; // of 65 534 members with names of 400 characters
export const MOST_MEMBER_BYTES = 64 << 20; // beyond any picture that a server takes by default, and no burden for a browser

/** List the members of a ZIP file as {name, open}; `open` returns a Blob or throws an Error that says why not. */
export async function membersOf(file) {
  const tail = await viewOf(file, Math.max(file.size - END_BYTES - LONGEST_COMMENT, 0), file.size);
  let end = tail.byteLength - END_BYTES;
  while (end >= 0 && tail.getUint32(end, true) !== END) end -= 1;
  if (end < 0) throw new Problem(`${file.name} is no ZIP file, or damaged`, "", 0);
  const [count, size, start] = [tail.getUint16(end + 10, true), tail.getUint32(end + 12, true), tail.getUint32(end + 16, true)];
  if (count === 0xffff || start === 0xffffffff || size > MOST_DIRECTORY_BYTES) {
    throw new Problem(`${file.name} is too large for a browser`, "Unpack it, and choose the folder.", 0);
  }
  return readDirectory(file, await viewOf(file, start, start + size), count);
}

const viewOf = async (file, start, end) => new DataView(await file.slice(start, end).arrayBuffer());

function readDirectory(file, directory, count) {
  const members = [];
  let place = 0;
  for (let number = 0; number < count; number += 1) {
    if (place + ENTRY_BYTES > directory.byteLength || directory.getUint32(place, true) !== ENTRY) {
      throw new Problem(`${file.name} is a damaged ZIP file`, "Its list of members is incomplete.", 0);
    }
    const [nameLength, extraLength, commentLength] = [28, 30, 32].map((offset) => directory.getUint16(place + offset, true));
    const flags = directory.getUint16(place + 8, true);
    const member = {
      name: nameFrom(directory, place + ENTRY_BYTES, nameLength, flags),
      isEncrypted: (flags & ENCRYPTED) !== 0,
      method: directory.getUint16(place + 10, true),
      sum: directory.getUint32(place + 16, true),
      packed: directory.getUint32(place + 20, true),
      size: directory.getUint32(place + 24, true),
      start: directory.getUint32(place + 42, true),
    };
    if (!member.name.endsWith("/")) members.push({ name: member.name, open: () => open(file, member) });
    place += ENTRY_BYTES + nameLength + extraLength + commentLength;
  }
  return members;
}

function nameFrom(directory, start, length, flags) {
  const available = Math.max(Math.min(length, directory.byteLength - start), 0);
  const bytes = new Uint8Array(directory.buffer, directory.byteOffset + start, available);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder(flags & UTF8 ? "utf-8" : "windows-1252").decode(bytes);
  }
}

async function open(file, { isEncrypted, method, sum, packed, size, start }) {
  if (isEncrypted) throw new Error("is encrypted");
  if (size > MOST_MEMBER_BYTES || packed > MOST_MEMBER_BYTES) throw new Error(`is larger than ${MOST_MEMBER_BYTES >> 20} MiB`);
  const head = await viewOf(file, start, start + LOCAL_BYTES);
  if (head.byteLength < LOCAL_BYTES || head.getUint32(0, true) !== LOCAL) throw new Error("is damaged");
  const first = start + LOCAL_BYTES + head.getUint16(26, true) + head.getUint16(28, true);
  const content = file.slice(first, first + packed);
  const unpacked = await unpack(content, method);
  if (unpacked.size !== size || sumOf(await unpacked.arrayBuffer()) !== sum) throw new Error("is damaged");
  return unpacked;
}

const SUMS_OF_BYTES = Uint32Array.from({ length: 256 }, (_, byte) => {
  let sum = byte;
  for (let bit = 0; bit < 8; bit += 1) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1;
  return sum;
});

/** Return the CRC-32 of a member, the reflected polynomial 0x04c11db7 of the format's description (PKWARE APPNOTE, 4.4.7). */
function sumOf(content) {
  let sum = 0xffffffff;
  for (const byte of new Uint8Array(content)) sum = SUMS_OF_BYTES[(sum ^ byte) & 0xff] ^ (sum >>> 8);
  return ~sum >>> 0;
}

function unpack(content, method) {
  if (method === STORED) return content;
  if (method === DEFLATED) return inflate(content);
  throw new Error("is compressed in a way that browsers do not know");
}

/** Unpack a member; one that says it is small and is not is given up at the limit. */
async function inflate(content) {
  const reader = content.stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const parts = [];
  let size = 0;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return new Blob(parts);
      size += value.length;
      if (size > MOST_MEMBER_BYTES) break;
      parts.push(value);
    }
  } catch {
    throw new Error("is damaged");
  }
  await reader.cancel();
  throw new Error(`is larger than ${MOST_MEMBER_BYTES >> 20} MiB`);
}
