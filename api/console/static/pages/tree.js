// A folder of a revision.

import * as api from "../api.js";
import { h } from "../dom.js";
import { day, moment, short, subject } from "../format.js";
import { moreButton } from "../more.js";
import { crumbs, isEmpty, revisionBar, tokenFor } from "../repository.js";
import { at } from "../route.js";
import { shown } from "../visible.js";

const pageSize = 1000;
const kinds = { tree: "folder", symlink: "symbolic link", submodule: "submodule", blob: "file" };

export async function tree(parameters, signal) {
  const { repo, ref, path = "" } = parameters;
  const token = tokenFor(repo);
  const folder = path.replace(/\/+$/, "");
  const body = h("tbody");
  const more = moreButton("More entries", async () => `${await next()} more entries`);
  let cursor;
  async function next() {
    const query = { ref, path: folder, recursive: "false", cursor, limit: pageSize };
    const page = await api.json(token, "repos/files", { query, signal });
    body.append(...page.entries.map((entry) => row(repo, ref, folder, entry)));
    cursor = page.next_cursor;
    more.hidden = !page.has_more;
    return page.entries.length;
  }
  if (await isEmpty(token, ref, signal)) {
    return {
      title: repo,
      heading: "Files",
      content: h("p", { class: "empty" }, "The repository has no commit yet."),
    };
  }
  const top = [crumbs({ repo, ref, path: folder }), revisionBar("tree", parameters, signal)];
  const last = lastCommit(token, repo, ref, folder, signal);
  await next();
  return {
    title: `${folder || repo}${ref ? " at " + ref : ""}`,
    heading: folder ? shown(folder + "/") : "Files",
    content: [
      top,
      last,
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Entries" },
        h(
          "table",
          { class: "files" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              h("th", { scope: "col" }, "Name"),
              h("th", { scope: "col" }, "Kind"),
              h("th", { scope: "col", class: "mode" }, "Mode"),
              h("td", {}),
            ),
          ),
          h(
            "tbody",
            {},
            folder &&
              h(
                "tr",
                {},
                h(
                  "th",
                  { scope: "row" },
                  h("a", { href: at("tree", { repo, ref, path: folder.split("/").slice(0, -1).join("/") }) }, ".."),
                ),
                h("td", {}, "folder"),
                h("td", { class: "mode" }),
                h("td", {}),
              ),
          ),
          body,
        ),
      ),
      more,
    ],
  };
}

function row(repo, ref, folder, entry) {
  const name = folder && entry.path.startsWith(folder + "/") ? entry.path.slice(folder.length + 1) : entry.path;
  const kind = kinds[entry.type] ?? entry.type;
  const page = { tree: "tree", submodule: "" }[entry.type] ?? "file";
  const label = entry.type === "tree" ? [shown(name), "/"] : shown(name);
  return h(
    "tr",
    { class: entry.type },
    h("th", { scope: "row" }, page ? h("a", { href: at(page, { repo, ref, path: entry.path }) }, label) : label),
    h("td", {}, entry.mode === "100755" ? "executable" : kind),
    h("td", { class: "id mode" }, entry.mode),
    h(
      "td",
      {},
      entry.type !== "submodule" &&
        h(
          "a",
          {
            class: "dim",
            href: at("history", { repo, ref, path: entry.path }),
            "aria-label": `History of ${entry.path}`,
          },
          "history",
        ),
    ),
  );
}

// lastCommit is a line about the commit that changed a folder last. It fills itself.
export function lastCommit(token, repo, ref, path, signal) {
  const line = h("p", { class: "last" }, "\u00a0");
  api.json(token, "repos/commits", { query: { ref, path, limit: 1 }, signal }).then(
    ({ commits: [commit] }) => {
      if (!commit) return;
      line.replaceChildren(
        h("a", { class: "id", href: at("commit", { repo, ref: commit.sha }) }, short(commit.sha)),
        " ",
        h("span", { class: "subject" }, shown(subject(commit.message))),
        " ",
        h(
          "span",
          { class: "dim" },
          shown(commit.author_name),
          ", ",
          h("time", { datetime: commit.date, title: moment(commit.date) }, day(commit.date)),
        ),
      );
    },
    () => {},
  ); // the listing says what is wrong
  return line;
}
