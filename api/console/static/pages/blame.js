// The commit that each line of a file is from.

import * as api from "../api.js";
import { codeTable, highlighter, isBinary, lineCell, linesOf } from "../code.js";
import { h, say } from "../dom.js";
import { day, moment, short } from "../format.js";
import { crumbs, revisionBar, tokenFor } from "../repository.js";
import { at } from "../route.js";
import { plain, shown } from "../visible.js";
import { readFile } from "./file.js";

const linesPage = 500;

export async function blame(parameters, signal) {
  const { repo, ref, path } = parameters;
  const token = tokenFor(repo);
  const { bytes } = await readFile(token, parameters, signal);
  const lines = isBinary(bytes) ? [] : linesOf(new TextDecoder().decode(bytes));
  const split = highlighter(path);
  const more = h("button", { type: "button" }, "More lines");
  const bodies = [];
  let next = 0;
  let group = null;
  async function add() {
    const end = Math.min(next + linesPage, lines.length);
    const answer = await api.json(token, "repos/blame", {
      query: { ref, path, range: `${next + 1},${end}` },
      signal,
    });
    for (const line of answer.lines) {
      const same = group?.commit === line.commit_sha;
      if (!same) {
        group = { commit: line.commit_sha, body: h("tbody") };
        bodies.push(group.body);
      }
      group.body.append(row(repo, parameters, line, same, split.split(lines[line.line_number - 1] ?? "")));
    }
    next = end;
    more.hidden = next >= lines.length;
  }
  if (lines.length > 0) await add();
  const table = codeTable(`Blame of ${plain(path)}`, ["Commit", "Author and date", "Line", "Text"], bodies);
  table.classList.add("blame");
  more.addEventListener("click", async () => {
    const before = bodies.length;
    await add();
    table.querySelector("table").append(...bodies.slice(before));
    say(`${next} lines are shown`);
  });
  return {
    title: `Blame of ${path}${ref ? " at " + ref : ""}`,
    heading: ["Blame of ", shown(path.split("/").at(-1))],
    content: [
      crumbs(parameters),
      revisionBar("blame", parameters, signal),
      h(
        "p",
        { class: "about" },
        h("a", { href: at("file", { repo, ref, path }) }, "File"),
        h("a", { href: at("history", { repo, ref, path }) }, "History"),
      ),
      lines.length > 0 ? [table, more] : h("p", { class: "empty" }, "The file has no lines."),
    ],
  };
}

function row(repo, parameters, line, same, parts) {
  const number = line.line_number;
  return h(
    "tr",
    {},
    h(
      "td",
      { class: "id" },
      !same &&
        h(
          "a",
          { href: at("commit", { repo, ref: line.commit_sha }), title: plain(line.summary) },
          short(line.commit_sha),
        ),
    ),
    h(
      "td",
      { class: "who" },
      !same && [
        shown(line.author_name),
        " ",
        h("time", { datetime: line.author_time, title: moment(line.author_time) }, day(line.author_time)),
      ],
    ),
    h(
      "td",
      { class: "line" },
      h("a", { href: at("file", { ...parameters, line: number }), "aria-label": `Line ${number}` }, number),
    ),
    lineCell(parts),
  );
}
