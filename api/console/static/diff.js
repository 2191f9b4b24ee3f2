// Diffs: side by side where there is room, one below the other on a narrow screen.

import * as api from "./api.js";
import { codeTable, highlighter, lineCell, lineLead, lineMax } from "./code.js";
import { append, h, say } from "./dom.js";
import { count, figure } from "./format.js";
import { moreButton } from "./more.js";
import { at } from "./route.js";
import { Answer, clip, endsInCR, mixesEnds, overlay, pairs, parse, units } from "./patch.js";
import { pieces, plain, shown } from "./visible.js";

const firstFiles = 50; // of a page of the diff that comes without being asked for
const moreFiles = 200; // and of those behind the button
const answerMax = 4 * 1024 * 1024; // bytes of an answer
const firstBytes = 32 * 1024; // of them, after which the first files are shown
const linesOpen = 800; // changed lines up to which files are shown open
const linesFile = 3000; // rows of one file that are shown at once
const wide = matchMedia("(min-width: 60rem)");
const states = { A: "added", M: "modified", D: "deleted", T: "type changed", R: "renamed" };
const reasons = {
  size: "it is large",
  lines: "many lines changed",
  binary: "it is binary",
  lock: "it is a lock file",
};

// diff asks for a diff and returns its elements. Those of a large one are the first files: further
// ones are added as they come, or behind a button.
export async function diff(token, repo, path, query, signal) {
  const ask = (more) => api.call(token, path, { query: { ...query, inline: "true", ...more }, signal });
  const context = {
    repo,
    one: async (file) => {
      const read = await api.readUpTo(await ask({ path: [file.path, file.old_path].filter(Boolean) }), answerMax);
      if (!read.whole) throw new Error("The diff of this file is larger than the console shows.");
      return JSON.parse(new TextDecoder().decode(read.bytes)).files[0] ?? file;
    },
  };
  const notice = h("p", { class: "notice", role: "status", hidden: true });
  const { element: index, heading, list } = contents();
  const sections = h("div");
  const stats = { files: 0, additions: 0, deletions: 0 };
  let found = 0;
  let broken = 0; // files that are shown of a page that did not come as a whole
  let budget = linesOpen;
  let cursor;

  // show reads a page and adds its files. It calls begin when the first files of a large one are
  // there.
  async function show(response, begin) {
    const answer = new Answer();
    const decoder = new TextDecoder();
    let known = broken;
    let read = 0;
    const add = (files) => {
      const { head } = answer;
      if (!head) return;
      context.ref = head.sha ?? query.branch ?? query.ref;
      context.base = head.base_sha ?? head.merge_base_sha;
      for (const file of files) {
        if (known-- > 0) continue;
        budget -= file.additions + file.deletions + 5;
        const element = section(file, context, budget > 0 && !file.reason);
        sections.append(element);
        list.append(entry(file, element));
        found++;
        broken++;
      }
    };
    const take = (part) => {
      add(answer.take(decoder.decode(part, { stream: true })));
      read += part.length;
      if (found === 0 || read < firstBytes) return null;
      heading.textContent = `${count(found, "file")} so far…`;
      begin?.();
      return new Promise((done) => setTimeout(done)); // the page is drawn in between
    };
    sections.setAttribute("aria-busy", "true");
    try {
      const whole = await api.readParts(response, answerMax, take);
      if (whole) {
        answer.end();
        add(answer.rest.filtered_files);
        broken = 0;
        for (const name of Object.keys(stats)) stats[name] += answer.rest.stats[name];
        cursor = answer.rest.next_cursor;
        if (found === 0) sections.append(h("p", { class: "empty" }, "No file differs."));
      }
      notice.hidden = whole;
      notice.textContent = `The first ${count(found, "file")} are shown: the console does not take more of this diff.`;
      more.hidden = !whole || !cursor;
      heading.replaceChildren(...(whole && !cursor ? totals(stats) : [`The first ${count(found, "file")}`]));
      index.hidden = found === 0;
    } finally {
      sections.removeAttribute("aria-busy");
    }
  }

  const more = moreButton("More files", async () => {
    const before = found;
    await show(await ask({ limit: moreFiles, cursor }));
    return `${count(found - before, "file")} more`;
  });
  const response = await ask({ limit: firstFiles });
  let begin;
  const begun = new Promise((done) => (begin = done));
  const reading = show(response, begin);
  await Promise.race([begun, reading]);
  reading.catch((error) => {
    if (signal.aborted) return;
    notice.hidden = false;
    notice.textContent = `The rest of the diff did not come: ${plain(error.message)}`;
  });
  return [notice, index, sections, more];
}

// contents is the list of the files of a diff, behind a heading, both to be filled.
function contents() {
  const heading = h("summary");
  const list = h("ul");
  return { element: h("details", { class: "changed-files" }, heading, list), heading, list };
}

function totals(stats) {
  return [
    `${count(stats.files, "file")} changed, `,
    h("span", { class: "plus" }, `+${figure(stats.additions)}`),
    " ",
    h("span", { class: "minus" }, `−${figure(stats.deletions)}`),
  ];
}

// entry is the line of a file in the list, which leads to its section.
function entry(file, element) {
  const show = () => {
    element.open = true;
    element.querySelector("summary").focus();
    element.scrollIntoView({ block: "start" });
  };
  return h("li", {}, h("button", { type: "button", class: "plain", click: show }, shown(file.path)));
}

// section is a file of a diff. It is drawn when it is opened.
function section(file, context, open) {
  const state = states[file.state[0]] ?? file.state;
  const head = h(
    "summary",
    {},
    h("span", { class: `state ${state.split(" ")[0]}` }, state),
    " ",
    file.old_path && file.old_path !== file.path && [shown(file.old_path), " → "],
    shown(file.path),
    " ",
    h("span", { class: "plus" }, `+${file.additions}`),
    " ",
    h("span", { class: "minus" }, `−${file.deletions}`),
  );
  const body = h("div", { class: "file-diff" });
  let drawn = false;
  const draw = () => {
    if (drawn) return;
    drawn = true;
    fill(body, file, context);
  };
  const element = h("details", { class: "file", toggle: () => element.open && draw() }, head, body);
  if (open) {
    element.open = true;
    draw();
  }
  return element;
}

function fill(body, file, context) {
  body.replaceChildren();
  const { repo, ref, base } = context;
  const patch = file.reason ? null : parse(file.raw ?? decode(file.raw_base64));
  const about = h("p", { class: "about" });
  // A submodule is a commit elsewhere: there is no file to look at.
  append(
    about,
    patch?.kind !== "submodule" && [
      file.state !== "D" && ref && h("a", { href: at("file", { repo, ref, path: file.path }) }, "File"),
      file.state[0] !== "A" &&
        base &&
        h("a", { href: at("file", { repo, ref: base, path: file.old_path || file.path }) }, "Before"),
    ],
  );
  if (patch?.kind) append(about, h("span", {}, patch.kind));
  if (about.hasChildNodes()) append(body, about);
  if (file.reason) {
    const why = h("span", {}, `Left out, since ${reasons[file.reason] ?? file.reason}. `);
    let asked = false;
    const show = async () => {
      if (asked) return;
      asked = true;
      try {
        fill(body, await context.one(file), context);
        body.parentElement.querySelector("summary").focus({ preventScroll: true }); // the button is gone
        say("Shown");
      } catch (error) {
        asked = false;
        why.textContent = `${plain(error.message)} `;
        say(why.textContent);
      }
    };
    body.append(h("p", { class: "notice" }, why, h("button", { type: "button", click: show }, "Show it")));
    return;
  }
  if (patch.binary) {
    body.append(h("p", { class: "empty" }, "A binary file."));
    return;
  }
  const modes = patch.header.filter((line) => /^(old|new|deleted file|new file) mode/.test(line));
  const whole = file.state === "A" || file.state === "D";
  if (modes.length > 0 && !whole) {
    body.append(
      h(
        "p",
        { class: "about" },
        modes.map((line) => h("span", {}, line)),
      ),
    );
  }
  if (patch.hunks.length > 0) body.append(table(file, patch));
  else if (whole) body.append(h("p", { class: "empty" }, "The file is empty."));
  else if (file.state[0] === "R") body.append(h("p", { class: "empty" }, "The content is the same."));
}

function decode(base64) {
  const text = atob(base64 ?? "");
  return new TextDecoder().decode(Uint8Array.from(text, (c) => c.charCodeAt(0)));
}

function table(file, patch) {
  const marks = { old: new Map(), now: new Map() };
  for (const pair of file.inline ?? []) {
    marks.old.set(pair.old_line, pair.old);
    marks.now.set(pair.new_line, pair.new);
  }
  const ends = mixesEnds(patch.hunks);
  const sides = wide.matches;
  const heads = sides ? ["Old line", "Old text", "New line", "New text"] : ["Old line", "New line", "Text"];
  let left = linesFile;
  let cut = false;
  const bodies = patch.hunks.map((hunk) => {
    if (left <= 0) {
      cut = true;
      return null;
    }
    if (hunk.rows.length > left) {
      cut = true;
      hunk.rows.length = left;
    }
    left -= hunk.rows.length;
    const cells = texts(file, hunk.rows, marks, { ends, link: patch.kind !== "" });
    const title = h("tr", { class: "hunk" }, h("td", { colspan: heads.length }, "⋯ ", shown(hunk.title)));
    return h(
      "tbody",
      {},
      title,
      sides
        ? pairs(hunk.rows).map(([a, b]) => beside(a, b, cells))
        : hunk.rows.map((row) =>
            h(
              "tr",
              {},
              h("td", { class: "line" }, row.old ?? ""),
              h("td", { class: "line" }, row.now ?? ""),
              cell(row, cells.get(row)),
            ),
          ),
    );
  });
  const view = codeTable(`Changes of ${plain(file.path)}`, heads, bodies.filter(Boolean));
  view.classList.add(sides ? "beside" : "below");
  if (!cut) return view;
  return h("div", {}, view, h("p", { class: "notice" }, `Only the first ${linesFile} lines of the diff are shown.`));
}

// texts makes the cells of the lines of a hunk, those before and those after each in their order.
// ends says that line ends are worth a sign, link that a line end is not to be expected.
function texts(file, rows, marks, { ends, link }) {
  const before = highlighter(file.old_path || file.path);
  const after = highlighter(file.path);
  const cells = new Map();
  for (const row of rows) {
    const cr = endsInCR(row);
    const text = cr ? row.text.slice(0, -1) : row.text;
    let parts;
    if (row.kind !== "+") parts = before.split(text);
    if (row.kind !== "-") parts = after.split(text);
    const ranges = row.kind === "-" ? marks.old.get(row.old) : row.kind === "+" ? marks.now.get(row.now) : null;
    const changed = ranges && units(text, ranges);
    const from = text.length > lineMax ? Math.max(0, (changed?.[0]?.[0] ?? 0) - lineLead) : 0;
    const left = text.length - from - lineMax;
    cells.set(row, {
      parts: clip(overlay(parts, changed), from, lineMax),
      lead: from > 0 && `${figure(from)} characters … `,
      tail: [
        left > 0 && h("span", { class: "dim" }, ` … ${count(left, "character")} more`),
        left <= 0 && ends && cr && pieces("\r"),
        row.noEnd && !link && h("span", { class: "dim" }, " no line end"),
      ],
    });
  }
  return cells;
}

const classes = { "+": "add", "-": "del", " ": "same" };

function cell(row, { parts, lead, tail }) {
  const made = lineCell(parts, { class: `text ${classes[row.kind]}` });
  if (lead) made.prepend(h("span", { class: "dim" }, lead));
  append(made, tail);
  return made;
}

function beside(a, b, cells) {
  const half = (row, line) =>
    row
      ? [h("td", { class: "line" }, line), cell(row, cells.get(row))]
      : [h("td", { class: "line none" }), h("td", { class: "text none" })];
  return h("tr", {}, half(a, a?.old), half(b, b?.now));
}
