// What the pages of a repository share.

import * as api from "./api.js";
import { h } from "./dom.js";
import { at, go } from "./route.js";
import * as session from "./session.js";
import { plain, shown } from "./visible.js";

// tokenFor is the token of the tab for a repository.
export function tokenFor(repo) {
  const token = session.forRepository(repo);
  if (!token) throw new NoToken(repo);
  return token;
}

// NoToken says that the tab has no token for a repository.
export class NoToken extends Error {
  constructor(repo) {
    super("no token for the repository");
    this.repo = repo;
  }
}

// revisionBar is a form that shows the same page at another revision. Branches and tags are offered.
export function revisionBar(page, parameters, signal, label = "Revision") {
  const list = h("datalist", { id: "revisions" });
  const field = h("input", {
    name: "ref",
    id: "ref",
    value: parameters.ref ?? "",
    placeholder: "default branch",
    list: "revisions",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
  });
  const token = tokenFor(parameters.repo);
  for (const [path, key] of [
    ["repos/branches", "branches"],
    ["repos/tags", "tags"],
  ]) {
    api.json(token, path, { query: { limit: 100 }, signal }).then(
      (answer) => {
        list.append(
          ...answer[key].filter(({ name }) => plain(name) === name).map(({ name }) => h("option", { value: name })),
        );
      },
      () => {},
    ); // they are only offered
  }
  return h(
    "form",
    {
      class: "bar",
      submit: (event) => {
        event.preventDefault();
        go(at(page, { ...parameters, ref: field.value.trim(), line: undefined, cursor: undefined }));
      },
    },
    h("label", { for: "ref" }, label),
    field,
    list,
    h("button", { type: "submit" }, "Show"),
  );
}

// crumbs are links to the folders of a path.
export function crumbs({ repo, ref, path = "" }) {
  const names = path.split("/").filter(Boolean);
  return h(
    "nav",
    { class: "crumbs", "aria-label": "Path" },
    h("a", { href: at("tree", { repo, ref }) }, "root"),
    names.map((name, i) => [
      " / ",
      i === names.length - 1
        ? shown(name, { "aria-current": "location" })
        : h("a", { href: at("tree", { repo, ref, path: names.slice(0, i + 1).join("/") }) }, shown(name)),
    ]),
  );
}

// isEmpty reports whether a repository has nothing to show where no revision is named: no branch.
export async function isEmpty(token, ref, signal) {
  if (ref) return false;
  return (await api.json(token, "repos/branches", { query: { limit: 1 }, signal })).branches.length === 0;
}
