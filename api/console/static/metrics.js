// Metrics in Prometheus's text format.

// parse returns a map from names to series, {labels, value}.
export function parse(text) {
  const all = new Map();
  for (const line of text.split("\n")) {
    if (line === "" || line[0] === "#") continue;
    const match = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[name] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
    }
    const series = all.get(match[1]) ?? [];
    series.push({ labels, value: match[3] === "+Inf" ? Infinity : Number(match[3]) });
    all.set(match[1], series);
  }
  return all;
}

// sum adds the series of a name that fit; undefined when there is none of the name.
export function sum(metrics, name, fits = () => true) {
  const series = metrics.get(name);
  return series?.filter(({ labels }) => fits(labels)).reduce((total, { value }) => total + value, 0);
}

// Histogram is a histogram of Prometheus: cumulative counts below bounds.
export class Histogram {
  // from collects the histograms of a name, by the value of a label; series that differ in others
  // are added up.
  static from(metrics, name, label) {
    const found = new Map();
    const of = (labels) => {
      const key = labels[label] ?? "";
      if (!found.has(key)) found.set(key, new Histogram());
      return found.get(key);
    };
    for (const { labels, value } of metrics.get(`${name}_bucket`) ?? []) {
      const { buckets } = of(labels);
      const le = labels.le === "+Inf" ? Infinity : Number(labels.le);
      const same = buckets.find(([bound]) => bound === le);
      if (same) same[1] += value;
      else buckets.push([le, value]);
    }
    for (const { labels, value } of metrics.get(`${name}_sum`) ?? []) of(labels).sum += value;
    for (const { labels, value } of metrics.get(`${name}_count`) ?? []) of(labels).count += value;
    return found;
  }

  constructor() {
    this.buckets = [];
    this.sum = 0;
    this.count = 0;
  }

  // since is what was added to an earlier state; of a server that has started again, all.
  since(earlier) {
    if (!earlier || earlier.count > this.count) return this;
    const rest = new Histogram();
    rest.buckets = this.buckets.map(([le, n], i) => [le, n - (earlier.buckets[i]?.[1] ?? 0)]);
    rest.sum = this.sum - earlier.sum;
    rest.count = this.count - earlier.count;
    return rest;
  }

  // plus is the sum with another one of the same bounds.
  plus(other) {
    const both = new Histogram();
    both.buckets = this.buckets.map(([le, n], i) => [le, n + (other.buckets[i]?.[1] ?? 0)]);
    both.sum = this.sum + other.sum;
    both.count = this.count + other.count;
    return both;
  }

  // quantile estimates, within a bucket on a straight line, as Prometheus does; NaN for nothing.
  quantile(q) {
    if (this.count === 0) return NaN;
    const rank = q * this.count;
    let below = 0;
    let from = 0;
    for (const [le, n] of this.buckets) {
      if (n >= rank)
        return le === Infinity ? from : from + (le - from) * ((rank - below) / Math.max(n - below, 1e-9));
      below = n;
      from = le;
    }
    return from;
  }

  // above counts what is certainly not below a bound that is one of the buckets'.
  above(bound) {
    const bucket = this.buckets.find(([le]) => le >= bound);
    return this.count - (bucket ? bucket[1] : 0);
  }
}
