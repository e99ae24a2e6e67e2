// Sending rows to the service, in batches; what it refuses is named, and the rest goes on.

import { Problem, call } from "./api.js";
import { isBusy, waitAfter } from "./patience.js";

const ROWS_PER_BATCH = 100;
const CHARACTERS_PER_BATCH = 8 << 20; // a batch is stored whole: about what comes in while one looks at the progress
const REFUSALS = new Set([400, 409, 410, 413, 422]);
const WHERE = /^line \d+: ((image_base64|text): )?/; // of the request, which nobody but this module sees
const MOST_TRIES = 8;

/**
 * Store rows in a collection; what is stored already, the same, is left as it is.
 *
 * signal: of an AbortController; report: called with {done, place} as rows are done with; refuse: called with the
 * place and the reason of each that is not stored. Returns the numbers of items {created, updated, unchanged}.
 */
export async function upload(path, rows, { signal, report, refuse }) {
  const counts = { created: 0, updated: 0, unchanged: 0 };
  let [batch, size, done] = [[], 0, 0];
  const send = async () => {
    await store(path, batch, { signal, refuse, counts });
    done += batch.length;
    report({ done, place: batch.at(-1)?.place ?? "" });
    [batch, size] = [[], 0];
  };
  const seen = new Set();
  for (const { place, read } of rows) {
    signal.throwIfAborted();
    try {
      const item = await read();
      if (seen.has(item.id)) throw new Error(`has the id ${item.id} of a row before it`);
      seen.add(item.id);
      batch.push({ place, line: JSON.stringify(item) });
      size += batch.at(-1).line.length;
    } catch (error) {
      refuse(place, error.message);
      done += 1;
    }
    if (batch.length >= ROWS_PER_BATCH || size >= CHARACTERS_PER_BATCH) await send();
  }
  await send();
  return counts;
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
