// A file of a revision.

import * as api from "../api.js";
import { codeTable, fileBytesMax, highlighter, isBinary, lineCell, linesFirst, linesMax, linesOf } from "../code.js";
import { h } from "../dom.js";
import { bytes as size, count, figure, short } from "../format.js";
import { moreButton } from "../more.js";
import { crumbs, revisionBar, tokenFor } from "../repository.js";
import { at } from "../route.js";
import { plain, shown } from "../visible.js";
import { kindOf, lastCommit } from "./tree.js";

// readFile reads the beginning of a file: {bytes, total, blob}.
export async function readFile(token, { ref, path }, signal) {
  // No range is asked for, since that of an empty file would be refused; what is more is not read.
  const response = await api.call(token, "repos/file", { query: { ref, path }, signal });
  const { bytes } = await api.readUpTo(response, fileBytesMax);
  const total = Number(response.headers.get("Content-Length") ?? bytes.length);
  return { bytes: bytes.subarray(0, fileBytesMax), total, blob: response.headers.get("X-Blob-Sha") ?? "" };
}

export async function file(parameters, signal) {
  const { repo, ref, path = "" } = parameters;
  const token = tokenFor(repo);
  const last = lastCommit(token, repo, ref, path, signal);
  const { bytes, total, blob } = await readFile(token, parameters, signal);
  const binary = isBinary(bytes);
  const lines = binary ? [] : linesOf(new TextDecoder().decode(bytes));
  const state = h("span", { role: "status" });
  const kind = h("span", { hidden: true, "aria-busy": "true" });
  const query = { ref, path, recursive: "false", limit: 1 };
  api
    .json(token, "repos/files", { query, signal })
    .then(
      ({ entries: [entry] }) => {
        kind.textContent = kindOf(entry) ?? "";
        kind.hidden = kind.textContent === "";
        if (entry.type === "symlink") end.hidden = true; // a link has no lines
      },
      () => {}, // what the file has can be read
    )
    .finally(() => kind.removeAttribute("aria-busy"));
  const end = h("span", {}, binary || total > fileBytesMax ? "" : lineEnds(bytes));
  const about = h(
    "p",
    { class: "about" },
    kind,
    h("span", {}, size(total)),
    !binary && total <= fileBytesMax && h("span", {}, count(lines.length, "line")),
    end.textContent && end,
    blob && h("span", { class: "id" }, short(blob)),
    !binary && h("a", { href: at("blame", { repo, ref, path }) }, "Blame"),
    h("a", { href: at("history", { repo, ref, path }) }, "History"),
    h(
      "button",
      { type: "button", class: "plain", click: () => save(token, parameters, signal, state) },
      "Download raw",
    ),
    state,
  );
  const { view, start } = binary
    ? { view: h("p", { class: "empty" }, "A binary file. Its bytes can be downloaded.") }
    : lines.length === 0
      ? { view: h("p", { class: "empty" }, "The file is empty.") }
      : text(parameters, lines);
  return {
    title: `${path}${ref ? " at " + ref : ""}`,
    heading: shown(path.split("/").at(-1)),
    content: [
      crumbs(parameters),
      revisionBar("file", parameters, signal),
      last,
      about,
      total > fileBytesMax &&
        !binary &&
        h(
          "p",
          { class: "notice" },
          `Only the first ${size(fileBytesMax)} of the file are shown; “Download raw” gets all of it.`,
        ),
      view,
    ],
    target: () => document.querySelector("tr[aria-current]"),
    start,
  };
}

// lineEnds tells what a reader would not see: other ends of lines than LF, or none at the end.
export function lineEnds(bytes) {
  let lf = 0;
  let crlf = 0;
  for (let i = bytes.indexOf(10); i >= 0; i = bytes.indexOf(10, i + 1)) {
    lf++;
    if (bytes[i - 1] === 13) crlf++;
  }
  const mixed = `line ends are mixed, ${figure(crlf)} of ${figure(lf)} CR LF`;
  const kind = crlf === 0 ? "" : crlf === lf ? "line ends are CR LF" : mixed;
  const last = bytes.length > 0 && bytes.at(-1) !== 10 ? "no line end at the end" : "";
  return [kind, last].filter(Boolean).join(", ");
}

// text is the table of the lines. It begins with those that are looked at first; start adds the rest
// of what a page shows at once, and a button adds more.
function text(parameters, lines) {
  const [from, to] = range(parameters.line);
  const split = highlighter(parameters.path);
  const body = h("tbody");
  const more = moreButton("", () => {
    add(next + linesMax);
    return `${next} lines are shown`;
  });
  const atOnce = Math.min(Math.max(linesMax, to + 20), lines.length);
  let next = 0;
  function add(end) {
    const rows = [];
    for (; next < Math.min(end, lines.length); next++) {
      const line = next + 1;
      const marked = line >= from && line <= to;
      rows.push(
        h(
          "tr",
          { "aria-current": marked ? "location" : null },
          h(
            "td",
            { class: "line" },
            h(
              "a",
              {
                href: at("file", { ...parameters, line }),
                "aria-label": `Line ${line}`,
              },
              line,
            ),
          ),
          lineCell(split.split(lines[next])),
        ),
      );
    }
    body.append(...rows);
    more.hidden = next < atOnce || next >= lines.length;
    more.textContent = `Show ${Math.min(linesMax, lines.length - next)} more of ${lines.length} lines`;
  }
  add(Math.max(linesFirst, to + 20));
  const table = codeTable(`Text of ${plain(parameters.path)}`, ["Line", "Text"], body);
  if (next < atOnce) table.setAttribute("aria-busy", "true");
  const start = async (signal) => {
    while (next < atOnce && !signal.aborted) {
      await new Promise((done) => setTimeout(done)); // what is there can be used
      add(Math.min(next + linesFirst, atOnce));
    }
    table.removeAttribute("aria-busy");
  };
  return { view: [table, more], start };
}

// range reads "12" or "12-20".
function range(line) {
  const match = /^(\d{1,7})(?:-(\d{1,7}))?$/.exec(line ?? "");
  if (!match) return [0, 0];
  return [Number(match[1]), Number(match[2] ?? match[1])];
}

// save downloads the whole file. A plain link could not carry the token.
async function save(token, { ref, path }, signal, state) {
  state.textContent = "downloading…";
  try {
    const response = await api.call(token, "repos/file", { query: { ref, path }, signal });
    const url = URL.createObjectURL(await response.blob());
    h("a", { href: url, download: plain(path.split("/").at(-1)) }).click();
    URL.revokeObjectURL(url);
    state.textContent = "downloaded";
  } catch (error) {
    if (!signal.aborted) state.textContent = plain(error.message);
  }
}
