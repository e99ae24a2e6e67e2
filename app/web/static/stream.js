// Server-sent events over fetch, since an EventSource cannot send a key.

/** Yield {id, name, data} for each event of a response. */
export async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
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
