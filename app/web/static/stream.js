// Server-sent events over fetch, since an EventSource cannot send a key.

import { Problem } from "./api.js";

/** Yield {id, name, data} for each event of a response; throw a Problem of status 0 when the connection is lost. */
export async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : new Problem("The connection was lost", "", 0);
    });
    if (done) return;
    const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(
        block.split("\n").filter((line) => !line.startsWith(":")).map((line) => line.split(/: (.*)/s, 2)),
      );
      if (fields.data) yield { id: Number(fields.id), name: fields.event, data: JSON.parse(fields.data) };
    }
  }
}
