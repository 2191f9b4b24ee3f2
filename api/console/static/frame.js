// What is around every page: the links of the console, and those of the repository.

import { h } from "./dom.js";
import { at, go } from "./route.js";
import * as session from "./session.js";
import { plain } from "./visible.js";

// around draws the links for a page. Pages of a repository have it in the parameter "repo".
export function around(page, parameters) {
  const signedIn = session.all().length > 0;
  document
    .getElementById("site")
    .replaceChildren(
      link("#/", "Repositories", page === "", signedIn),
      link(at("events"), "Events", page === "events" && !parameters.repo, signedIn),
      link(at("operations"), "Operations", page === "operations", true),
      link(at("signin"), signedIn ? "Tokens" : "Sign in", page === "signin", true),
      signedIn ? h("button", { type: "button", class: "plain", click: signOut }, "Sign out") : "",
    );
  const place = document.getElementById("place");
  const { repo, ref } = parameters;
  place.hidden = !repo;
  if (!repo) {
    place.replaceChildren();
    return;
  }
  const inFiles = page === "tree" || page === "file" || page === "blame";
  place.replaceChildren(
    h("a", { class: "repo", href: at("repository", { repo }) }, h("bdi", {}, plain(repo))),
    h(
      "span",
      { class: "tabs" },
      link(at("repository", { repo }), "Overview", page === "repository", true),
      link(at("tree", { repo, ref }), "Files", inFiles, true),
      link(at("history", { repo, ref }), "History", page === "history" || page === "commit", true),
      link(at("compare", { repo, ref }), "Compare", page === "compare", true),
      link(at("search", { repo, ref }), "Search", page === "search", true),
      link(at("events", { repo }), "Events", page === "events", true),
    ),
  );
}

function link(href, text, current, present) {
  return present ? h("a", { href, "aria-current": current ? "page" : null }, text) : "";
}

function signOut() {
  session.clear();
  go("#/signin");
}
