// A folder of a revision.

import * as api from "../api.js";
import { h } from "../dom.js";
import { bytes, day, moment, short, subject } from "../format.js";
import { moreButton } from "../more.js";
import { crumbs, isEmpty, revisionBar, tokenFor } from "../repository.js";
import { at } from "../route.js";
import { plain, shown } from "../visible.js";

const pageSize = 1000;
const aboutPages = 2; // of files that are asked for sizes and commits
const kinds = { symlink: "symbolic link", submodule: "submodule" };

export async function tree(parameters, signal) {
  const { repo, ref, path = "" } = parameters;
  const token = tokenFor(repo);
  const folder = path.replace(/\/+$/, "");
  if (await isEmpty(token, ref, signal)) {
    return {
      title: repo,
      heading: "Files",
      content: h("p", { class: "empty" }, "The repository has no commit yet."),
    };
  }
  const last = lastCommit(token, repo, ref, folder, signal);
  const body = h("tbody");
  const more = moreButton("More entries", async () => `${await next()} more entries`);
  const files = new Map(); // cells of files by path
  let cursor;
  async function next() {
    const query = { ref, path: folder, recursive: "false", cursor, limit: pageSize };
    const page = await api.json(token, "repos/files", { query, signal });
    body.append(...page.entries.map((entry) => row(repo, ref, folder, entry, files)));
    cursor = page.next_cursor;
    more.hidden = !page.has_more;
    return page.entries.length;
  }
  if (folder) body.append(up(repo, ref, folder));
  await next();
  fill(token, repo, ref, folder, files, signal).catch(() => {}); // the cells stay empty
  const heads = [["Name"], ["Last commit", "subject-cell"], ["Date"], ["Size", "number"]].map(([text, name]) =>
    h("th", { scope: "col", class: name }, text),
  );
  return {
    title: `${folder || repo}${ref ? " at " + ref : ""}`,
    heading: folder ? shown(folder + "/") : "Files",
    content: [
      crumbs({ repo, ref, path: folder }),
      revisionBar("tree", parameters, signal),
      last,
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Entries" },
        h("table", { class: "files" }, h("thead", {}, h("tr", {}, heads)), body),
      ),
      more,
    ],
  };
}

function up(repo, ref, folder) {
  const path = folder.split("/").slice(0, -1).join("/");
  const link = h("a", { href: at("tree", { repo, ref, path }), "aria-label": "Folder above" }, "..");
  return h("tr", {}, h("th", { scope: "row" }, link), h("td", { class: "subject-cell" }), h("td"), h("td"));
}

// kindOf names what an entry is, beside a plain file or a folder.
export function kindOf(entry) {
  return entry.mode === "100755" ? "executable" : kinds[entry.type];
}

function row(repo, ref, folder, entry, files) {
  const name = folder && entry.path.startsWith(folder + "/") ? entry.path.slice(folder.length + 1) : entry.path;
  const page = { tree: "tree", submodule: "" }[entry.type] ?? "file";
  const label = entry.type === "tree" ? [shown(name), "/"] : shown(name);
  const kind = kindOf(entry);
  const cells = { commit: h("td", { class: "subject-cell" }), date: h("td"), size: h("td", { class: "number" }) };
  if (entry.type !== "tree") files.set(entry.path, cells);
  const { commit, date, size } = cells;
  const history = h(
    "a",
    { href: at("history", { repo, ref, path: entry.path }), "aria-label": plain(`History of ${entry.path}`) },
    "history",
  );
  if (entry.type === "tree") date.append(history);
  return h(
    "tr",
    { class: entry.type },
    h(
      "th",
      { scope: "row" },
      page ? h("a", { href: at(page, { repo, ref, path: entry.path }) }, label) : label,
      kind && h("span", { class: "mark" }, kind),
    ),
    commit,
    date,
    size,
  );
}

// fill adds sizes and last commits. The API tells those of all files below a folder, in tree order, so
// that a folder with much below it gets those of its first files only.
async function fill(token, repo, ref, folder, files, signal) {
  let cursor;
  const open = new Set(files.keys());
  for (let i = 0; i < aboutPages && open.size > 0; i++) {
    const query = { ref, path: folder, cursor, limit: pageSize };
    const page = await api.json(token, "repos/files/metadata", { query, signal });
    for (const file of page.files) {
      const cells = files.get(file.path);
      if (!cells) continue;
      open.delete(file.path);
      if (file.type !== "submodule") cells.size.append(bytes(file.size));
      const commit = page.commits[file.last_commit_sha];
      if (!commit) continue;
      const text = shown(subject(commit.message) || short(file.last_commit_sha));
      cells.commit.append(h("a", { href: at("commit", { repo, ref: file.last_commit_sha }) }, text));
      const when = h("time", { datetime: commit.date, title: moment(commit.date) }, day(commit.date));
      const label = plain(`${day(commit.date)}, history of ${file.path}`);
      cells.date.append(h("a", { href: at("history", { repo, ref, path: file.path }), "aria-label": label }, when));
    }
    if (!page.has_more) return;
    cursor = page.next_cursor;
  }
}

// lastCommit is a line about the commit that changed a folder last. It fills itself.
export function lastCommit(token, repo, ref, path, signal) {
  const line = h("p", { class: "last" }, "\u00a0");
  api.json(token, "repos/commits", { query: { ref, path, limit: 1 }, signal }).then(
    ({ commits: [commit] }) => {
      if (!commit) return;
      const date = h("time", { datetime: commit.date, title: moment(commit.date) }, day(commit.date));
      line.replaceChildren(
        h("a", { class: "id", href: at("commit", { repo, ref: commit.sha }) }, short(commit.sha)),
        " ",
        h("span", { class: "subject" }, shown(subject(commit.message))),
        " ",
        h("span", { class: "dim" }, shown(commit.author_name), ", ", date),
      );
    },
    () => {}, // the listing says what is wrong
  );
  return line;
}
