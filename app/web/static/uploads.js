// Sending rows to the service, in batches; what it refuses is named, and the rest goes on.

import { Problem, call } from "./api.js";
import { isBusy, waitAfter } from "./patience.js";

const ROWS_PER_BATCH = 100;
const CHARACTERS_PER_BATCH = 8 << 20; // a batch is stored whole: about what comes in while one looks at the progress
const REFUSALS = new Set([400, 409, 410, 413, 422]);
const WHERE = /^line \d+: ((image_base64|text): )?/; // of the request, which nobody but this module sees
const MOST_TRIES = 8;

/**
 * Store rows in a collection, read in their order; what is stored already, the same, is left as it is.
 *
 * signal: of an AbortController; report: called with {done, place} as rows are done with; refuse: called with the
 * place and the reason of each that is not stored, and with the reason without what only this row has where that differs. Returns the numbers of items {created, updated, unchanged, copies}.
 */
export async function upload(path, rows, { signal, report, refuse }) {
  const counts = { created: 0, updated: 0, unchanged: 0, copies: 0 };
  let [batch, size, nRows, done] = [[], 0, 0, 0];
  const send = async () => {
    await store(path, batch, { signal, refuse, counts });
    done += nRows;
    report({ done, place: batch.at(-1)?.place ?? "" });
    [batch, size, nRows] = [[], 0, 0];
  };
  const seen = new Map();
  for (const { place, read } of rows) {
    signal.throwIfAborted();
    try {
      const items = [await read()].flat(); // a change may be one of several items
      const lines = items.map((item) => JSON.stringify(item));
      for (const [number, { id }] of items.entries()) {
        const [digest, earlier] = [digestOf(lines[number]), seen.get(id)];
        const how = earlier?.digest === digest ? "is the same" : "differs";
        if (earlier) throw new Repetition(`has the id ${id} of ${earlier.place}, which ${how}`, `repeats the id of a row before, which ${how}`);
        seen.set(id, { place, digest });
      }
      batch.push(...lines.map((line) => ({ place, line })));
      size += lines.reduce((sum, line) => sum + line.length, 0);
      nRows += 1;
    } catch (error) {
      refuse(place, error.message, error.kind);
      done += 1;
    }
    if (batch.length >= ROWS_PER_BATCH || size >= CHARACTERS_PER_BATCH) await send();
  }
  await send();
  return counts;
}

/** A row whose id another has; `kind` is the reason without what only this row has. */
class Repetition extends Error {
  constructor(message, kind) {
    super(message);
    this.kind = kind;
  }
}

/** Return a number that differs where texts do, but for one in a thousand million. */
function digestOf(text) {
  let digest = text.length;
  for (let place = 0; place < text.length; place += 1) digest = Math.imul(digest ^ text.charCodeAt(place), 0x01000193);
  return digest;
}

/** Store a batch; without the line that is refused, where one is named, and else in halves. */
async function store(path, batch, { signal, refuse, counts }) {
  let left = batch;
  while (left.length > 0) {
    const sent = left;
    const { answer, problem } = await send(path, sent, signal);
    if (answer) {
      for (const name of Object.keys(counts)) counts[name] += answer[name];
      return;
    }
    const faulty = problem.line === undefined ? sent.length === 1 ? 0 : null : problem.line - 1;
    if (faulty === null) {
      const middle = sent.length >> 1;
      await store(path, sent.slice(0, middle), { signal, refuse, counts });
      left = sent.slice(middle);
    } else {
      refuse(sent[faulty].place, problem.detail.replace(WHERE, "") || problem.message);
      left = sent.filter((_, number) => number !== faulty);
    }
  }
}

/** Send lines until the service is not busy; return its answer, or the problem of what it refuses. */
async function send(path, batch, signal) {
  const body = new Blob(batch.map(({ line }) => `${line}\n`));
  const headers = { "Content-Type": "application/x-ndjson" };
  for (let tries = 1; ; tries += 1) {
    try {
      return { answer: await (await call(`${path}/items:import`, { method: "POST", headers, body, signal })).json() };
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (REFUSALS.has(error.status)) return { problem: error };
      if (!isBusy(error) || tries === MOST_TRIES) throw error;
      await waitAfter(error, signal);
    }
  }
}
