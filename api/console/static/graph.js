// The history as a drawn graph: lanes from children to parents, one row of SVG for each commit.

import { s } from "./dom.js";

const laneWidth = 13;
const lanesShown = 16; // further ones lie on the last
const colors = 6;

// Lanes lays out commits in the order of the API, children mostly before parents. It holds the lanes
// between two rows, so that pages join.
export class Lanes {
  constructor() {
    this.waiting = []; // the commit that each lane leads to; null for a free lane
    this.seen = new Set();
  }

  // place returns what a row shows: {node, from, through, to}, lanes above, passing, and below.
  place(commit) {
    const from = [];
    const through = [];
    this.waiting.forEach((id, lane) => {
      if (id === commit.sha) from.push(lane);
      else if (id !== null) through.push(lane);
    });
    const node = from[0] ?? this.free();
    for (const lane of from) this.waiting[lane] = null;
    this.waiting[node] = null;
    this.seen.add(commit.sha);
    const to = [];
    commit.parent_shas.forEach((parent, i) => {
      if (this.seen.has(parent)) return; // a clock was wrong: it is drawn already
      let lane = this.waiting.indexOf(parent);
      if (lane < 0) {
        lane = i === 0 ? node : this.free();
        this.waiting[lane] = parent;
      }
      to.push(lane);
    });
    while (this.waiting.at(-1) === null) this.waiting.pop();
    return { node, from, through, to };
  }

  free() {
    const lane = this.waiting.indexOf(null);
    if (lane >= 0) return lane;
    return this.waiting.push(null) - 1;
  }
}

// widthOf is how wide, in pixels, the rows are drawn.
export function widthOf(rows) {
  const lanes = Math.max(
    1,
    ...rows.map(({ node, from, through, to }) => 1 + Math.max(node, ...from, ...through, ...to)),
  );
  return Math.min(lanes, lanesShown) * laneWidth + 4;
}

// draw is the drawing of a row.
export function draw({ node, from, through, to }, width, height) {
  const x = (lane) => Math.min(lane, lanesShown - 1) * laneWidth + laneWidth / 2 + 2;
  const middle = height / 2;
  const line = (lane, d) => s("path", { class: `lane lane${lane % colors}`, d });
  const bend = (a, y1, b, y2) =>
    a === b
      ? `M${x(a)} ${y1}V${y2}`
      : `M${x(a)} ${y1}C${x(a)} ${(y1 + y2) / 2} ${x(b)} ${(y1 + y2) / 2} ${x(b)} ${y2}`;
  return s(
    "svg",
    { class: "lanes", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", focusable: "false" },
    through.map((lane) => line(lane, `M${x(lane)} 0V${height}`)),
    from.map((lane) => line(lane, bend(lane, 0, node, middle))),
    to.map((lane) => line(lane, bend(node, middle, lane, height))),
    s("circle", { class: `commit lane${node % colors}`, cx: x(node), cy: middle, r: to.length > 1 ? 4.5 : 3.5 }),
  );
}
