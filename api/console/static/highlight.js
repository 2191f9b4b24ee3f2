// A small highlighter: comments, strings, numbers and keywords, line by line. It reads no grammar,
// so that it is sometimes wrong, and never slow: it looks at each character once.

// lineMax bounds, in UTF-16 units, the lines that are looked at.
const lineMax = 2000;

const wordStart = /[A-Za-z_$]/;
const word = /[\w$?]*/y;
const number = /(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*/y;

// Highlighter splits the lines of one file, in their order.
export class Highlighter {
  // language is one of languages.js; undefined leaves lines as they are.
  constructor(language) {
    this.language = language;
    this.until = null; // the end of a comment or string that began on a line before
  }

  // split returns [kind, text] pairs that make up the line; kind is "" or a class.
  split(line) {
    if (!this.language || line.length > lineMax) return line ? [["", line]] : [];
    const parts = [];
    let at = 0;
    let kept = 0;
    const take = (kind, end) => {
      if (at > kept) parts.push(["", line.slice(kept, at)]);
      parts.push([kind, line.slice(at, end)]);
      at = kept = end;
    };
    while (at < line.length) {
      if (this.until) {
        const end = line.indexOf(this.until.text, at);
        const { kind, text } = this.until;
        if (end >= 0) this.until = null;
        take(kind, end < 0 ? line.length : end + text.length);
        continue;
      }
      const opened = this.open(line, at);
      if (opened) {
        const end = opened.end ?? line.indexOf(opened.text, at + opened.from);
        if (opened.end === undefined && end < 0) this.until = opened;
        take(opened.kind, opened.end ?? (end < 0 ? line.length : end + opened.text.length));
        continue;
      }
      const character = line[at];
      if (wordStart.test(character)) {
        word.lastIndex = at;
        const text = word.exec(line)[0] || character;
        const key = this.language.anyCase ? text.toLowerCase() : text;
        if (this.language.words.has(key)) take("keyword", at + text.length);
        else at += text.length;
      } else if (character >= "0" && character <= "9") {
        number.lastIndex = at;
        take("number", at + (number.exec(line)?.[0].length ?? 1));
      } else {
        at++;
      }
    }
    if (at > kept) parts.push(["", line.slice(kept)]);
    return parts;
  }

  // open says what begins at a place: a comment or string with its end on this line, or until a text.
  open(line, at) {
    const { line: comments = [], block = [], strings = [], long = [] } = this.language;
    for (const mark of comments) {
      if (line.startsWith(mark, at)) return { kind: "comment", end: line.length };
    }
    for (const [begin, text] of block) {
      if (line.startsWith(begin, at)) return { kind: "comment", from: begin.length, text };
    }
    for (const text of long) {
      if (line.startsWith(text, at)) return { kind: "string", from: text.length, text };
    }
    if (!strings.includes(line[at])) return null;
    let end = at + 1;
    while (end < line.length && line[end] !== line[at]) end += line[end] === "\\" ? 2 : 1;
    return { kind: "string", end: Math.min(end + 1, line.length) };
  }
}
