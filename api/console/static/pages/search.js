// Search in the files of a revision.

import * as api from "../api.js";
import { codeTable, highlighter, lineCell, lineLead, lineMax } from "../code.js";
import { h, say } from "../dom.js";
import { count } from "../format.js";
import { moreButton } from "../more.js";
import { overlay } from "../patch.js";
import { tokenFor } from "../repository.js";
import { at, go } from "../route.js";
import { plain, shown } from "../visible.js";

export async function search(parameters, signal) {
  const { repo, ref, q, glob, regexp, nocase } = parameters;
  const token = tokenFor(repo);
  const form = fields(parameters);
  const title = q ? `Search for ${q}` : "Search";
  if (!q) return { title, focus: form.elements.q, content: form };
  const results = h("div", { class: "results", tabindex: "-1" });
  const more = moreButton("More files", async () => count(await next(), "more file"));
  let cursor;
  async function next() {
    const answer = await api.json(token, "repos/grep", {
      signal,
      body: {
        ref,
        query: { pattern: regexp ? q : q.replace(/[\\.+*?()|[\]{}^$]/g, "\\$&"), case_sensitive: !nocase },
        file_filters: glob ? { include_globs: [glob] } : undefined,
        limits: { max_lines: 500, max_matches_per_file: 50 },
        pagination: { cursor },
      },
    });
    results.append(...answer.matches.map((file) => found(parameters, file)));
    cursor = answer.next_cursor;
    more.hidden = !answer.has_more;
    return answer.matches.length;
  }
  await next();
  while (results.childElementCount === 0 && cursor) await next(); // a page may be empty
  say(`${count(results.childElementCount, "file")} found`);
  return {
    title,
    heading: "Search",
    content: [form, results.childElementCount > 0 ? results : h("p", { class: "empty" }, "Nothing matches."), more],
  };
}

// fields is the form of the search.
export function fields({ repo, ref, q, glob, regexp, nocase }) {
  const input = (id, label, value, more) =>
    h(
      "span",
      { class: "field" },
      h("label", { for: id }, label),
      h("input", {
        id,
        name: id,
        value: value ?? "",
        autocomplete: "off",
        autocapitalize: "off",
        spellcheck: "false",
        ...more,
      }),
    );
  const check = (id, label, checked) =>
    h(
      "span",
      { class: "field" },
      h("input", { type: "checkbox", id, name: id, checked: !!checked }),
      h("label", { for: id }, label),
    );
  return h(
    "form",
    {
      class: "bar",
      role: "search",
      submit: (event) => {
        event.preventDefault();
        const { elements } = event.target;
        go(
          at("search", {
            repo,
            ref: elements.ref.value.trim(),
            q: elements.q.value,
            glob: elements.glob.value.trim(),
            regexp: elements.regexp.checked,
            nocase: elements.nocase.checked,
          }),
        );
      },
    },
    input("q", "Text", q, { type: "search", required: true }),
    input("glob", "In files like", glob, { placeholder: "*.go" }),
    input("ref", "Revision", ref, { placeholder: "default branch" }),
    check("regexp", "regular expression", regexp),
    check("nocase", "any case", nocase),
    h("button", { type: "submit" }, "Search"),
  );
}

// found is a file with its lines. What matches is marked only where the search was for a plain text: a
// regular expression of the server would have to be run here, by another engine and without a bound.
function found({ repo, ref, q, regexp, nocase }, file) {
  const split = highlighter(file.path);
  const needle = nocase ? q.toLowerCase() : q;
  const rows = file.lines.map((line) => {
    const first = regexp ? 0 : (nocase ? line.text.toLowerCase() : line.text).indexOf(needle);
    const from = line.text.length > lineMax ? Math.max(0, first - lineLead) : 0;
    const text = line.text.slice(from, from + lineMax);
    const ranges = [];
    const hay = nocase ? text.toLowerCase() : text;
    for (
      let i = regexp || hay.length !== text.length ? -1 : hay.indexOf(needle);
      i >= 0;
      i = hay.indexOf(needle, i + needle.length)
    ) {
      ranges.push([i, i + needle.length]);
    }
    const cell = lineCell(overlay(split.split(text), ranges));
    if (from > 0) cell.prepend(h("span", { class: "dim" }, "… "));
    if (from + lineMax < line.text.length) cell.append(h("span", { class: "dim" }, " …"));
    return h(
      "tr",
      {},
      h(
        "td",
        { class: "line" },
        h(
          "a",
          {
            href: at("file", { repo, ref, path: file.path, line: line.line_number }),
            "aria-label": `Line ${line.line_number}`,
          },
          line.line_number,
        ),
      ),
      cell,
    );
  });
  return h(
    "section",
    {},
    h("h2", {}, h("a", { href: at("file", { repo, ref, path: file.path }) }, shown(file.path))),
    codeTable(`Matches in ${plain(file.path)}`, ["Line", "Text"], h("tbody", {}, rows)),
  );
}
