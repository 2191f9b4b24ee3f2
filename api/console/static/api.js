// Calls of the public API, with the token in a header: never in a URL, never in a cookie.

// The scripts lie in /console, so that a path that a proxy puts before them is kept.
const base = new URL("../api/v1/", import.meta.url);
export const server = new URL("../", import.meta.url);

// Refusal is an answer that is no success. message is the server's, for people; wait is for how many
// seconds the server asks to wait before another try, undefined where it does not.
export class Refusal extends Error {
  constructor(status, message, wait) {
    super(message);
    this.status = status;
    this.wait = wait;
  }
}

// call sends a request and returns the response of a success. query leaves out what is undefined or
// "", and repeats what is an array.
export async function call(token, path, { query, body, headers, signal } = {}) {
  const url = new URL(path, base);
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of [value].flat()) {
      if (one !== undefined && one !== "") url.searchParams.append(name, one);
    }
  }
  const response = await fetch(url, {
    method: body ? "POST" : "GET",
    headers: { Authorization: `Bearer ${token}`, ...(body && { "Content-Type": "application/json" }), ...headers },
    body: body && JSON.stringify(body),
    signal,
    credentials: "omit",
    referrerPolicy: "no-referrer",
    redirect: "error",
    cache: "no-store", // a browser would show an old file for weeks, and keep it after the tab
  });
  if (!response.ok) {
    const after = response.headers.get("Retry-After") ?? "";
    throw new Refusal(response.status, await reason(response), /^\d+$/.test(after) ? Number(after) : undefined);
  }
  return response;
}

async function reason(response) {
  try {
    return (await response.json()).error ?? response.statusText;
  } catch {
    return response.statusText || `status ${response.status}`;
  }
}

// json is call for an answer that is one object.
export async function json(token, path, options) {
  return (await call(token, path, options)).json();
}

// text reads an open page of the server, such as /metrics, without a token.
export async function text(path, signal) {
  const options = { signal, credentials: "omit", redirect: "error", cache: "no-store" };
  const response = await fetch(new URL(path, server), options);
  const answer = await response.text();
  return { status: response.status, answer };
}

// readParts reads a response up to a bound, gives take each part as it comes, waits for what take
// promises, and reports whether that was all.
export async function readParts(response, maxBytes, take) {
  const reader = response.body.getReader();
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return true;
    size += value.length;
    await take(value);
    if (size > maxBytes) {
      await reader.cancel();
      return false;
    }
  }
}

// readUpTo reads a response up to a bound, and reports whether that was all.
export async function readUpTo(response, maxBytes) {
  const chunks = [];
  const whole = await readParts(response, maxBytes, (chunk) => chunks.push(chunk));
  const all = new Uint8Array(chunks.reduce((size, chunk) => size + chunk.length, 0));
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return { bytes: all, whole };
}
