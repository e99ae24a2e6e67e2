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

/** Return the digest of a text as hexadecimal digits. */
export function sha256(text) {
  const bytes = new TextEncoder().encode(text);
  const block = new DataView(new ArrayBuffer((((bytes.length + 8) >> 6) + 1) * 64));
  new Uint8Array(block.buffer).set([...bytes, 0x80]);
  block.setUint32(block.byteLength - 4, bytes.length * 8);
  let state = START;
  for (let start = 0; start < block.byteLength; start += 64) {
    const words = [];
    let [a, b, c, d, e, f, g, h] = state;
    for (let round = 0; round < 64; round += 1) {
      const [before, last] = [words[round - 15], words[round - 2]];
      words.push(round < 16 ? block.getInt32(start + 4 * round) : (words[round - 16] + (turn(before, 7) ^ turn(before, 18) ^ (before >>> 3))
        + words[round - 7] + (turn(last, 17) ^ turn(last, 19) ^ (last >>> 10))) | 0);
      const first = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + ROUNDS[round] + words[round];
      const second = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      [a, b, c, d, e, f, g, h] = [(first + second) | 0, a, b, c, (d + first) | 0, e, f, g];
    }
    state = [a, b, c, d, e, f, g, h].map((word, place) => (word + state[place]) | 0);
  }
  return state.map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}
