// The console: pages that read repositories through the public API. This file starts it.
//
// An address (route.js) leads to a page, a function in pages/ that asks the API (api.js) with a
// token of the tab (session.js) and returns its title and elements (dom.js). frame.js draws what is
// around a page. Text from repositories goes through visible.js. What pages share: code.js with
// highlight.js and languages.js for lines of files, diff.js with patch.js, graph.js, chart.js with
// metrics.js, stream.js for events, more.js below listings, and format.js.

import { Refusal } from "./api.js";
import { append, h, say } from "./dom.js";
import { around } from "./frame.js";
import { NoToken } from "./repository.js";
import { parse } from "./route.js";
import { plain } from "./visible.js";
import { blame } from "./pages/blame.js";
import { commit, compare } from "./pages/commit.js";
import { events } from "./pages/events.js";
import { file } from "./pages/file.js";
import { history } from "./pages/history.js";
import { operations } from "./pages/operations.js";
import { repositories } from "./pages/repositories.js";
import { repository } from "./pages/repository.js";
import { search } from "./pages/search.js";
import { signin } from "./pages/signin.js";
import { tree } from "./pages/tree.js";

const pages = {
  "": repositories,
  signin,
  repository,
  history,
  commit,
  compare,
  tree,
  file,
  blame,
  search,
  events,
  operations,
};

const main = document.getElementById("main");
let leave = new AbortController();
let first = true;

// show draws the page of the address. What the page before still waits for is cancelled.
async function show() {
  leave.abort();
  const leaving = new AbortController();
  leave = leaving;
  const signal = leaving.signal;
  const { page, parameters } = parse();
  around(page, parameters);
  main.setAttribute("aria-busy", "true");
  try {
    const make = Object.hasOwn(pages, page) ? pages[page] : missing;
    const view = await make(parameters, signal);
    if (!signal.aborted) draw(view, signal);
  } catch (error) {
    if (signal.aborted) return;
    draw(error instanceof NoToken ? await signin({ repo: error.repo }) : failure(error), signal);
  }
}

// draw puts a view on the page, and the focus to its beginning.
function draw(view, signal) {
  document.title = `${plain(view.title)} · Packhorse`;
  const heading = h("h1", { tabindex: "-1" }, view.heading ?? plain(view.title));
  main.replaceChildren();
  append(main, [heading, view.content]);
  main.removeAttribute("aria-busy");
  const target = view.target?.();
  if (target) target.scrollIntoView({ block: "center" });
  else window.scrollTo(0, 0);
  if (!first) (view.focus ?? heading).focus({ preventScroll: true });
  else view.focus?.focus();
  first = false;
  view.start?.(signal);
}

function missing() {
  return {
    title: "No such page",
    content: h("p", {}, "The address names no page of the console. ", h("a", { href: "#/" }, "Repositories")),
  };
}

// failure tells what the server said, or that it did not.
function failure(error) {
  if (!(error instanceof Refusal)) console.error(error);
  const title =
    error instanceof Refusal
      ? { 401: "The token was refused", 403: "The token does not allow this", 404: "Not found" }[error.status]
      : undefined;
  const text = error instanceof TypeError ? "The server could not be reached." : error.message;
  say(title ?? "The page could not be shown");
  return {
    title: title ?? "The page could not be shown",
    content: [
      h("p", { class: "notice" }, plain(text)),
      error.status === 401 && h("p", {}, h("a", { href: "#/signin" }, "Sign in with another token")),
      error.status === 404 &&
        Object.values(parse().parameters).some((value) => value.includes("\ufffd")) &&
        h(
          "p",
          {},
          "The name is not UTF-8. The API tells such names with U+FFFD in place of the bytes, " +
            "and cannot be asked for them.",
        ),
    ],
  };
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", show);
show();
