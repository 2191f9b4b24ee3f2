// Events, live: of the organization, or of one repository.

import { h } from "../dom.js";
import { moment, short, zeroID } from "../format.js";
import { tokenFor } from "../repository.js";
import { at } from "../route.js";
import * as session from "../session.js";
import { follow } from "../stream.js";
import { plain, shown } from "../visible.js";
import { signin } from "./signin.js";

const kept = 200; // events on the page

export async function events({ repo, past }) {
  const token = repo ? tokenFor(repo) : session.forOrganization();
  if (!token && session.all().length === 0) return signin({});
  if (!token) {
    return {
      title: "Events",
      content: h(
        "p",
        { class: "empty" },
        "The events of the organization take a token with org:read. Those of a repository are among its own pages.",
      ),
    };
  }
  const status = h("span", { role: "status", class: "live" }, "connecting");
  const list = h("ol", { class: "events" });
  const log = h("div", { role: "log", "aria-live": "polite", "aria-label": "Events" }, list);
  const empty = h("p", { class: "empty" }, "Nothing has happened since the page was opened.");
  const waiting = [];
  let scheduled = false;
  const flush = () => {
    scheduled = false;
    for (const event of waiting.splice(0).slice(-kept)) list.prepend(item(event, repo));
    while (list.childElementCount > kept) list.lastElementChild.remove();
    empty.hidden = true;
  };
  const take = (event) => {
    waiting.push(event);
    if (waiting.length > kept) waiting.shift();
    if (scheduled) return;
    scheduled = true;
    setTimeout(flush, 100); // a busy server is read in portions
  };
  const start = past ? {} : repo ? { after: "latest" } : { cursor: "latest" };
  return {
    title: repo ? `Events of ${repo}` : "Events",
    heading: repo ? ["Events of ", shown(repo)] : "Events",
    content: [
      h(
        "p",
        { class: "about" },
        status,
        past
          ? h("a", { href: at("events", { repo }) }, "Only new events")
          : h("a", { href: at("events", { repo, past: "1" }) }, "Past events, too"),
      ),
      empty,
      log,
    ],
    start: (signal) =>
      follow(token, repo ? "repos/events" : "events", {
        query: start,
        signal,
        take,
        state: (text) => {
          status.textContent = text;
          status.dataset.state = text;
        },
      }).catch((error) => {
        status.textContent = `ended: ${plain(error.message)}`;
        status.dataset.state = "ended";
      }),
  };
}

function item(event, of) {
  const repo = of ?? event.repo_name;
  return h(
    "li",
    {},
    h("time", { datetime: event.time }, moment(event.time)),
    h("span", { class: "mark" }, plain(event.cause)),
    !of && h("a", { href: at("repository", { repo }) }, shown(repo)),
    h("span", { class: "what" }, what(event, repo)),
    event.actor && h("span", { class: "dim" }, "by ", shown(event.actor)),
  );
}

function what(event, repo) {
  if (!event.ref)
    return { create: "created", delete: "deleted", undelete: "brought back" }[event.event] ?? plain(event.event);
  const { before, after } = event;
  const ref = shown(event.ref.replace(/^refs\/(heads|tags)\//, ""));
  const commit = (id) => h("a", { class: "id", href: at("commit", { repo, ref: id }) }, short(id));
  if (before === zeroID) return [ref, " created at ", commit(after)];
  if (after === zeroID) return [ref, " deleted, was at ", commit(before)];
  return [ref, " ", commit(before), " → ", commit(after)];
}
