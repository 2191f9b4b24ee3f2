// The console: pages that read repositories through the public API. This file starts it.
//
// An address (route.js) leads to a page, a function in pages/ that asks the API (api.js) with a
// token of the tab (session.js) and returns its title and elements (dom.js). frame.js draws what is
// around a page. Text from repositories goes through visible.js. What pages share: code.js with
// highlight.js and languages.js for lines of files, diff.js with patch.js, graph.js, chart.js with
// metrics.js, stream.js for events, more.js below listings, and format.js.

import { Refusal } from "./api.js";
import { append, h, say } from "./dom.js";
import { count } from "./format.js";
import { around } from "./frame.js";
import { NoToken, isEmpty, revisionBar, tokenFor } from "./repository.js";
import { parse } from "./route.js";
import { plain } from "./visible.js";
import { blame } from "./pages/blame.js";
import { commit, compare, compareForm } from "./pages/commit.js";
import { events } from "./pages/events.js";
import { file } from "./pages/file.js";
import { history } from "./pages/history.js";
import { operations } from "./pages/operations.js";
import { repositories } from "./pages/repositories.js";
import { repository } from "./pages/repository.js";
import { fields, search } from "./pages/search.js";
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

// The forms of pages, which stay when what they ask for is refused.
const forms = { tree: revisionBar, file: revisionBar, blame: revisionBar, history: revisionBar, compare: compareForm };
forms.search = (_, parameters) => fields(parameters);

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
    const view = error instanceof NoToken ? await signin({ repo: error.repo }) : await failure(error, signal);
    if (!signal.aborted) draw(view, signal);
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

const titles = {
  401: "The token was refused",
  403: "The token does not allow this",
  404: "Not found",
  410: "Not kept any more",
  429: "Too many requests",
  503: "The server cannot answer now",
};

// failure tells what the server said, or that it did not, and what can be done: sign in, try again,
// or ask for something else by the form of the page.
async function failure(error, signal) {
  if (!(error instanceof Refusal)) console.error(error);
  const { page, parameters } = parse();
  const unreached = error instanceof TypeError;
  const title = titles[error.status] ?? "The page could not be shown";
  if (error.status === 404 && (await isBare(parameters, signal))) {
    return { title, content: h("p", { class: "empty" }, "The repository has no commit yet.") };
  }
  const wait = error.wait > 0 && ` The server asks to wait ${count(error.wait, "second")}.`;
  say(title);
  return {
    title,
    content: [
      h("p", { class: "notice" }, unreached ? "The server could not be reached." : plain(error.message), wait),
      error.status === 401 && h("p", {}, h("a", { href: "#/signin" }, "Sign in with another token")),
      (unreached || error.status === 429 || error.status >= 500) &&
        h("p", {}, h("button", { type: "button", click: show }, "Try again")),
      error.status === 404 &&
        Object.values(parameters).some((value) => value.includes("\ufffd")) &&
        h(
          "p",
          {},
          "The name is not UTF-8. The API tells such names with U+FFFD in place of the bytes, " +
            "and cannot be asked for them.",
        ),
      [400, 404, 410].includes(error.status) &&
        parameters.repo &&
        Object.hasOwn(forms, page) &&
        forms[page](page, parameters, signal),
    ],
  };
}

// isBare reports whether the repository that was asked for has no branch, so that nothing is found in
// it.
async function isBare({ repo }, signal) {
  try {
    return repo !== undefined && (await isEmpty(tokenFor(repo), "", signal));
  } catch {
    return false; // there is no such repository, or no answer
  }
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", show);
show();
