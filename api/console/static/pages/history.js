// The history of a revision, or of a path, with its graph.

import * as api from "../api.js";
import { h } from "../dom.js";
import { day, moment, short, subject } from "../format.js";
import { Lanes, draw, widthOf } from "../graph.js";
import { moreButton } from "../more.js";
import { crumbs, isEmpty, revisionBar, tokenFor } from "../repository.js";
import { at } from "../route.js";
import { shown } from "../visible.js";

const pageSize = 100;
const refsShown = 4; // at a commit
const rowHeight = 30; // as in graph.css

export async function history(parameters, signal) {
  const { repo, ref, path } = parameters;
  const token = tokenFor(repo);
  if (await isEmpty(token, ref, signal)) {
    return { title: "History", content: h("p", { class: "empty" }, "The repository has no commit yet.") };
  }
  const body = h("tbody");
  const more = moreButton("Older commits", async () => `${await next()} more commits`);
  const lanes = path ? null : new Lanes(); // parents of a path's commits are not in its list
  const names = labels(token, signal);
  let cursor;
  async function next() {
    const page = await api.json(token, "repos/commits", { query: { ref, path, cursor, limit: pageSize }, signal });
    const named = await names;
    const rows = lanes ? page.commits.map((commit) => lanes.place(commit)) : [];
    const width = widthOf(rows);
    body.append(
      ...page.commits.map((commit, i) => row(repo, commit, lanes && draw(rows[i], width, rowHeight), named)),
    );
    cursor = page.next_cursor;
    more.hidden = !page.has_more;
    return page.commits.length;
  }
  await next();
  return {
    title: `History of ${path || repo}${ref ? " at " + ref : ""}`,
    heading: path ? ["History of ", shown(path)] : "History",
    content: [
      path && crumbs(parameters),
      revisionBar("history", parameters, signal),
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Commits" },
        h(
          "table",
          { class: "history" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              lanes && h("td", {}),
              h("th", { scope: "col" }, "Commit"),
              h("th", { scope: "col" }, "Author"),
              h("th", { scope: "col" }, "Date"),
              h("th", { scope: "col" }, "Id"),
            ),
          ),
          body,
        ),
      ),
      more,
    ],
  };
}

// labels maps commits to the names of the branches and tags at them, the first hundred of each.
async function labels(token, signal) {
  const named = new Map();
  const add = (id, name, kind) => named.set(id, [...(named.get(id) ?? []), { name, kind }]);
  const [branches, tags] = await Promise.all(
    ["branches", "tags"].map((what) =>
      api.json(token, `repos/${what}`, { query: { limit: 100 }, signal }).catch(() => ({})),
    ),
  );
  for (const { head_sha: id, name } of branches.branches ?? []) add(id, name, "branch");
  for (const { sha, name } of tags.tags ?? []) add(sha, name, "tag");
  return named;
}

function row(repo, commit, drawing, named) {
  const merge = commit.parent_shas.length > 1;
  const refs = named.get(commit.sha) ?? [];
  return h(
    "tr",
    {},
    drawing && h("td", { class: "graph" }, drawing),
    h(
      "th",
      { scope: "row" },
      h(
        "span",
        { class: "subject" },
        refs.slice(0, refsShown).map(({ name, kind }) => h("span", { class: `label ${kind}` }, shown(name))),
        refs.length > refsShown && h("span", { class: "label tag" }, "and more"),
        h(
          "a",
          { href: at("commit", { repo, ref: commit.sha }) },
          shown(subject(commit.message) || "(no message)"),
          merge && h("span", { class: "unseen" }, " (merge)"),
        ),
      ),
    ),
    h("td", { class: "who" }, shown(commit.author_name)),
    h("td", { class: "when" }, h("time", { datetime: commit.date, title: moment(commit.date) }, day(commit.date))),
    h("td", { class: "id" }, short(commit.sha)),
  );
}
