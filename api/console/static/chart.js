// Small charts: a line of the last values, with the newest one as text.

import { h, s } from "./dom.js";

const width = 200;
const height = 44;

// Chart is a figure with a name. Its element is in the page, add draws it anew.
export class Chart {
  // format makes a text of a value; kept is how many values are drawn.
  constructor(name, format, kept = 120) {
    this.name = name;
    this.format = format;
    this.kept = kept;
    this.values = [];
    this.value = h("span", { class: "value" }, "–");
    this.line = s("path", { class: "line" });
    this.area = s("path", { class: "area" });
    this.drawing = s(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `${name}: no value yet`,
      },
      this.area,
      this.line,
    );
    this.element = h("div", { class: "chart" }, h("h3", {}, name), this.value, this.drawing);
  }

  add(value) {
    this.element.hidden = value === undefined;
    if (value === undefined) return;
    const text = Number.isFinite(value) ? this.format(value) : "–";
    this.value.textContent = text;
    if (Number.isFinite(value)) this.values.push(value);
    if (this.values.length > this.kept) this.values.shift();
    if (this.values.length === 0) return;
    const low = Math.min(...this.values, 0);
    const high = Math.max(...this.values, low + 1e-9) * 1.15;
    const x = (i) => width - (this.values.length - 1 - i) * (width / (this.kept - 1));
    const y = (v) => height - 3 - ((v - low) / (high - low)) * (height - 6);
    // One value is drawn as if it had always been so.
    const points = this.values.map((v, i) => `${x(i).toFixed(1)} ${y(v).toFixed(1)}`);
    if (points.length === 1) points.unshift(`0 ${y(this.values[0]).toFixed(1)}`);
    const line = `M${points.join("L")}`;
    this.line.setAttribute("d", line);
    this.area.setAttribute("d", `${line}V${height}H${points[0].split(" ")[0]}Z`);
    const first = this.values[0];
    const trend = value > first * 1.05 ? "rising" : value < first * 0.95 ? "falling" : "steady";
    this.drawing.setAttribute("aria-label", `${this.name}: ${text}, ${trend}`);
  }
}
