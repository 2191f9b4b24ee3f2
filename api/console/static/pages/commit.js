// A commit with its changes, and the changes between two revisions.

import * as api from "../api.js";
import { diff } from "../diff.js";
import { h } from "../dom.js";
import { moment, short, subject } from "../format.js";
import { revisionBar, tokenFor } from "../repository.js";
import { at, go } from "../route.js";
import { shown, shownText } from "../visible.js";

export async function commit({ repo, ref }, signal) {
  const token = tokenFor(repo);
  const [{ commit: c }, changes] = await Promise.all([
    api.json(token, "repos/commit", { query: { ref }, signal }),
    diff(token, repo, "repos/diff", { ref }, signal),
  ]);
  const rest = c.message.slice(subject(c.message).length).trim();
  const person = (name, email) => [shown(name), " ", h("span", { class: "dim" }, "<", shown(email), ">")];
  const committed = c.committer_name !== c.author_name || c.committer_email !== c.author_email;
  const rows = [
    ["Commit", h("span", { class: "id whole" }, c.sha)],
    ["Author", person(c.author_name, c.author_email)],
    committed && ["Committer", person(c.committer_name, c.committer_email)],
    ["Date", h("time", { datetime: c.date }, moment(c.date))],
    [
      c.parent_shas.length === 1 ? "Parent" : "Parents",
      c.parent_shas.length === 0
        ? "none: a root"
        : c.parent_shas.map((id, i) => [
            i > 0 && " ",
            h("a", { class: "id", href: at("commit", { repo, ref: id }) }, short(id)),
          ]),
    ],
    c.signature && [
      "Signature",
      h(
        "details",
        {},
        h("summary", {}, "signed; the console does not check it"),
        h("pre", {}, shownText(c.signature)),
      ),
    ],
    [
      "Look at",
      [
        h("a", { href: at("tree", { repo, ref: c.sha }) }, "files"),
        " · ",
        h("a", { href: at("history", { repo, ref: c.sha }) }, "history"),
      ],
    ],
  ];
  return {
    title: `${subject(c.message) || "(no message)"} · ${short(c.sha)}`,
    heading: shown(subject(c.message) || "(no message)"),
    content: [
      rest && h("div", { class: "message" }, shownText(rest)),
      h(
        "dl",
        { class: "facts stacked" },
        rows.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
      ),
      h("h2", {}, "Changes", c.parent_shas.length > 1 && h("span", { class: "dim" }, " against the first parent")),
      changes,
    ],
  };
}

// compareForm asks for two revisions.
export function compareForm(page, parameters, signal) {
  const { repo, base } = parameters;
  const field = (name, label, value) => [
    h("label", { for: name }, label),
    h("input", {
      id: name,
      name,
      value: value ?? "",
      placeholder: name === "base" ? "default branch" : "branch, tag or commit",
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      list: "revisions",
    }),
  ];
  const form = revisionBar(page, parameters, signal, "Changes of");
  form.querySelector("button").before(...field("base", "since it left", base));
  form.addEventListener(
    "submit",
    (event) => {
      event.stopImmediatePropagation();
      event.preventDefault();
      go(at("compare", { repo, ref: form.elements.ref.value.trim(), base: form.elements.base.value.trim() }));
    },
    { capture: true },
  );
  return form;
}

export async function compare(parameters, signal) {
  const { repo, ref, base } = parameters;
  const token = tokenFor(repo);
  const form = compareForm("compare", parameters, signal);
  if (!ref)
    return { title: "Compare", content: [form, h("p", { class: "empty" }, "Name a branch, a tag or a commit.")] };
  const changes = await diff(token, repo, "repos/branches/diff", { branch: ref, base }, signal);
  return {
    title: `${ref} since ${base || "the default branch"}`,
    heading: ["Changes of ", shown(ref)],
    content: [form, changes],
  };
}
