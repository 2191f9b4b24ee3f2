// Lines of a file as a table: numbers that are links, and text.

import { h } from "./dom.js";
import { Highlighter } from "./highlight.js";
import { languageOf } from "./languages.js";
import { pieces } from "./visible.js";

// Bounds of what a page shows at once.
export const fileBytesMax = 512 * 1024;
export const linesMax = 1500;
export const linesFirst = 300; // drawn before the page is shown
export const lineMax = 4000; // UTF-16 units of a line in a diff or a match
export const lineLead = 200; // of them before what the line is shown for

// lineCell is the cell of a line's text. parts are the pairs of a Highlighter.
export function lineCell(parts, attributes) {
  return h(
    "td",
    { class: "text", ...attributes },
    h(
      "bdi",
      {},
      parts.map(([kind, text]) => (kind ? h("span", { class: kind }, pieces(text)) : pieces(text))),
    ),
  );
}

// highlighter is one for the file of a path.
export function highlighter(path) {
  return new Highlighter(languageOf(path));
}

// linesOf splits a text. A line end at the end of the text begins no line.
export function linesOf(text) {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines.map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line));
}

// isBinary reports, as git does, whether a file is no text.
export function isBinary(bytes) {
  return bytes.subarray(0, 8000).includes(0);
}

// codeTable is the region of a table of lines. heads are its column headings, for screen readers.
export function codeTable(label, heads, bodies) {
  return h(
    "div",
    { class: "code", tabindex: "0", role: "region", "aria-label": label },
    h(
      "table",
      {},
      h(
        "colgroup",
        {},
        heads.map((text) => h("col", { class: text.endsWith("ine") ? "numbers" : null })),
      ),
      h(
        "thead",
        { class: "unseen" },
        h(
          "tr",
          {},
          heads.map((text) => h("th", { scope: "col" }, text)),
        ),
      ),
      bodies,
    ),
  );
}
