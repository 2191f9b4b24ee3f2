// Patches as git writes them, read into rows; and answers with diffs, read file by file as they come.

// parse reads the patch of one file: its hunks, whether it is binary, the lines before both, and
// whether it is about a link or a submodule. Of a file whose type changed git makes two patches.
export function parse(raw) {
  const lines = raw.split("\n");
  if (lines.at(-1) === "") lines.pop();
  const hunks = [];
  const header = [];
  let hunk = null;
  let old = 0;
  let now = 0;
  for (const line of lines) {
    const start = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)$/s.exec(line);
    if (start) {
      hunk = { title: start[3], rows: [] };
      hunks.push(hunk);
      old = Number(start[1]);
      now = Number(start[2]);
    } else if (!hunk) {
      header.push(line);
    } else if (line[0] === "+") {
      hunk.rows.push({ kind: "+", now: now++, text: line.slice(1) });
    } else if (line[0] === "-") {
      hunk.rows.push({ kind: "-", old: old++, text: line.slice(1) });
    } else if (line[0] === "\\") {
      if (hunk.rows.length > 0) hunk.rows.at(-1).noEnd = true;
    } else if (line[0] === " " || line === "") {
      hunk.rows.push({ kind: " ", old: old++, now: now++, text: line.slice(1) });
    } else {
      hunk = null; // "diff --git" of the second patch
      header.push(line);
    }
  }
  const mode = /^(?:index \S+|(?:old|new|new file|deleted file) mode) (\d{6})$/;
  const modes = header.flatMap((line) => mode.exec(line)?.[1] ?? []);
  return {
    hunks,
    header,
    kind: modes.includes("160000") ? "submodule" : modes.includes("120000") ? "symbolic link" : "",
    binary: header.some((line) => line.startsWith("GIT binary patch") || line.startsWith("Binary files ")),
  };
}

// pairs puts removed lines beside the added ones that follow them: [left, right], null for nothing.
export function pairs(rows) {
  const all = [];
  for (let i = 0; i < rows.length;) {
    if (rows[i].kind === " ") {
      all.push([rows[i], rows[i]]);
      i++;
      continue;
    }
    const removed = [];
    const added = [];
    while (i < rows.length && rows[i].kind === "-") removed.push(rows[i++]);
    while (i < rows.length && rows[i].kind === "+") added.push(rows[i++]);
    for (let j = 0; j < Math.max(removed.length, added.length); j++) all.push([removed[j] ?? null, added[j] ?? null]);
  }
  return all;
}

// mixesEnds reports whether some lines of a patch end in CR LF and some in LF alone.
export function mixesEnds(hunks) {
  const rows = hunks.flatMap((hunk) => hunk.rows).filter((row) => !row.noEnd);
  return rows.some(endsInCR) && !rows.every(endsInCR);
}

export function endsInCR(row) {
  return row.text.endsWith("\r");
}

// clip cuts a line, which may be the whole of a file, to the part from a place on.
export function clip(parts, from, size) {
  const result = [];
  let at = 0;
  for (const [kind, text] of parts) {
    const part = text.slice(Math.max(0, from - at), Math.max(0, from + size - at));
    if (part) result.push([kind, part]);
    at += text.length;
  }
  return result;
}

const beginning = '"files":[';

// Answer reads a diff as it comes. head is what stands before its files, null until that has come;
// rest is what stands behind them, once the answer is whole.
export class Answer {
  constructor() {
    this.head = null;
    this.rest = null;
    this.text = ""; // of which everything before at has been looked at
    this.at = 0;
    this.start = 0; // of the item
    this.depth = 0;
    this.string = false;
    this.over = false; // the list of files has ended
  }

  // take adds a text, and returns the files that are whole now.
  take(text) {
    this.text += text;
    if (!this.head) {
      const begin = this.text.indexOf(beginning);
      if (begin < 0) return [];
      this.head = JSON.parse(this.text.slice(0, begin) + beginning + "]}");
      this.text = this.text.slice(begin + beginning.length);
    }
    const files = [];
    let i = this.at;
    for (; i < this.text.length && !this.over; i++) {
      const c = this.text[i];
      if (this.string) {
        if (c === "\\" && i + 1 === this.text.length) break; // what it is about has not come
        if (c === "\\") i++;
        else if (c === '"') this.string = false;
      } else if (c === '"') {
        this.string = true;
      } else if (c === "{" || c === "[") {
        if (this.depth++ === 0) this.start = i;
      } else if (c === "}" || c === "]") {
        if (this.depth-- === 0) this.over = true;
        else if (this.depth === 0) files.push(JSON.parse(this.text.slice(this.start, i + 1)));
      }
    }
    const kept = this.over ? i - 1 : this.depth > 0 ? this.start : i;
    this.text = this.text.slice(kept);
    this.at = this.over ? 1 : i - kept;
    this.start = 0;
    return files;
  }

  // end reads what stands behind the files. It is for an answer that has come as a whole.
  end() {
    this.rest = JSON.parse("{" + beginning + this.text);
  }
}

// units turns byte ranges of a line into ranges of its UTF-16 units.
export function units(text, ranges) {
  if (!/[^\u0000-\u007f]/.test(text)) return ranges;
  const bytes = new TextEncoder().encode(text);
  const decode = (n) => new TextDecoder().decode(bytes.subarray(0, n)).length;
  return ranges.map(([from, to]) => [decode(from), decode(to)]);
}

// overlay adds the class "changed" to the ranges of a line that is split into [kind, text] pairs.
export function overlay(parts, ranges) {
  if (!ranges?.length) return parts;
  const result = [];
  let at = 0;
  for (const [kind, text] of parts) {
    const end = at + text.length;
    let next = at;
    for (const [from, to] of ranges) {
      const left = Math.max(from, next);
      const right = Math.min(to, end);
      if (left >= right) continue;
      if (left > next) result.push([kind, text.slice(next - at, left - at)]);
      result.push([`${kind} changed`.trim(), text.slice(left - at, right - at)]);
      next = right;
    }
    if (next < end) result.push([kind, text.slice(next - at)]);
    at = end;
  }
  return result;
}
