// The repositories of the organization.

import * as api from "../api.js";
import { h } from "../dom.js";
import { bytes, day, moment, time } from "../format.js";
import { moreButton } from "../more.js";
import { at, go } from "../route.js";
import * as session from "../session.js";
import { shown } from "../visible.js";
import { signin } from "./signin.js";

const pageSize = 50;

export async function repositories({ q }, signal) {
  const token = session.forOrganization();
  const names = session.repositories();
  if (!token) return names.length > 0 ? alone(names, signal) : signin({});
  const body = h("tbody");
  const more = moreButton("More repositories", async () => `${await next()} more repositories`);
  let cursor;
  async function next() {
    const page = await api.json(token, "repos", { query: { q, cursor, limit: pageSize }, signal });
    body.append(...page.repos.map((repo) => row(repo, signal)));
    cursor = page.next_cursor;
    more.hidden = !page.has_more;
    return page.repos.length;
  }
  const found = await next();
  const field = h("input", {
    type: "search",
    name: "q",
    id: "q",
    value: q ?? "",
    autocomplete: "off",
    spellcheck: "false",
  });
  const form = h(
    "form",
    {
      class: "bar",
      role: "search",
      submit: (event) => {
        event.preventDefault();
        go(at("", { q: field.value }));
      },
    },
    h("label", { for: "q" }, "Name contains"),
    field,
    h("button", { type: "submit" }, "Find"),
  );
  return {
    title: "Repositories",
    content: [
      form,
      found
        ? table(body)
        : h("p", { class: "empty" }, q ? "No repository has this in its name." : "There is no repository yet."),
      more,
    ],
  };
}

// alone lists what the tokens of the tab name, where none of them lists the organization's.
async function alone(names, signal) {
  const why = session.hadOrganization()
    ? "The token of this tab with org:read has expired"
    : "No token of this tab has org:read";
  return {
    title: "Repositories",
    content: [
      h("p", { class: "dim" }, `${why}: these are the repositories that its tokens name.`),
      table(
        h(
          "tbody",
          {},
          names.map((name) => row({ repo_name: name }, signal)),
        ),
      ),
    ],
  };
}

function table(body) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Repositories" },
    h(
      "table",
      { class: "wide" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col" }, "Repository"),
          h("th", { scope: "col", class: "number" }, "Stored"),
          h("th", { scope: "col" }, "Last write"),
          h("th", { scope: "col" }, "Default branch"),
          h("th", { scope: "col" }, "Created"),
        ),
      ),
      body,
    ),
  );
}

// row shows a repository. Its size and last write take a token for it.
function row(repo, signal) {
  const name = repo.repo_name;
  const token = session.forRepository(name);
  const size = h("td", { class: "number" }, token ? "…" : "–");
  const write = h(
    "td",
    {},
    token ? "…" : h("a", { class: "dim", href: at("signin", { repo: name }) }, "needs a token for it"),
  );
  if (token) {
    api.json(token, "repos/usage", { signal }).then(
      (usage) => {
        size.replaceChildren(bytes(usage.stored_bytes));
        write.replaceChildren(time(usage.last_write));
      },
      () => {
        size.replaceChildren("–");
        write.replaceChildren("–");
      },
    );
  }
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, h("a", { href: at("repository", { repo: name }) }, shown(name))),
    size,
    write,
    h("td", {}, repo.default_branch ? shown(repo.default_branch) : "–"),
    h(
      "td",
      {},
      repo.created_at
        ? h("time", { datetime: repo.created_at, title: moment(repo.created_at) }, day(repo.created_at))
        : "–",
    ),
  );
}
