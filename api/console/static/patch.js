// Patches as git writes them, read into rows; and the longest whole beginning of a diff that was cut.

// parse reads the patch of one file: its hunks, whether it is binary, and the lines before both.
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
    } else {
      hunk.rows.push({ kind: " ", old: old++, now: now++, text: line.slice(1) });
    }
  }
  return {
    hunks,
    header,
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

// wholeFiles returns the items of "files" that are whole in the text of a diff that was cut.
export function wholeFiles(text) {
  const files = [];
  const begin = text.indexOf('"files":[');
  let depth = 0;
  let start = 0;
  for (let i = begin < 0 ? text.length : begin + '"files":['.length; i < text.length; i++) {
    const c = text[i];
    if (c === '"') {
      for (i++; i < text.length && text[i] !== '"'; i++) if (text[i] === "\\") i++;
    } else if (c === "{" || c === "[") {
      if (depth++ === 0) start = i;
    } else if (c === "}" || c === "]") {
      if (depth-- === 0) break;
      if (depth === 0) files.push(JSON.parse(text.slice(start, i + 1)));
    }
  }
  return files;
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
