// For operators: health, disk, caches, maintenance, shared stores and slow requests, from /readyz and
// /metrics.

import * as api from "../api.js";
import { Chart } from "../chart.js";
import { h } from "../dom.js";
import { bytes, figure, seconds } from "../format.js";
import { Histogram, parse, sum } from "../metrics.js";
import { plain } from "../visible.js";

const every = 5000; // milliseconds
const slow = 2.048; // seconds, a bound of the buckets

const perSecond = (n) => `${figure(n)}/s`;
const bytesPerSecond = (n) => `${bytes(n)}/s`;
const percent = (n) => (Number.isFinite(n) ? `${Math.round(n * 100)} %` : "–");

// A gauge shows a metric as it is, a rate how fast a counter grows.
const gauge = (metric, format = figure) => ({ format, value: (now) => sum(now, metric) });
const rate = (metric, format = perSecond, fits) => ({
  format,
  value: (now, before, took) => {
    const value = sum(now, metric, fits);
    if (value === undefined) return undefined;
    const earlier = before ? sum(before, metric, fits) : undefined;
    return earlier === undefined || earlier > value ? NaN : (value - earlier) / took;
  },
});
const share = (part, ...others) => ({
  format: percent,
  value: (now) => {
    const one = sum(now, part);
    return one === undefined
      ? undefined
      : one / [part, ...others].reduce((all, name) => all + (sum(now, name) ?? 0), 0);
  },
});
const quantile = (q, metric) => ({
  format: seconds,
  value: (now, before) => {
    const [all, earlier] = [now, before].map((metrics) => metrics && total(Histogram.from(metrics, metric, "route")));
    return all && (earlier ? all.since(earlier).quantile(q) : NaN);
  },
});

function total(histograms) {
  return [...histograms.values()].reduce((all, one) => (all ? all.plus(one) : one), undefined);
}

const sections = {
  Requests: {
    Requests: rate("packhorse_http_requests_total"),
    "Errors of the server": rate("packhorse_http_requests_total", perSecond, ({ status }) => status >= "500"),
    Median: quantile(0.5, "packhorse_http_request_duration_seconds"),
    "99th percentile": quantile(0.99, "packhorse_http_request_duration_seconds"),
    Sent: rate("packhorse_http_sent_bytes_total", bytesPerSecond),
    Received: rate("packhorse_http_received_bytes_total", bytesPerSecond),
    Connections: gauge("packhorse_http_connections"),
    "Waiting for a slot": gauge("packhorse_heavy_slots_waiting"),
  },
  "Disk and memory": {
    "Free disk": gauge("packhorse_disk_free_bytes", bytes),
    "Memory of the process": gauge("process_resident_memory_bytes", bytes),
    "Memory of requests": gauge("packhorse_request_memory_bytes", bytes),
    Processor: rate("process_cpu_seconds_total", percent),
    "Open files": gauge("process_open_fds"),
    Goroutines: gauge("go_goroutines"),
  },
  Caches: {
    "Clone cache": gauge("packhorse_clone_cache_bytes", bytes),
    "Packs from the cache": share("packhorse_clone_cache_hits_total", "packhorse_clone_cache_generated_total"),
  },
  "Database and bucket": {
    "Round trips": rate("packhorse_database_trip_duration_seconds_count"),
    "Median of round trips": quantile(0.5, "packhorse_database_trip_duration_seconds"),
    "99th percentile of round trips": quantile(0.99, "packhorse_database_trip_duration_seconds"),
    "Tried again": rate("packhorse_database_retries_total"),
    "Requests to the bucket": rate("packhorse_bucket_request_duration_seconds_count"),
    "99th percentile of these": quantile(0.99, "packhorse_bucket_request_duration_seconds"),
    "Blocks of remote files": gauge("packhorse_file_cache_bytes", bytes),
    "Reads from these": share("packhorse_file_cache_hits_total", "packhorse_file_cache_misses_total"),
  },
  "Among the servers": {
    Duties: gauge("packhorse_duties"),
    "Silent since": gauge("packhorse_lease_age_seconds", seconds),
    "Clocks apart": gauge("packhorse_clock_difference_seconds", seconds),
  },
  Maintenance: {
    Rounds: gauge("packhorse_maintenance_rounds_total"),
    Compactions: gauge("packhorse_maintenance_compactions_total"),
    "Postponed steps": gauge("packhorse_maintenance_postponed_total"),
    "Failed steps": gauge("packhorse_maintenance_failures_total"),
    Scrubbed: rate("packhorse_scrub_read_bytes_total", bytesPerSecond),
    "Scrub passes": gauge("packhorse_scrub_passes_total"),
    "Webhooks waiting": gauge("packhorse_webhook_pending"),
    "Syncs running": gauge("packhorse_upstream_running"),
  },
};

// What should be 0, with what it means otherwise.
const alarms = {
  packhorse_writes_refused: "writes are refused, the disk is full",
  packhorse_damaged: "stored things were found damaged",
  packhorse_panics_total: "requests ended in a panic",
  packhorse_maintenance_failures_total: "steps of maintenance failed",
  packhorse_audit_failures_total: "records of the audit log were lost",
  packhorse_organizations_unread: "paths of organizations cannot be read",
  packhorse_database_undecided_total: "clients were told that the outcome of a write is unknown",
};

export async function operations(_, signal) {
  const first = await api.text("metrics", signal);
  const health = h("p", { class: "health", role: "status" }, "…");
  if (first.status !== 200) {
    await showHealth(health, null, signal);
    return {
      title: "Operations",
      content: [
        health,
        h(
          "p",
          { class: "notice" },
          "The metrics are not served at this address. With --admin-listen they are served on the operators' " +
            "listener alone, and this page is complete there.",
        ),
      ],
    };
  }
  const groups = Object.entries(sections).map(([name, rows]) => {
    const charts = Object.entries(rows).map(([title, { format, value }]) => ({
      chart: new Chart(title, format),
      value,
    }));
    const drawn = h(
      "div",
      { class: "charts" },
      charts.map(({ chart }) => chart.element),
    );
    return { element: h("section", {}, h("h2", {}, name), drawn), charts };
  });
  const routes = h("tbody");
  const several = h(
    "p",
    { class: "notice", role: "status", hidden: true },
    "Several servers answer at this address, and each tells of itself alone: the figures are now of the one, now of " +
      "another. Open the console at the address of one of them.",
  );
  const looks = new Map(); // the last look at each process
  let last;
  const update = async (text) => {
    const now = parse(text);
    const time = performance.now() / 1000;
    const process = sum(now, "process_start_time_seconds");
    const before = looks.get(process);
    if (before && process !== last) several.hidden = false; // one that was gone would not be back
    const took = time - (before?.time ?? 0);
    for (const { element, charts } of groups) {
      for (const { chart, value } of charts) chart.add(value(now, before?.metrics ?? null, took));
      element.hidden = charts.every(({ chart }) => chart.element.hidden); // what this server does not have
    }
    routes.replaceChildren(...slowest(now));
    await showHealth(health, now, signal);
    looks.set(process, { metrics: now, time });
    last = process;
  };
  await update(first.answer);
  return {
    title: "Operations",
    content: [
      health,
      several,
      groups.map(({ element }) => element),
      h(
        "section",
        {},
        h("h2", {}, "Slow requests"),
        h(
          "p",
          { class: "dim" },
          "By route, since the server started. Streams of events last as long as their clients want.",
        ),
        h(
          "div",
          { class: "scroll", tabindex: "0", role: "region", "aria-label": "Slow requests" },
          h(
            "table",
            {},
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                h("th", { scope: "col" }, "Route"),
                ["Requests", "Mean", "95th percentile", "Over 2 s"].map((text) =>
                  h("th", { scope: "col", class: "number" }, text),
                ),
              ),
            ),
            routes,
          ),
        ),
      ),
    ],
    start: (ended) => {
      let timer;
      const again = async () => {
        timer = setTimeout(again, every);
        if (document.hidden) return;
        try {
          const { status, answer } = await api.text("metrics", ended);
          if (status === 200) await update(answer);
        } catch {
          if (!ended.aborted) tell(health, "bad", "The server does not answer.");
        }
      };
      timer = setTimeout(again, 1000); // rates take two looks
      ended.addEventListener("abort", () => clearTimeout(timer), { once: true });
    },
  };
}

function slowest(metrics) {
  return [...Histogram.from(metrics, "packhorse_http_request_duration_seconds", "route")]
    .filter(([, histogram]) => histogram.count > 0)
    .sort(([, a], [, b]) => b.quantile(0.95) - a.quantile(0.95))
    .slice(0, 15)
    .map(([route, histogram]) =>
      h(
        "tr",
        {},
        h("th", { scope: "row", class: "route" }, plain(route)),
        h("td", { class: "number" }, figure(histogram.count)),
        h("td", { class: "number" }, seconds(histogram.sum / histogram.count)),
        h("td", { class: "number" }, seconds(histogram.quantile(0.95))),
        h("td", { class: "number" }, figure(histogram.above(slow))),
      ),
    );
}

async function showHealth(element, metrics, signal) {
  const { status, answer } = await api.text("readyz", signal);
  const found = metrics
    ? Object.entries(alarms)
        .filter(([name]) => sum(metrics, name) > 0)
        .map(([, text]) => text)
    : [];
  const text = [answer.trim(), ...found].join("; ");
  tell(element, status !== 200 ? "bad" : found.length > 0 || answer.trim() !== "ready" ? "warn" : "good", text);
}

// tell speaks only when something changed.
function tell(element, state, text) {
  element.dataset.state = state;
  if (element.textContent !== text) element.textContent = plain(text);
}
