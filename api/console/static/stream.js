// Server-sent events over fetch: EventSource could not send the token in a header.

import { Refusal, call } from "./api.js";

const waitMin = 1000; // milliseconds before another connection
const waitMax = 30000;
const lineMax = 1 << 20;

// follow calls take(event) for each event, and state(text) when the connection changes, until signal
// is aborted or the server refuses. It connects again where it was.
export async function follow(token, path, { query, signal, take, state }) {
  let last;
  let wait = waitMin;
  while (!signal.aborted) {
    let asked = 0; // for how long the server wants to be left alone
    try {
      state("connecting");
      const headers = { Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) };
      const response = await call(token, path, { query, headers, signal });
      state("live");
      wait = waitMin;
      for await (const event of events(response.body)) {
        last = event.id ?? last;
        if (event.data) take(JSON.parse(event.data));
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refusal && error.status < 500 && error.status !== 429) throw error;
      asked = 1000 * (error.wait ?? 0);
    }
    state("disconnected");
    await new Promise((done) => {
      const timer = setTimeout(done, Math.max(wait, asked));
      signal.addEventListener(
        "abort",
        () => {
          clearTimeout(timer);
          done();
        },
        { once: true },
      );
    });
    wait = Math.min(wait * 2, waitMax);
  }
}

// events yields the events of a stream of bytes.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = {};
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    if (rest.length > lineMax) throw new Error("a line of the stream is too long");
    for (const line of lines) {
      if (line === "") {
        if (event.data !== undefined) yield event;
        event = {};
      } else if (!line.startsWith(":")) {
        const colon = line.indexOf(":");
        const name = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        event[name] = name === "data" && event.data !== undefined ? `${event.data}\n${text}` : text;
      }
    }
  }
}
