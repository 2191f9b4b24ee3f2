// Text from repositories as it can be shown: what would be invisible, move the cursor or reorder
// the line is shown as a sign, and the whole is isolated from the text around it.

import { h } from "./dom.js";

// Controls but tab and line end, soft hyphens, marks and isolates of direction, line separators,
// zero-width spaces, interlinear and tag characters; joiners where no script needs them.
const unseen = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e" +
    "\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e007f}]|(?<=^|[\\u0000-\\u007f])[\\u200c\\u200d]",
  "gu",
);
const unseenInLine = new RegExp(unseen.source + "|[\\t\\n]", "gu");

const controls = (
  "NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US"
).split(" ");

// sign is the visible form of a character: ⟨ESC⟩ for an escape, ⟨U+202E⟩ for an override. Many fonts
// lack the pictures that Unicode has for controls, and no screen reader speaks them.
function sign(character) {
  const code = character.codePointAt(0);
  const name = code === 0x7f ? "DEL" : (controls[code] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`);
  return `\u27e8${name}\u27e9`;
}

// plain is text for titles and labels.
export function plain(text) {
  return String(text ?? "").replace(unseenInLine, sign);
}

// pieces are the nodes of a text, with a mark around each sign. Tabs and line ends stay.
export function pieces(text, pattern = unseen) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    if (match.index > end) nodes.push(text.slice(end, match.index));
    const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    nodes.push(h("span", { class: "sign", title: `U+${code}` }, sign(match[0])));
    end = match.index + match[0].length;
  }
  if (end < text.length) nodes.push(text.slice(end));
  return nodes;
}

// shown is a name or a line, isolated.
export function shown(text, attributes) {
  return h("bdi", attributes, pieces(String(text ?? ""), unseenInLine));
}

// shownText is a text of several lines, isolated.
export function shownText(text, attributes) {
  return h("bdi", { class: "lines", ...attributes }, pieces(String(text ?? "").replace(/\r\n/g, "\n")));
}
