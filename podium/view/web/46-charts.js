// Charts: lines and shares by iteration, which follow one pointer together; and pictures of figures with their intervals.

// From the least to the most in steps that one reads at a glance.
function ticks(low, high, many = 4) {
  const step = niceStep((high - low) / many, true);
  const values = [];
  for (let k = Math.floor(low / step + 1e-9); k <= Math.ceil(high / step - 1e-9); k++) values.push(k * step);
  return values;
}

function svgText(attributes, text) {
  const element = svg("text", attributes);
  element.textContent = text;
  return element;
}

const percents = (v) => `${+(v * 100).toPrecision(3)} %`;

// Charts that point at the same iteration; `picks` are iterations whose runs open with a click.
class Pointer {
  constructor(picks, onpick) {
    Object.assign(this, { picks, onpick, charts: [], at: null });
  }
  to(at) {
    this.at = at;
    for (const chart of this.charts) chart.mark();
  }
}

class Chart {
  constructor(pointer, name, series, { note = "", percent = false, stack = false, rule = null, zero = true } = {}) {
    const keys = Object.keys(series).filter((k) => series[k].length);
    Object.assign(this, { pointer, name, series, keys, percent, stack, rule, zero });
    pointer.charts.push(this);
    this.xs = [...new Set(keys.flatMap((k) => series[k].map((p) => p[0])))].sort((a, b) => a - b);
    this.values = h("ul.values");
    this.box = h("div.plot");
    this.element = h("figure.chartbox", {}, h("figcaption", {}, h("strong", {}, name), note ? h("span.quiet", {}, note) : null), this.values, this.box);
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.mark();
  }

  colour(key) {
    return hue(this.keys.indexOf(key));
  }
  shown(v) {
    return v === null || v === undefined || Number.isNaN(v) ? "–" : this.percent ? percents(v) : number(+v.toPrecision(4));
  }

  // The last value up to an iteration: some figures are measured every few iterations only.
  value(key, at) {
    const points = this.series[key];
    const i = at === null ? points.length - 1 : points.findLastIndex((p) => p[0] <= at);
    return i < 0 ? null : points[i];
  }

  draw() {
    const W = Math.floor(this.box.clientWidth);
    const drawn = `${W} ${isDark()}`;
    if (W < 60 || !this.keys.length || drawn === this.drawn) return;
    this.drawn = drawn;
    const [H, L, R, T, B] = [208, 52, 14, 12, 26];
    const ys = this.stack ? [0, 1] : this.keys.flatMap((k) => this.series[k].map((p) => p[1]));
    let [low, high] = [Math.min(...ys, ...(this.zero ? [0] : [])), Math.max(...ys)];
    if (high - low < 1e-12) [low, high] = [low - (this.zero ? 0 : 0.5), high + 0.5];
    const marks = this.stack ? [0, 0.25, 0.5, 0.75, 1] : ticks(low, high);
    const [x0, x1] = [this.xs[0], Math.max(this.xs[this.xs.length - 1], this.xs[0] + 1)];
    this.x = (v) => L + ((v - x0) / (x1 - x0)) * (W - L - R);
    this.y = (v) => H - B - ((v - marks[0]) / (marks[marks.length - 1] - marks[0])) * (H - B - T);
    const { x, y } = this;
    const last = this.keys.map((k) => `${k} ${this.shown(this.value(k, null)[1])}`).join(", ");
    const picture = svg("svg", { width: W, height: H, viewBox: `0 0 ${W} ${H}`, role: "img", tabindex: 0, class: "chart", "aria-label": `${this.name}. At the end: ${last}. Arrow keys go from iteration to iteration.` });
    for (const v of marks) picture.append(svg("line", { x1: L, x2: W - R, y1: y(v), y2: y(v), stroke: "var(--rule)" }), svgText({ x: L - 8, y: y(v) + 4, "text-anchor": "end", class: "soft" }, this.shown(+v.toPrecision(6))));
    const steps = ticks(x0, x1, Math.min(8, W / 80)).filter((v) => Number.isInteger(v) && v >= x0 && v <= x1);
    for (const v of steps) picture.append(svgText({ x: x(v), y: H - 8, "text-anchor": "middle", class: "soft" }, String(v)));
    if (this.stack) this.shares(picture);
    else this.lines(picture, H - B);
    if (this.rule) picture.append(svg("line", { x1: L, x2: W - R, y1: y(this.rule.at), y2: y(this.rule.at), stroke: "var(--ink)", "stroke-width": 1.5, "stroke-dasharray": "6 4" }), svgText({ x: L + 6, y: y(this.rule.at) - 6, class: "halo" }, this.rule.label));
    for (const at of this.pointer.picks) if (at >= x0 && at <= x1) picture.append(svg("path", { d: `M${x(at) - 4},${H - B + 7} h8 l-4,-6 z`, fill: "var(--accent)" }));
    this.cursor = svg("g", {});
    picture.append(this.cursor);
    this.listen(picture);
    this.box.replaceChildren(picture);
    this.mark();
  }

  listen(picture) {
    const near = (p) => {
      const px = p.clientX - picture.getBoundingClientRect().left;
      return this.xs.reduce((best, v) => (Math.abs(this.x(v) - px) < Math.abs(this.x(best) - px) ? v : best), this.xs[0]);
    };
    const open = () => this.pointer.picks.has(this.pointer.at) && this.pointer.onpick(this.pointer.at);
    picture.addEventListener("pointermove", (p) => this.pointer.to(near(p)));
    picture.addEventListener("pointerleave", () => this.pointer.to(null));
    picture.addEventListener("click", (p) => {
      this.pointer.to(near(p));
      open();
    });
    picture.addEventListener("keydown", (k) => {
      const i = this.pointer.at === null ? this.xs.length : this.xs.indexOf(this.pointer.at);
      const to = { ArrowLeft: Math.max(0, i - 1), ArrowRight: Math.min(this.xs.length - 1, i + 1), Home: 0, End: this.xs.length - 1 }[k.key];
      if (k.key === "Enter") open();
      else if (k.key === "Escape") this.pointer.to(null);
      else if (to === undefined) return;
      else this.pointer.to(this.xs[to]);
      k.preventDefault();
      k.stopPropagation();
    });
  }

  lines(picture, floor) {
    const { x, y } = this;
    this.keys.forEach((key, i) => {
      const points = this.series[key];
      const colour = this.colour(key);
      const path = points.map(([a, b], k) => `${k ? "L" : "M"}${x(a).toFixed(1)},${y(b).toFixed(1)}`).join("");
      if (this.keys.length === 1 && this.zero) picture.append(svg("path", { d: `${path}L${x(points[points.length - 1][0])},${floor}L${x(points[0][0])},${floor}Z`, fill: colour, opacity: 0.1 }));
      picture.append(svg("path", { d: path, fill: "none", stroke: colour, "stroke-width": 2, "stroke-linejoin": "round", ...(i % 2 ? { "stroke-dasharray": "7 3" } : {}) }));
      for (const [a, b] of points.length <= 40 ? points : points.slice(-1)) picture.append(svg("circle", { cx: x(a), cy: y(b), r: points.length <= 40 ? 2.5 : 3.5, fill: colour }));
    });
  }

  // Shares that add up to one, as bands; a band that is wide enough bears its name.
  shares(picture) {
    const { x, y } = this;
    const under = new Map(this.xs.map((v) => [v, 0]));
    for (const key of this.keys) {
      const tops = this.series[key].map(([a, b]) => [a, under.get(a), Math.min(1, under.get(a) + b)]);
      for (const [a, , top] of tops) under.set(a, top);
      const up = tops.map(([a, , top]) => `${x(a).toFixed(1)},${y(top).toFixed(1)}`);
      const down = tops.map(([a, bottom]) => `${x(a).toFixed(1)},${y(bottom).toFixed(1)}`).reverse();
      picture.append(svg("polygon", { points: [...up, ...down].join(" "), fill: this.colour(key), opacity: 0.85, stroke: "var(--page)", "stroke-width": 1 }));
      const [a, bottom, top] = tops[Math.floor(tops.length * 0.72)];
      if ((y(bottom) - y(top)) > 18) picture.append(svgText({ x: x(a), y: (y(bottom) + y(top)) / 2 + 4, "text-anchor": "middle", class: light(paint(this.colour(key))) ? "onlight" : "ondark" }, key));
    }
  }

  // The figures at the pointer, or the last ones.
  mark() {
    const { at, picks } = this.pointer;
    const rows = this.keys.map((key) => h("li", {}, dot(this.colour(key)), ` ${key} `, h("strong", {}, this.shown(this.value(key, at)?.[1]))));
    const when = at === null ? null : h("li.quiet", {}, `iteration ${at}${picks.has(at) ? ", click to see its runs" : ""}`);
    this.values.replaceChildren(...rows, when || "");
    if (!this.cursor) return;
    this.cursor.replaceChildren();
    if (at === null || !this.x) return;
    this.cursor.append(svg("line", { x1: this.x(at), x2: this.x(at), y1: 12, y2: 182, stroke: "var(--quiet)" }));
    if (!this.stack) for (const key of this.keys) {
      const point = this.value(key, at);
      if (point) this.cursor.append(svg("circle", { cx: this.x(point[0]), cy: this.y(point[1]), r: 5, fill: this.colour(key), stroke: "var(--page)", "stroke-width": 2 }));
    }
  }
}

// Figures from the left to the right, one line each: a mark, its interval, and others to set it beside.
function rangePicture(rows, { label, percent = false, zero = false, right = null, width = 640, left = 190 }) {
  const [W, L, R] = [width, left, right ? 130 : 30];
  const ends = rows.flatMap((r) => [r.value, ...(r.interval || []), ...(r.marks || []).map((m) => m.at)]).filter((v) => v !== null && v !== undefined);
  const marks = ticks(Math.min(...(zero ? [0] : []), ...ends), Math.max(...ends, ...(zero ? [1e-9] : [])), width > 500 ? 4 : 3);
  const x = (v) => L + ((v - marks[0]) / (marks[marks.length - 1] - marks[0] || 1)) * (W - L - R);
  const say = percent ? percents : (v) => number(+v.toPrecision(4));
  const height = rows.length * 24 + 26;
  const blue = "var(--accent)";
  const picture = svg("svg", { viewBox: `0 0 ${W} ${height}`, width: W, role: "img", class: "chart fixed", "aria-label": `${label}: ${rows.map((r) => `${r.name} ${say(r.value)}`).join(", ")}` });
  for (const v of marks) picture.append(svg("line", { x1: x(v), x2: x(v), y1: 0, y2: height - 22, stroke: zero && Math.abs(v) < 1e-12 ? "var(--ink)" : "var(--rule)" }), svgText({ x: x(v), y: height - 6, "text-anchor": "middle", class: "soft" }, say(+v.toPrecision(6))));
  rows.forEach((r, i) => {
    const y = i * 24 + 12;
    const [low, high] = r.interval || [null, null];
    if (low !== null && high !== null) picture.append(svg("line", { x1: x(low), x2: x(high), y1: y, y2: y, stroke: blue, "stroke-width": 5, opacity: 0.35, "stroke-linecap": "round" }));
    for (const m of r.marks || []) picture.append(m.square ? svg("rect", { x: x(m.at) - 4, y: y - 4, width: 8, height: 8, fill: "var(--ink)" }) : svg("circle", { cx: x(m.at), cy: y, r: 4, fill: "var(--page)", stroke: "var(--quiet)", "stroke-width": 2 }));
    picture.append(svg("circle", { cx: x(r.value), cy: y, r: 5, fill: blue }), svgText({ x: L - 10, y: y + 4, "text-anchor": "end" }, r.name));
    if (right) picture.append(svgText({ x: W - R + 14, y: y + 4, class: "soft" }, right(r)));
  });
  return picture;
}

// How a policy does in worlds that it did not learn in: between the best trivial policy and the optimum.
function heldOut(rows) {
  const lines = rows.map((r, i) => ({ name: `world ${i + 1}`, value: r.value, interval: [Math.min(r.trivial, r.optimum), Math.max(r.trivial, r.optimum)], marks: [{ at: r.trivial }, { at: r.optimum, square: true }], left: r.share }));
  const key = h("ul.legend", {}, h("li", {}, dot("var(--accent)"), " what it learned"), h("li", {}, "■ optimum"), h("li", {}, "○ best trivial policy"));
  return h("figure.chartbox", {}, h("figcaption", {}, h("strong", {}, "In worlds that it did not learn from"), h("span.quiet", {}, "mean score of an episode")), key, rangePicture(lines, { label: "Score in held-out worlds", right: (r) => (r.left === null || r.left === undefined ? "" : `${percents(r.left)} left`) }));
}

// A board: methods by worlds. The deeper the blue the less of the gap is left, orange is worse than a trivial policy; the line is the interval, the bar what share was paid.
function boardTable(rows) {
  const worlds = [...new Set(rows.map((r) => r.env))];
  const mean = (m) => {
    const own = rows.filter((r) => r.method === m && r.share_of_gap !== null).map((r) => r.share_of_gap);
    return own.length ? own.reduce((a, b) => a + b, 0) / own.length : Infinity;
  };
  const methods = [...new Set(rows.map((r) => r.method))].sort((a, b) => mean(a) - mean(b));
  const best = new Map(worlds.map((w) => [w, Math.min(...rows.filter((r) => r.env === w && r.share_of_gap !== null).map((r) => r.share_of_gap))]));
  const top = new Map(worlds.map((w) => [w, Math.max(1, ...rows.filter((r) => r.env === w && r.share_of_gap !== null).map((r) => 1.15 * r.share_of_gap))]));
  const cell = (r) => {
    if (!r || r.share_of_gap === null) return h("td.quiet", {}, "not trained");
    const [low, high] = r.interval;
    const known = low !== null && high !== null;
    const strength = Math.round(45 * Math.min(1, Math.max(0, 1 - r.share_of_gap)));
    const line = svg("svg", { viewBox: "0 0 100 8", class: "interval", preserveAspectRatio: "none", "aria-hidden": "true" });
    const x = (v) => Math.min(100, Math.max(0, (100 * v) / top.get(r.env)));
    if (known) line.append(svg("rect", { x: x(low), y: 3, width: Math.max(1, x(high) - x(low)), height: 2, fill: "var(--ink)" }));
    line.append(svg("rect", { x: Math.min(98, x(r.share_of_gap)), y: 0, width: 2, height: 8, fill: "var(--ink)" }));
    const box = h("td.cell", {}, h("div", {}, h("strong", {}, percents(r.share_of_gap)), best.get(r.env) === r.share_of_gap ? h("span", { title: "the best in this world" }, " ★") : null), line,
      h("div.quiet", {}, known ? `${percents(low)} to ${percents(high)}` : "one seed"), h("div.quiet", {}, r.paid === null || r.paid === undefined ? "" : `${percents(r.paid)} paid`));
    box.style.background = r.share_of_gap > 1 ? "color-mix(in srgb, #dc5a00 14%, var(--page))" : `color-mix(in srgb, var(--accent) ${strength}%, var(--page))`;
    return box;
  };
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Share of the gap that is left, methods by worlds" }, h("table.board-table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Method"), worlds.map((w) => h("th", { scope: "col" }, words(w))))),
    h("tbody", {}, methods.map((m) => h("tr", {}, h("th", { scope: "row" }, m), worlds.map((w) => cell(rows.find((r) => r.method === m && r.env === w))))))));
}

// The same as one picture a world, the best first.
function standings(rows) {
  return h("div.charts", {}, [...new Set(rows.map((r) => r.env))].map((env) => {
    const own = rows.filter((r) => r.env === env && r.share_of_gap !== null).sort((a, b) => a.share_of_gap - b.share_of_gap);
    if (!own.length) return null;
    return h("figure.chartbox", {}, h("figcaption", {}, h("strong", {}, words(env)), h("span.quiet", {}, "share of the gap that is left; the optimum is 0 %")), rangePicture(own.map((r) => ({ name: r.method, value: r.share_of_gap, interval: r.interval })), { label: words(env), percent: true, zero: true, width: 400, left: 110 }));
  }));
}
