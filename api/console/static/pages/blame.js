// The commit that each line of a file is from. The text comes first: of a file with a long history, the
// server may work on the blame for a while.

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
    return `${shownLines} lines are shown`;
  });
  const state = h("span", { role: "status" });
  let shownLines = 0;
  let last = "";

  // add shows the next lines, and then the commits that they are from.
  async function add() {
    const first = shownLines;
    shownLines = Math.min(first + linesPage, lines.length);
    const rows = lines.slice(first, shownLines).map((text, i) => row(parameters, first + i + 1, split.split(text)));
    body.append(...rows.map(({ element }) => element));
    more.hidden = true;
    table.setAttribute("aria-busy", "true");
    state.textContent = "looking for the commits…";
    const query = { ref, path, range: `${first + 1},${shownLines}` };
    try {
      const answer = await api.json(token, "repos/blame", { query, signal });
      for (const line of answer.lines) {
        const { element, commit, who } = rows[line.line_number - 1 - first];
        if (line.commit_sha === last) continue;
        last = line.commit_sha;
        element.classList.add("begins");
        append(commit, h("a", { href: at("commit", { repo, ref: last }), title: plain(line.summary) }, short(last)));
        const date = h(
          "time",
          { datetime: line.author_time, title: moment(line.author_time) },
          day(line.author_time),
        );
        append(who, [shown(line.author_name), " ", date]);
      }
      state.textContent = "";
      more.hidden = shownLines >= lines.length;
    } catch (error) {
      if (!signal.aborted) state.textContent = plain(error.message);
    }
    table.removeAttribute("aria-busy");
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
