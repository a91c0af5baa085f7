// Under the lanes and on the same axis: how many agents are busy, tokens and money over time; and the whole run, with the part in view.

class Strips {
  constructor(run, lanes) {
    Object.assign(this, { run, lanes });
    this.canvas = h("canvas.strips", { role: "img", "aria-label": "Busy agents, tokens and money over time. Drag to zoom; drag in the last line, which is the whole run, to choose what is in view." });
    this.element = h("div.under", {}, this.legend = h("div.names"), this.canvas);
    this.listen();
  }

  // The last line is the whole run: a drag chooses what is in view. The lines above it are what is in view: a drag zooms into a part.
  listen() {
    const { run, lanes, canvas } = this;
    let from = null;
    let whole = false;
    const at = (p) => {
      const box = canvas.getBoundingClientRect();
      const share = (p.clientX - box.left) / box.width;
      return whole ? run.low + share * (run.high - run.low) : lanes.a + share * (lanes.b - lanes.a);
    };
    const least = () => (whole ? run.high - run.low : lanes.b - lanes.a) / 300;
    canvas.addEventListener("pointerdown", (p) => {
      canvas.setPointerCapture(p.pointerId);
      whole = p.clientY > canvas.getBoundingClientRect().bottom - 20;
      from = at(p);
    });
    canvas.addEventListener("pointermove", (p) => {
      if (from === null) {
        whole = false;
        return this.oncross?.(at(p));
      }
      const to = at(p);
      if (Math.abs(to - from) < least()) return;
      if (whole) return lanes.show(Math.min(from, to), Math.max(from, to));
      this.brush = lanes.brush = [from, to];
      lanes.draw();
    });
    const end = (p) => {
      if (from === null) return;
      const to = at(p);
      const half = (lanes.b - lanes.a) / 2;
      const brushed = this.brush;
      this.brush = lanes.brush = null;
      if (brushed) lanes.show(Math.min(from, to), Math.max(from, to));
      else if (whole && Math.abs(to - from) < least()) lanes.show(to - half, to + half);
      from = null;
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", () => this.oncross?.(null));
  }

  // The figures at one time, where the pointer is; without a time those of what is in view.
  read(x) {
    if (!this.rows) return;
    const at = x === null ? "" : this.run.timed ? seconds(this.run.clock(x)) : `event ${Math.round(x)}`;
    const { a, b } = this.lanes;
    this.rows.forEach(({ values, says, output, exact }) => {
      const k = Math.floor(((x - a) / (b - a)) * values.length);
      output.textContent = x === null ? says : k >= 0 && k < values.length ? `${exact(values[k])}` : "";
    });
    this.when.textContent = x === null ? "the whole run" : `at ${at}`;
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
    const rows = [["busy agents", view.busy, hue(0), (m) => `${m} at most`, (v) => `${v} now`]];
    if (view.tokens) rows.push(["tokens", view.tokens, hue(2), () => number(Math.round(view.totals.tokens)), (v) => `${number(Math.round(v))} now`]);
    if (view.money) rows.push([run.columns.cost ? "cost" : "price", view.money, hue(5), () => money(view.totals.money), (v) => `${money(v)} now`]);
    const room = (height - 22) / rows.length;
    const labels = [];
    this.rows = [];
    rows.forEach(([name, values, colour, says, exact], i) => {
      const top = Math.max(...values, 1e-12);
      ctx.fillStyle = colour;
      for (let k = 0; k < values.length; k++) {
        const size = (values[k] / top) * (room - 5);
        if (size > 0) ctx.fillRect(Math.floor((k * width) / bins), (i + 1) * room - size, Math.ceil(width / bins), size);
      }
      const output = h("strong", {}, says(Math.max(...values)));
      this.rows.push({ values, says: output.textContent, output, exact });
      const label = h("div.name", {}, h("div", {}, dot(colour), ` ${name}`), output);
      label.style.top = `${i * room + Math.max(0, room / 2 - 16)}px`;
      labels.push(label);
    });
    const label = (this.when = h("div.name.quiet", {}, "the whole run"));
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
    if (this.brush) {
      ctx.fillStyle = style.getPropertyValue("--shade");
      ctx.fillRect(lanes.px(this.brush[0]), 0, lanes.px(this.brush[1]) - lanes.px(this.brush[0]), height - 20);
    }
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
