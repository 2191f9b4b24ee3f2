// The commit that each line of a file is from. The text comes first, then the commits in parts, the
// newest ones first: of a file with a long history, all of them may take the server a while.

import * as api from "../api.js";
import { codeTable, highlighter, isBinary, lineCell, linesOf } from "../code.js";
import { append, h } from "../dom.js";
import { day, moment, short } from "../format.js";
import { moreButton } from "../more.js";
import { crumbs, revisionBar, tokenFor } from "../repository.js";
import { at } from "../route.js";
import { plain, shown } from "../visible.js";
import { readFile } from "./file.js";

const linesPage = 500;
const versionsFirst = 64; // of the file that the server compares for the first part; twice as many for each next one

export async function blame(parameters, signal) {
  const { repo, ref, path } = parameters;
  const token = tokenFor(repo);
  const { bytes } = await readFile(token, parameters, signal);
  const binary = isBinary(bytes);
  const lines = binary ? [] : linesOf(new TextDecoder().decode(bytes));
  const split = highlighter(path);
  const body = h("tbody");
  const table = codeTable(`Blame of ${plain(path)}`, ["Commit", "Author and date", "Line", "Text"], body);
  table.classList.add("blame");
  const more = moreButton("More lines", async () => {
    await add();
    return `${rows.length} lines are shown`;
  });
  const state = h("span", { role: "status" });
  const rows = [];

  // add shows the next lines, and then the commits that they are from.
  async function add() {
    const first = rows.length;
    const texts = lines.slice(first, first + linesPage);
    rows.push(...texts.map((text, i) => row(parameters, first + i + 1, split.split(text))));
    body.append(...rows.slice(first).map(({ element }) => element));
    more.hidden = true;
    table.setAttribute("aria-busy", "true");
    state.textContent = "looking for the commits…";
    try {
      for await (const part of parts(first + 1, rows.length)) {
        for (const line of part) rows[line.line_number - 1].line = line;
        for (const line of part) {
          draw(line.line_number - 1);
          draw(line.line_number);
        }
      }
      state.textContent = "";
      more.hidden = rows.length >= lines.length;
    } catch (error) {
      if (!signal.aborted) state.textContent = plain(error.message);
    }
    table.removeAttribute("aria-busy");
  }

  // parts yields lines with their commits, as far as the server has found them. It asks for the next
  // ones before it yields some.
  async function* parts(from, to) {
    const query = { ref, path, range: `${from},${to}`, limit: versionsFirst };
    const ask = () => api.json(token, "repos/blame", { query, signal });
    let next = ask();
    while (next) {
      const answer = await next;
      query.cursor = answer.next_cursor;
      query.limit *= 2;
      next = query.cursor && ask();
      yield answer.lines;
    }
  }

  // draw shows the commit of a line that is known, where it is not that of the line above.
  function draw(index) {
    const { line, element, commit, who } = rows[index] ?? {};
    if (!line) return;
    const begins = rows[index - 1]?.line?.commit_sha !== line.commit_sha;
    if (begins === element.classList.contains("begins")) return;
    element.classList.toggle("begins", begins);
    commit.replaceChildren();
    who.replaceChildren();
    if (!begins) return;
    const to = at("commit", { repo, ref: line.commit_sha });
    append(commit, h("a", { href: to, title: plain(line.summary) }, short(line.commit_sha)));
    const date = h("time", { datetime: line.author_time, title: moment(line.author_time) }, day(line.author_time));
    append(who, [shown(line.author_name), " ", date]);
  }

  const empty = h("p", { class: "empty" }, binary ? "A binary file has no lines." : "The file is empty.");
  if (lines.length > 0) add();
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
        state,
      ),
      lines.length > 0 ? [table, more] : empty,
    ],
  };
}

// row is a line without its commit, and the cells for that.
function row(parameters, number, parts) {
  const commit = h("td", { class: "id" });
  const who = h("td", { class: "who" });
  const line = h("a", { href: at("file", { ...parameters, line: number }), "aria-label": `Line ${number}` }, number);
  return { element: h("tr", {}, commit, who, h("td", { class: "line" }, line), lineCell(parts)), commit, who };
}
