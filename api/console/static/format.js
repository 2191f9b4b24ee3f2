// Numbers, times and ids as people read them.

import { h } from "./dom.js";

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export function count(n, one, many = one + "s") {
  return `${number.format(n)} ${n === 1 ? one : many}`;
}

export function figure(n) {
  return number.format(n);
}

const units = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(n) {
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export function seconds(n) {
  if (!Number.isFinite(n)) return "–";
  if (n < 0.001) return `${Math.round(n * 1e6)} µs`;
  if (n < 1) return `${n < 0.01 ? (n * 1e3).toFixed(1) : Math.round(n * 1e3)} ms`;
  return n < 120 ? `${n.toFixed(1)} s` : `${Math.round(n / 60)} min`;
}

const steps = [
  [60, "second"],
  [60, "minute"],
  [24, "hour"],
  [30, "day"],
  [12, "month"],
  [Infinity, "year"],
];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

// time is an instant of the API: how long ago, and the full time behind it.
export function time(text) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return h("span", {}, "–");
  let value = (at.getTime() - Date.now()) / 1000;
  let unit = "second";
  for (const [size, name] of steps) {
    unit = name;
    if (Math.abs(value) < size) break;
    if (size !== Infinity) value /= size;
  }
  return h("time", { datetime: at.toISOString(), title: moment(text) }, relative.format(Math.round(value), unit));
}

// moment is the full time, in UTC as the API tells it.
export function moment(text) {
  return String(text)
    .replace("T", " ")
    .replace(/(\.\d+)?Z$/, " UTC");
}

export function day(text) {
  return String(text).slice(0, 10);
}

export const zeroID = "0".repeat(40);

export function short(id) {
  return id.slice(0, 10);
}

export function subject(message) {
  return message.split("\n", 1)[0];
}
