// A repository: what it stores, its branches and tags.

import * as api from "../api.js";
import { h } from "../dom.js";
import { bytes, figure, moment, short, time } from "../format.js";
import { moreButton } from "../more.js";
import { tokenFor } from "../repository.js";
import { at } from "../route.js";
import { shown } from "../visible.js";

const pageSize = 50;

export async function repository({ repo }, signal) {
  const token = tokenFor(repo);
  const [about, usage] = await Promise.all([
    api.json(token, "repo", { signal }),
    api.json(token, "repos/usage", { signal }),
  ]);
  const branches = await listing(token, repo, "branches", about.default_branch, signal);
  const tags = await listing(token, repo, "tags", "", signal);
  return { title: repo, heading: shown(repo), content: [facts(about, usage), branches, tags] };
}

function facts(about, usage) {
  const rows = [
    ["Stored", bytes(usage.stored_bytes)],
    ["Objects", figure(usage.objects)],
    ["Refs", figure(usage.refs)],
    ["Last write", time(usage.last_write)],
    ["Created", time(about.created_at)],
    ["Default branch", shown(about.default_branch)],
  ];
  if (usage.shared_bytes) rows.push(["Read by forks", bytes(usage.shared_bytes)]);
  if (usage.borrowed_bytes) rows.push(["Borrowed as a fork", bytes(usage.borrowed_bytes)]);
  if (usage.quota) rows.push(["Left of the quota", bytes(usage.quota.left_bytes)]);
  if (about.base_repo) {
    rows.push(["Upstream", shown(`${about.base_repo.provider}: ${about.base_repo.owner}/${about.base_repo.name}`)]);
  }
  if (about.sync) rows.push(["Sync", shown(about.sync.last_error || about.sync.state)]);
  return [
    h(
      "dl",
      { class: "facts" },
      rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    ),
    h(
      "p",
      { class: "clone" },
      h("span", { class: "dim" }, "Clone "),
      h("code", {}, `git clone ${new URL(about.repo_name + ".git", api.server)}`),
    ),
  ];
}

// listing is a table of branches or of tags, page by page.
async function listing(token, repo, what, base, signal) {
  const body = h("tbody");
  const more = moreButton(`More ${what}`, async () => `${await next()} more ${what}`);
  let cursor;
  async function next() {
    const page = await api.json(token, `repos/${what}`, { query: { cursor, limit: pageSize }, signal });
    body.append(...page[what].map((ref) => row(repo, what, base, ref)));
    cursor = page.next_cursor;
    more.hidden = !page.has_more;
    return page[what].length;
  }
  const found = await next();
  const title = what === "branches" ? "Branches" : "Tags";
  return h(
    "section",
    {},
    h("h2", {}, title),
    found === 0
      ? h("p", { class: "empty" }, `No ${what} yet.`)
      : h(
          "div",
          { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
          h(
            "table",
            { class: "wide" },
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                h("th", { scope: "col" }, "Name"),
                h("th", { scope: "col" }, "Tip"),
                what === "branches" && h("th", { scope: "col" }, "Created"),
                h("th", { scope: "col" }, "Look at"),
              ),
            ),
            body,
          ),
        ),
    more,
  );
}

function row(repo, what, base, ref) {
  const id = ref.head_sha ?? ref.sha;
  const named = (what === "branches" ? "refs/heads/" : "refs/tags/") + ref.name;
  return h(
    "tr",
    {},
    h(
      "th",
      { scope: "row" },
      h("a", { href: at("tree", { repo, ref: named }) }, shown(ref.name)),
      ref.name === base && h("span", { class: "mark" }, "default"),
    ),
    h("td", {}, h("a", { class: "id", href: at("commit", { repo, ref: id }) }, short(id))),
    what === "branches" && h("td", { title: moment(ref.created_at) }, time(ref.created_at)),
    h(
      "td",
      {},
      h("a", { href: at("history", { repo, ref: named }) }, "history"),
      base && ref.name !== base && [" · ", h("a", { href: at("compare", { repo, ref: named }) }, "compare")],
    ),
  );
}
