// Under the lanes and on the same axis: how many agents are busy, tokens and money over time; and the whole run, with the part in view.

class Strips {
  constructor(run, lanes) {
    Object.assign(this, { run, lanes });
    this.canvas = h("canvas.strips", { role: "img", "aria-label": "Busy agents, tokens and money over time. Drag in the last line to choose what is in view." });
    this.element = h("div.under", {}, this.legend = h("div.names"), this.canvas);
    let from = null;
    const at = (p) => {
      const box = this.canvas.getBoundingClientRect();
      return run.low + ((p.clientX - box.left) / box.width) * (run.high - run.low);
    };
    this.canvas.addEventListener("pointerdown", (p) => {
      this.canvas.setPointerCapture(p.pointerId);
      from = at(p);
    });
    this.canvas.addEventListener("pointermove", (p) => {
      if (from === null) return;
      const to = at(p);
      if (Math.abs(to - from) > (run.high - run.low) / 500) this.lanes.show(Math.min(from, to), Math.max(from, to));
    });
    this.canvas.addEventListener("pointerup", (p) => {
      const to = at(p);
      const half = (this.lanes.b - this.lanes.a) / 2;
      if (from !== null && Math.abs(to - from) <= (run.high - run.low) / 500) this.lanes.show(to - half, to + half);
      from = null;
    });
  }

  series(a, b, bins) {
    const sums = this.run.totals();
    const step = (b - a) / bins;
    const busy = new Float64Array(bins);
    let next = lower(sums.starts, a);
    for (let i = 0; i < bins; i++) {
      const from = a + i * step;
      busy[i] = upper(sums.starts, from) - upper(sums.ends, from);
      while (next < sums.starts.length && sums.starts[next] < from + step) busy[i] = Math.max(busy[i], sums.level[next++]);
    }
    const flow = (sum) => {
      if (!sum) return null;
      const out = new Float64Array(bins);
      let from = lower(sums.at, a);
      for (let i = 0; i < bins; i++) {
        const to = lower(sums.at, a + (i + 1) * step);
        out[i] = sum[to] - sum[from];
        from = to;
      }
      return out;
    };
    const share = (sum) => sum && sum[lower(sums.at, b)] - sum[lower(sums.at, a)];
    return { busy, tokens: flow(sums.tokens), money: flow(sums.money), totals: { tokens: share(sums.tokens), money: share(sums.money) } };
  }

  draw() {
    const { canvas, lanes, run } = this;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!width) return;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const ctx = canvas.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(document.documentElement);
    const bins = Math.max(10, Math.floor(width / 2));
    const view = this.series(lanes.a, lanes.b, bins);
    const rows = [["busy agents", view.busy, "#0072b2", (m) => `${m} at most`]];
    if (view.tokens) rows.push(["tokens", view.tokens, "#009e73", () => number(Math.round(view.totals.tokens))]);
    if (view.money) rows.push([run.columns.cost ? "cost" : "price", view.money, "#d55e00", () => money(view.totals.money)]);
    const room = (height - 22) / rows.length;
    const labels = [];
    rows.forEach(([name, values, colour, says], i) => {
      const top = Math.max(...values, 1e-12);
      ctx.fillStyle = colour;
      for (let k = 0; k < values.length; k++) {
        const size = (values[k] / top) * (room - 5);
        if (size > 0) ctx.fillRect((k * width) / bins, (i + 1) * room - size, width / bins + 0.5, size);
      }
      const label = h("div.name", {}, h("div", {}, name), h("strong", {}, says(Math.max(...values))));
      label.style.top = `${i * room + Math.max(0, room / 2 - 16)}px`;
      labels.push(label);
    });
    const label = h("div.name.quiet", {}, "the whole run");
    label.style.top = `${height - 20}px`;
    labels.push(label);
    this.legend.replaceChildren(...labels);
    const whole = this.overview(width);
    const top = Math.max(...whole, 1e-12);
    ctx.fillStyle = style.getPropertyValue("--quiet");
    whole.forEach((v, k) => ctx.fillRect((k * width) / whole.length, height - (v / top) * 16, width / whole.length + 0.5, (v / top) * 16));
    const at = (x) => ((x - run.low) / (run.high - run.low)) * width;
    ctx.fillStyle = style.getPropertyValue("--shade");
    ctx.fillRect(at(lanes.a), height - 18, Math.max(2, at(lanes.b) - at(lanes.a)), 18);
    ctx.strokeStyle = style.getPropertyValue("--ink");
    ctx.strokeRect(at(lanes.a), height - 18, Math.max(2, at(lanes.b) - at(lanes.a)), 17.5);
  }

  overview(width) {
    const sums = this.run.totals();
    if (this.whole?.sums !== sums) {
      const bins = Math.max(10, Math.floor(width / 3));
      const counts = new Float64Array(bins);
      for (const x of sums.at) counts[Math.min(bins - 1, Math.floor(((x - this.run.low) / (this.run.high - this.run.low)) * bins))]++;
      this.whole = { sums, counts: counts.map((c) => Math.sqrt(c)) };
    }
    return this.whole.counts;
  }
}
