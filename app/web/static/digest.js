// SHA-256: that of the platform is missing where a page comes without TLS.

const PRIMES = primes(64);
const START = PRIMES.slice(0, 8).map((prime) => bitsOfRoot(prime, 1 / 2));
const ROUNDS = PRIMES.map((prime) => bitsOfRoot(prime, 1 / 3));

function primes(count) {
  const found = [];
  for (let number = 2; found.length < count; number += 1) if (!found.some((prime) => number % prime === 0)) found.push(number);
  return found;
}

/** Return the first 32 bits behind the point. */
function bitsOfRoot(prime, exponent) {
  return ((prime ** exponent % 1) * 2 ** 32) | 0;
}

const turn = (word, bits) => (word >>> bits) | (word << (32 - bits));

/** Return the digest of a text, or of bytes, as hexadecimal digits. */
export function sha256(content) {
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
  const block = new DataView(new ArrayBuffer((((bytes.length + 8) >> 6) + 1) * 64));
  new Uint8Array(block.buffer).set(bytes);
  block.setUint8(bytes.length, 0x80);
  block.setUint32(block.byteLength - 8, bytes.length / 2 ** 29);
  block.setUint32(block.byteLength - 4, bytes.length * 8);
  const state = Int32Array.from(START);
  const words = new Int32Array(64);
  for (let start = 0; start < block.byteLength; start += 64) {
    let [a, b, c, d, e, f, g, h] = state;
    for (let round = 0; round < 64; round += 1) {
      if (round < 16) {
        words[round] = block.getInt32(start + 4 * round);
      } else {
        const [before, last] = [words[round - 15], words[round - 2]];
        words[round] = words[round - 16] + (turn(before, 7) ^ turn(before, 18) ^ (before >>> 3))
          + words[round - 7] + (turn(last, 17) ^ turn(last, 19) ^ (last >>> 10));
      }
      const first = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + ROUNDS[round] + words[round]) | 0;
      const second = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      [a, b, c, d, e, f, g, h] = [(first + second) | 0, a, b, c, (d + first) | 0, e, f, g];
    }
    for (const [place, word] of [a, b, c, d, e, f, g, h].entries()) state[place] += word;
  }
  return [...state].map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}
