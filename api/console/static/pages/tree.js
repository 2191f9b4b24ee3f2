// A folder of a revision.

import * as api from "../api.js";
import { h } from "../dom.js";
import { bytes, day, moment, short, subject } from "../format.js";
import { moreButton } from "../more.js";
import { crumbs, isEmpty, revisionBar, tokenFor } from "../repository.js";
import { at } from "../route.js";
import { plain, shown } from "../visible.js";

const pageSize = 1000;
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
  const entries = new Map(); // their cells by path
  const query = { ref, path: folder, recursive: "false", limit: pageSize };
  let cursor;
  let told = {}; // the last page of sizes and commits
  async function next() {
    const page = await api.json(token, "repos/files", { query: { ...query, cursor }, signal });
    body.append(...page.entries.map((entry) => row(repo, ref, folder, entry, entries)));
    cursor = page.next_cursor;
    more.hidden = !page.has_more;
    told = tell(told);
    return page.entries.length;
  }
  // tell adds sizes and last commits, which come in the same order. Where they do not come, the
  // cells stay empty.
  async function tell(earlier) {
    try {
      const { next_cursor: from } = await earlier;
      const page = await api.json(token, "repos/files/metadata", { query: { ...query, cursor: from }, signal });
      for (const entry of page.files) complete(repo, entry, page.commits[entry.last_commit_sha], entries);
      return page;
    } catch {
      return {};
    }
  }
  if (folder) body.append(up(repo, ref, folder));
  await next();
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

function row(repo, ref, folder, entry, entries) {
  const name = folder && entry.path.startsWith(folder + "/") ? entry.path.slice(folder.length + 1) : entry.path;
  const page = { tree: "tree", submodule: "" }[entry.type] ?? "file";
  const label = entry.type === "tree" ? [shown(name), "/"] : shown(name);
  const kind = kindOf(entry);
  const when = h(
    "a",
    { href: at("history", { repo, ref, path: entry.path }), "aria-label": plain(`History of ${entry.path}`) },
    "history",
  );
  const commit = h("td", { class: "subject-cell" });
  const size = h("td", { class: "number" });
  entries.set(entry.path, { commit, when, size });
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
    h("td", {}, when),
    size,
  );
}

// complete shows the size and the last commit of an entry.
function complete(repo, entry, commit, entries) {
  const cells = entries.get(entry.path);
  if (!cells) return;
  if (entry.type !== "submodule" && entry.type !== "tree") cells.size.textContent = bytes(entry.size);
  if (!commit) return;
  const text = shown(subject(commit.message) || short(entry.last_commit_sha));
  cells.commit.replaceChildren(h("a", { href: at("commit", { repo, ref: entry.last_commit_sha }) }, text));
  cells.when.replaceChildren(h("time", { datetime: commit.date, title: moment(commit.date) }, day(commit.date)));
  cells.when.setAttribute("aria-label", plain(`${day(commit.date)}, history of ${entry.path}`));
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
