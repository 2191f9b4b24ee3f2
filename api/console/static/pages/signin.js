// Signing in: the tokens of the tab.

import * as api from "../api.js";
import { h, say } from "../dom.js";
import { moment } from "../format.js";
import { at, go, parse } from "../route.js";
import * as session from "../session.js";
import { plain, shown } from "../visible.js";

const listExpired = "The token of this tab with org:read has expired: the list of repositories takes another one.";

export async function signin({ repo }) {
  const tokens = session.all();
  const field = h("textarea", {
    id: "token",
    name: "token",
    rows: "4",
    required: true,
    autocomplete: "off",
    spellcheck: "false",
    autocapitalize: "off",
    "aria-describedby": repo ? "why token-help token-error" : "token-help token-error",
  });
  const error = h("p", { id: "token-error", class: "error", role: "alert" });
  const form = h(
    "form",
    { class: "panel sign-in", submit: (event) => take(event, field, error, repo) },
    h("label", { for: "token" }, "Token"),
    field,
    h(
      "p",
      { id: "token-help", class: "dim" },
      "A token with ",
      h("code", {}, "org:read"),
      " lists the repositories; one with ",
      h("code", {}, "git:read"),
      " reads the repository that it names. They stay in this tab, until it is closed.",
    ),
    error,
    h("button", { type: "submit" }, "Sign in"),
  );
  return {
    title: repo ? `No token for ${repo}` : tokens.length > 0 ? "Tokens" : "Sign in",
    heading: repo && ["No token for ", shown(repo)],
    focus: field,
    content: [
      repo ? howTo(repo) : session.hadOrganization() && h("p", { class: "notice" }, listExpired),
      form,
      tokens.length > 0 && list(tokens),
    ],
  };
}

// howTo tells how to get a token for a repository. The name is put into a command only if no shell
// could take it for more than a name.
function howTo(repo) {
  const org = session.organization() || "ORG";
  const plainly = /^[\w.-]+(\/[\w.-]+)*$/.test(repo) && /^[\w.-]+$/.test(org);
  const why = session.hadRepository(repo)
    ? "The token of this tab for the repository has expired. "
    : "A token is for one repository, and this tab has none for this one. ";
  return [
    h("p", { id: "why" }, why, plainly ? "The organization signs one:" : "The organization signs one."),
    plainly && h(
      "pre",
      { class: "panel", tabindex: "0" },
      `packhorse token --org ${org} --key KEY.pem --repo ${repo} --scope git:read`,
    ),
  ];
}

async function take(event, field, error, repo) {
  event.preventDefault();
  error.textContent = "";
  const text = field.value.trim().replace(/^Bearer\s+/i, "");
  const claims = session.claimsOf(text);
  try {
    if (!claims) throw new Error("This is no token: three parts with dots between them are expected.");
    const lists = claims.scopes.includes("org:read");
    if (!lists && !session.reads(claims)) {
      throw new Error("The token has neither org:read nor git:read for a repository: it can show nothing.");
    }
    try {
      await api.json(text, lists ? "repos" : "repo", { query: lists ? { limit: 1 } : {} });
    } catch (problem) {
      if (lists || problem.status !== 404) throw problem; // the token is good, its repository does not exist yet
    }
    session.add(text);
    field.value = "";
    const { page, parameters } = parse();
    go(
      repo && claims.repo === repo
        ? at(page === "signin" ? "repository" : page, page === "signin" ? { repo } : parameters)
        : lists
          ? "#/"
          : at("repository", { repo: claims.repo }),
    );
  } catch (problem) {
    error.textContent = told(problem);
    field.focus();
  }
}

function told(problem) {
  if (problem.status === 404) return "There is no API at this address; it may be the listener for operators.";
  if (problem.status === 401) return `The server refuses the token: ${problem.message}`;
  return problem instanceof TypeError ? "The server could not be reached." : problem.message;
}

function list(tokens) {
  return [
    h("h2", {}, "Tokens of this tab"),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tokens of this tab" },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["Organization", "Repository", "Scopes", "Expires", "Subject"].map((t) => h("th", { scope: "col" }, t)),
            h("td", {}),
          ),
        ),
        h(
          "tbody",
          {},
          tokens.map(
            ({ text, claims }) =>
              claims &&
              h(
                "tr",
                {},
                h("th", { scope: "row" }, shown(claims.org)),
                h(
                  "td",
                  {},
                  claims.repo ? h("a", { href: at("repository", { repo: claims.repo }) }, shown(claims.repo)) : "–",
                ),
                h("td", {}, shown(claims.scopes.join(", "))),
                h(
                  "td",
                  {},
                  Number.isFinite(claims.expires) && Math.abs(claims.expires) < 8e12
                    ? moment(new Date(claims.expires * 1000).toISOString())
                    : "–",
                  session.expired(claims) && h("span", { class: "mark expired" }, "expired"),
                ),
                h("td", {}, shown(claims.subject)),
                h(
                  "td",
                  {},
                  h(
                    "button",
                    {
                      type: "button",
                      class: "plain",
                      "aria-label": plain(`Remove the token for ${claims.repo || claims.org}`),
                      click: () => {
                        session.remove(text);
                        go(location.hash);
                        say("Token removed");
                      },
                    },
                    "Remove",
                  ),
                ),
              ),
          ),
        ),
      ),
    ),
  ];
}
