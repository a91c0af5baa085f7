// The swim lanes: a line an agent, time from left to right. Spans are written as pixels, so that a frame costs the same for a
// hundred events as for a million; words, marks and arrows are drawn on top where there are few.

const AXIS = 24;
const FEW = 1500; // events in view up to which marks have shapes
const ARROWS = 250; // and up to which all arrows are drawn

class Lanes {
  constructor(run, { onselect, onview, label }) {
    Object.assign(this, { run, onselect, onview });
    this.height = 24;
    this.top = 0;
    this.a = run.low;
    this.b = run.high;
    this.selected = -1;
    this.hover = -1;
    this.colour = { by: "type" };
    this.critical = false;
    this.faded = null; // events that stand back, as a mark for each
    this.canvas = h("canvas.lanes", { tabindex: "0", role: "application", "aria-label": `${label || "Swim lanes"}: arrow keys move, + and - zoom, j and k go from event to event`, "aria-describedby": "keys" });
    this.sized = false; // whether somebody chose how high lanes are
    this.names = h("div.names", { role: "tree", "aria-label": "Agents, nested by who spawned whom" });
    this.tip = h("div.tip", { hidden: true });
    this.bar = h("div.vbar", { "aria-hidden": "true" }, h("div"));
    this.element = h("div.board", {}, this.names, this.canvas, this.bar, this.tip);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  listen() {
    const c = this.canvas;
    let drag = null;
    c.addEventListener("wheel", (w) => {
      w.preventDefault();
      if (w.ctrlKey || w.metaKey || w.altKey) this.zoom(Math.exp(w.deltaY * 0.002), this.xOf(w));
      else if (Math.abs(w.deltaX) > Math.abs(w.deltaY) || w.shiftKey) this.pan((w.deltaX || w.deltaY) / this.width);
      else if (this.overflow() > 0) this.scroll(w.deltaY);
      else this.zoom(Math.exp(w.deltaY * 0.002), this.xOf(w));
    }, { passive: false });
    const touches = new Map();
    c.addEventListener("pointerdown", (p) => {
      c.setPointerCapture(p.pointerId);
      touches.set(p.pointerId, p);
      drag = { x: p.clientX, y: p.clientY, moved: false, brush: p.shiftKey ? this.xOf(p) : null };
    });
    c.addEventListener("pointermove", (p) => {
      if (touches.size === 2 && touches.has(p.pointerId)) {
        const other = [...touches.values()].find((o) => o.pointerId !== p.pointerId);
        const before = Math.abs(touches.get(p.pointerId).clientX - other.clientX);
        const now = Math.abs(p.clientX - other.clientX);
        if (before > 10 && now > 10) this.zoom(before / now, this.xOf(p));
        touches.set(p.pointerId, p);
        return;
      }
      if (!drag || !touches.size) return this.point(p);
      const dx = p.clientX - drag.x;
      const dy = p.clientY - drag.y;
      if (Math.abs(dx) + Math.abs(dy) > 3) drag.moved = true;
      if (drag.brush !== null) {
        this.brush = [drag.brush, this.xOf(p)];
        return this.draw();
      }
      if (drag.moved) {
        this.pan(-dx / this.width);
        this.scroll(-dy);
        drag.x = p.clientX;
        drag.y = p.clientY;
      }
    });
    const end = (p) => {
      touches.delete(p.pointerId);
      if (this.brush) {
        const [a, b] = this.brush.sort((x, y) => x - y);
        this.brush = null;
        if (b > a) this.show(a, b);
      } else if (drag && !drag.moved && p.type === "pointerup") this.click(p);
      drag = null;
    };
    c.addEventListener("pointerup", end);
    c.addEventListener("pointercancel", end);
    c.addEventListener("pointerleave", () => {
      this.hover = -1;
      this.oncross?.(null);
      this.tip.hidden = true;
      this.draw();
    });
    c.addEventListener("dblclick", (p) => this.zoom(0.4, this.xOf(p)));
    this.bar.addEventListener("pointerdown", (p) => {
      this.bar.setPointerCapture(p.pointerId);
      const go = (q) => this.scrollTo(((q.clientY - this.bar.getBoundingClientRect().top) / this.bar.clientHeight) * this.run.lanes.length * this.height - this.room() / 2);
      this.bar.onpointermove = go;
      go(p);
    });
    this.bar.addEventListener("pointerup", () => (this.bar.onpointermove = null));
  }

  get width() {
    return Math.max(50, this.canvas.clientWidth);
  }
  room() {
    return Math.max(40, this.canvas.clientHeight - AXIS);
  }
  overflow() {
    return this.run.lanes.length * this.height - this.room();
  }
  xOf(p) {
    const box = this.canvas.getBoundingClientRect();
    return this.a + ((p.clientX - box.left) / this.width) * (this.b - this.a);
  }
  px(x) {
    return ((x - this.a) / (this.b - this.a)) * this.width;
  }

  show(a, b) {
    const { low, high } = this.run;
    const margin = (high - low) * 0.02;
    const least = Math.max((high - low) * 1e-9, 1e-9);
    const span = Math.min(Math.max(b - a, least), high - low + 2 * margin);
    const from = Math.min(Math.max(a, low - margin), high + margin - span);
    this.a = from;
    this.b = from + span;
    this.draw();
    this.onview?.(this);
  }
  fit() {
    this.show(-Infinity, Infinity);
  }
  zoom(by, at = (this.a + this.b) / 2) {
    this.show(at - (at - this.a) * by, at + (this.b - at) * by);
  }
  pan(by) {
    const d = by * (this.b - this.a);
    this.show(this.a + d, this.b + d);
  }
  scrollTo(top) {
    this.top = Math.min(Math.max(0, top), Math.max(0, this.overflow()));
    this.draw();
  }
  scroll(by) {
    this.scrollTo(this.top + by);
  }
  size(height) {
    const middle = (this.top + this.room() / 2) / this.height;
    this.sized = true;
    this.height = Math.min(48, Math.max(2, height));
    this.scrollTo(middle * this.height - this.room() / 2);
  }

  reveal(e, sideways = true) {
    const { run } = this;
    const lane = run.lane[run.columns.agent[e]];
    if (lane < 0) return;
    const y = lane * this.height;
    if (y < this.top || y > this.top + this.room() - this.height) this.top = Math.max(0, Math.min(y - this.room() / 2, this.overflow()));
    if (!sideways) return this.draw();
    const x = run.x0[e];
    if (!(x >= this.a && x <= this.b)) this.show(x - (this.b - this.a) / 2, x + (this.b - this.a) / 2);
    else this.draw();
  }

  fold(agent) {
    const { run } = this;
    if (!run.children[agent].length) return;
    if (!run.folded.delete(agent)) run.folded.add(agent);
    run.lay();
    run.sums = null;
    this.scrollTo(this.top);
    this.onview?.(this);
  }

  // The event nearest to a place on the screen, and how many share it.
  at(p) {
    const box = this.canvas.getBoundingClientRect();
    const y = p.clientY - box.top - AXIS + this.top;
    const lane = this.run.lanes[Math.floor(y / this.height)];
    if (!lane || p.clientY - box.top < AXIS) return { e: -1, many: 0 };
    const x = this.xOf(p);
    const reach = ((this.b - this.a) / this.width) * 5;
    const { x0, x1 } = this.run;
    let best = -1;
    let least = Infinity;
    let many = 0;
    for (let i = this.run.firstAt(lane, x - reach); i < lane.n; i++) {
      const e = lane.rows[i];
      if (x0[e] > x + reach) break;
      if (x1[e] < x - reach) continue;
      many++;
      const off = x < x0[e] ? x0[e] - x : x > x1[e] ? x - x1[e] : 0;
      const cost = off * 1e6 + (x1[e] - x0[e]);
      if (cost <= least) {
        least = cost;
        best = e;
      }
      if (many > 5000) break;
    }
    return { e: best, many };
  }

  point(p) {
    const { e, many } = this.at(p);
    this.oncross?.(this.xOf(p));
    if (e !== this.hover) {
      this.hover = e;
      this.draw();
    }
    this.tip.hidden = e < 0;
    if (e < 0) return;
    const { run } = this;
    const c = run.columns;
    const lines = [`${run.label(e)} · ${run.titles[c.agent[e]]}`, `at ${seconds(run.start[e])}${run.stop[e] > run.start[e] ? `, took ${seconds(run.stop[e] - run.start[e])}` : ""}`];
    const tokens = TOKENS.filter((n) => c[n] && c[n][e] >= 0).map((n) => `${number(c[n][e])} ${words(n)}`);
    if (tokens.length) lines.push(tokens.join(", "));
    const price = (c.cost || c.price)?.[e];
    if (price >= 0) lines.push(money(price));
    if (this.colour.values) {
      const v = this.colour.values[e];
      lines.push(`${this.colour.name}: ${Number.isNaN(v) ? "not paid" : number(v)}`);
    }
    for (const f of this.findings || []) if (f.level === "finding" && f.rows.includes(e)) lines.push(`▼ ${words(f.detector)} (${f.confidence})`);
    if (many > 1) lines.push(`${many > 5000 ? "more than 5,000" : many} events here; zoom in to tell them apart`);
    this.tip.replaceChildren(...lines.map((l) => h("div", {}, l)));
    clearTimeout(this.asking);
    this.asking = setTimeout(() => this.more(e), 60);
    const box = this.element.getBoundingClientRect();
    this.tip.style.left = `${Math.min(p.clientX - box.left + 14, box.width - 280)}px`;
    this.tip.style.top = `${Math.min(p.clientY - box.top + 16, box.height - 80)}px`;
  }

  // What the record says beyond the columns comes a moment later: the options of a decision, the text of a message.
  async more(e) {
    const record = await describe(this.run, e).catch(() => null);
    if (!record || this.hover !== e) return;
    const odds = optionRows(record.podium, this.run.word("chosen", e)).slice(0, 6)
      .map((o) => `${o.chosen ? "▸ " : "   "}${o.option}${o.probability === null ? "" : `: ${figure("share", o.probability)}`}`);
    const text = typeof record.content === "string" ? record.content : record.content === undefined ? "" : JSON.stringify(record.content);
    if (text) odds.push(text.length > 240 ? `${text.slice(0, 240)}…` : text);
    this.tip.append(...odds.map((l) => h("div.more", {}, l)));
  }

  click(p) {
    const { e } = this.at(p);
    this.select(e);
    this.canvas.focus();
  }
  select(e, reveal = false) {
    this.selected = e;
    if (reveal && e >= 0) this.reveal(e);
    else this.draw();
    this.onselect?.(e);
  }

  // The next event of the same lane, or the first in view.
  step(by) {
    const { run } = this;
    if (this.selected < 0) {
      const i = lower(Float64Array.from(run.drawn, (e) => run.x0[e]), this.a);
      if (i < run.drawn.length) this.select(run.drawn[i], true);
      return;
    }
    const lane = run.lanes[run.lane[run.columns.agent[this.selected]]];
    const i = lane ? lane.rows.indexOf(this.selected) : -1;
    const next = lane?.rows[i + by];
    if (next !== undefined) this.select(next, true);
  }

  paints() {
    const { run, colour } = this;
    const of = (hex) => paint(hex);
    if (colour.values) return (e) => creditPaint(colour.values[e], colour.scale);
    if (colour.by === "time") return (e) => paintOf(TIMES[run.time(e)]);
    if (colour.by === "safety") return (e) => (run.flag(e, "untrusted") ? of("#c00000") : run.flag(e, "tainted") ? of("#e69f00") : of("#9aa7b4"));
    if (colour.by === "tool") return (e) => paintOf(HUES[(run.columns.tool ? run.columns.tool[e] : -1) % HUES.length] || "#9aa7b4");
    const table = run.header.event_types.map((t) => of(COLOURS[t]));
    const person = of(COLOURS.human_intervention);
    return (e) => (run.people.has(run.columns.agent[e]) ? person : table[run.columns.type[e]]);
  }

  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      if (this.element.isConnected && this.canvas.clientWidth) this.paint();
    });
  }

  // Few lanes are high enough to fill the room; many are low, and more than two hundred are a picture first.
  comfort() {
    const n = this.run.lanes.length;
    this.sized = true;
    this.height = n > 200 ? 12 : Math.min(44, Math.max(22, Math.floor(this.room() / Math.max(1, n))));
  }

  paint() {
    if (!this.sized) this.comfort();
    const { run, canvas, height } = this;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const W = Math.round(this.width * ratio);
    const H = Math.round(canvas.clientHeight * ratio);
    if (canvas.width !== W || canvas.height !== H) {
      canvas.width = W;
      canvas.height = H;
    }
    this.top = Math.min(this.top, Math.max(0, this.overflow()));
    const ctx = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink");
    const quiet = style.getPropertyValue("--quiet");
    const base = paint(style.getPropertyValue("--page").trim());
    if (!this.image || this.image.width !== W || this.image.height !== H) {
      this.image = new ImageData(W, H);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    const pixels = this.pixels;
    pixels.fill(base);
    const first = Math.floor(this.top / height);
    const last = Math.min(run.lanes.length, Math.ceil((this.top + this.room()) / height));
    const rule = paint(style.getPropertyValue("--rule").trim());
    const colour = this.paints();
    const scale = W / (this.b - this.a);
    const dim = this.dimmed();
    const thick = Math.max(1, Math.round(Math.min(height * 0.62, 18) * ratio));
    let inView = 0;
    const few = (this.inView ?? run.n) <= FEW && height >= 10;
    this.pointed = few; // what took no time will be a dot, and needs no line
    for (let i = first; i < last; i++) {
      const lane = run.lanes[i];
      const middle = Math.round((AXIS + (i + 0.5) * height - this.top) * ratio);
      const y0 = Math.max(Math.round(AXIS * ratio), middle - (thick >> 1));
      const y1 = Math.min(H, middle - (thick >> 1) + thick);
      if (middle > AXIS * ratio && middle < H && height >= 8) pixels.fill(rule, middle * W, middle * W + W);
      inView += this.paintLane(lane, y0, y1, W, scale, dim ? (e) => (dim(e) ? faint(colour(e), base) : colour(e)) : colour);
    }
    ctx.putImageData(this.image, 0, 0);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.inView = inView;
    if (few !== (inView <= FEW && height >= 10)) this.draw();
    if (inView <= FEW && height >= 10) this.marks(ctx, first, last, ink);
    this.edges(ctx, inView, quiet, ink);
    this.outline(ctx, this.hover, quiet);
    this.outline(ctx, this.selected, ink);
    if (this.line !== undefined) {
      ctx.fillStyle = style.getPropertyValue("--accent");
      ctx.fillRect(this.px(this.line) - 1, AXIS - 4, 2, this.room() + 4);
    }
    if (this.brush) {
      ctx.fillStyle = style.getPropertyValue("--shade");
      ctx.fillRect(this.px(this.brush[0]), 0, this.px(this.brush[1]) - this.px(this.brush[0]), canvas.clientHeight);
    }
    this.axis(ctx, ink, quiet);
    this.label(first, last);
    this.onpaint?.(this);
    document.body.dataset.painted = "yes";
  }

  // One lane as pixels. Events that share a pixel are one mark, as long as the longest of them; returns how many marks there are.
  paintLane(lane, y0, y1, W, scale, colour) {
    const { run, pixels, a } = this;
    const { x0, x1 } = run;
    let marks = 0;
    let i = run.firstAt(lane, this.a);
    while (i < lane.n) {
      const e = lane.rows[i];
      const from = Math.floor((x0[e] - a) * scale);
      if (from >= W) break;
      let j = i + 1;
      if (j < lane.n && (x0[lane.rows[j]] - a) * scale < from + 1) j = run.after(lane, i, a + (from + 1) / scale);
      const longest = j - i > 1 ? lane.rows[run.longestIn(lane, i, j)] : e;
      const to = Math.ceil((x1[longest] - a) * scale);
      const dots = this.pointed && to - from <= 1 && !(x1[longest] > x0[longest]);
      if (dots) marks += j - i;
      else if (to >= 0) {
        marks += j - i > 1 ? Math.min(j - i, 50) : 1;
        let shown = longest;
        if (this.faded?.[shown]) for (let k = i; k < Math.min(j, i + BLOCK); k++) if (!this.faded[lane.rows[k]]) shown = lane.rows[k]; // what stands out is seen first
        const c = colour(shown);
        const left = Math.max(0, from);
        const right = Math.min(W, Math.max(to, from + 2));
        for (let y = y0; y < y1; y++) pixels.fill(c, y * W + left, y * W + right);
      }
      i = j;
    }
    return marks;
  }

  // Which events stand back: those off the critical path where it is lit, or those that two runs share.
  dimmed() {
    if (this.critical) return (e) => !this.run.flag(e, "critical");
    return this.faded && ((e) => this.faded[e]);
  }

  each(first, last, visit) {
    const { run } = this;
    for (let i = first; i < last; i++) {
      const lane = run.lanes[i];
      for (let k = run.firstAt(lane, this.a); k < lane.n; k++) {
        const e = lane.rows[k];
        if (run.x0[e] > this.b) break;
        if (run.x1[e] >= this.a) visit(e, i, k, lane);
      }
    }
  }

  middle(e) {
    return AXIS + (this.run.lane[this.run.columns.agent[e]] + 0.5) * this.height - this.top;
  }

  marks(ctx, first, last, ink) {
    const { run } = this;
    const colour = this.paints();
    ctx.font = "11px system-ui, sans-serif";
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    ctx.save();
    ctx.beginPath();
    ctx.rect(0, AXIS, this.width, this.room());
    ctx.clip();
    const dim = this.dimmed();
    let [row, busy] = [-1, 0]; // how far the events of this lane reach so far
    const page = getComputedStyle(document.documentElement).getPropertyValue("--page");
    this.each(first, last, (e, i, k, lane) => {
      const x = this.px(run.x0[e]);
      const y = this.middle(e);
      const width = this.px(run.x1[e]) - x;
      if (i !== row) [row, busy] = [i, -Infinity];
      const free = busy <= x + Math.max(width, 5);
      busy = Math.max(busy, x + width);
      const next = k + 1 < lane.n ? this.px(run.x0[lane.rows[k + 1]]) : Infinity;
      ctx.globalAlpha = dim?.(e) ? 0.35 : 1;
      const decides = run.columns.decision[e] >= 0;
      if (width < 3 && !decides) {
        ctx.fillStyle = css(colour(e));
        ctx.beginPath();
        ctx.arc(x, y, Math.min(4, this.height * 0.26), 0, 7);
        ctx.fill();
      }
      if (decides) this.decision(ctx, e, x, y, width, Math.min(next, this.width), css(colour(e)), page);
      if (run.flag(e, "critical")) {
        ctx.fillStyle = "#d62728";
        ctx.fillRect(x - (width < 3 ? 4 : 0), y + Math.min(this.height * 0.31, 9), Math.max(width, 8), 2);
      }
      if (this.pins?.has(e)) {
        ctx.fillStyle = "#c00000";
        ctx.beginPath();
        ctx.moveTo(x - 5, y - this.height * 0.45);
        ctx.lineTo(x + 5, y - this.height * 0.45);
        ctx.lineTo(x, y - this.height * 0.45 + 8);
        ctx.fill();
      }
      const room = Math.min(next, this.width) - x - 8;
      if (this.height >= 16 && room > 40) {
        const odds = decides ? run.options(e).find((o) => o.chosen)?.p ?? null : null;
        const text = odds === null ? run.label(e) : `${run.label(e)} ${percents(odds)}`;
        if (width > 30 && !this.colour.values) {
          ctx.fillStyle = dim?.(e) ? ink : light(colour(e)) ? "#101820" : "#ffffff";
          ctx.globalAlpha = 1;
          const inset = decides ? 12 : 4;
          ctx.fillText(clip(ctx, text, x + width - Math.max(x, 0) - inset - 4), Math.max(x, 0) + inset, y + 0.5);
        } else if (width < 30 && free) {
          const shown = clip(ctx, text, room - 6);
          ctx.fillStyle = page;
          ctx.fillRect(x + Math.max(width, 5) + 2, y - 7, ctx.measureText(shown).width + 4, 14);
          ctx.fillStyle = ink;
          ctx.fillText(shown, x + Math.max(width, 5) + 4, y + 0.5);
        }
      }
    });
    ctx.restore();
  }

  // A decision is a diamond; below it a bar of its options, each as long as it was likely, the chosen one in full colour.
  decision(ctx, e, x, y, width, next, colour, page) {
    const size = Math.min(6, this.height * 0.28);
    ctx.beginPath();
    ctx.moveTo(x - size, y);
    ctx.lineTo(x, y - size);
    ctx.lineTo(x + size, y);
    ctx.lineTo(x, y + size);
    ctx.closePath();
    ctx.fillStyle = colour;
    ctx.fill();
    ctx.lineWidth = 1.5;
    ctx.strokeStyle = page;
    ctx.stroke();
    const options = this.height >= 22 ? this.run.options(e).filter((o) => o.p !== null) : [];
    const room = Math.min(72, Math.max(width, 40), next - x - 4);
    if (options.length < 2 || room < 16) return;
    let at = x;
    options.forEach((o, i) => {
      const long = room * Math.min(1, o.p);
      ctx.fillStyle = o.chosen ? colour : i % 2 ? "#aab4be" : "#8a94a0";
      ctx.fillRect(at, y - Math.min(this.height * 0.31, 9) - 5, Math.max(0.5, long - 0.7), 4);
      at += long;
    });
  }

  edges(ctx, inView, quiet, ink) {
    const { run } = this;
    const { src, dst, edge } = run.columns;
    const arrows = isDark() ? { ...ARROW_COLOURS, spawn: "#2fc79a", return: "#4aa8e8", aggregate: "#ff8a3d", tool_dependency: "#f0b429" } : ARROW_COLOURS;
    const arrow = (x, strong, red = false) => {
      const [s, d] = [src[x], dst[x]];
      const lanes = [run.lane[run.columns.agent[s]], run.lane[run.columns.agent[d]]];
      if (lanes[0] === lanes[1] || lanes[0] < 0 || lanes[1] < 0) return;
      const leaves = run.x1[s] > run.x0[s] && run.x1[s] <= run.x0[d] ? run.x1[s] : run.x0[s];
      const [x0, y0, x1, y1] = [this.px(leaves), this.middle(s), this.px(run.x0[d]), this.middle(d)];
      if (Number.isNaN(x0 + x1) || Math.max(x0, x1) < 0 || Math.min(x0, x1) > this.width) return;
      ctx.strokeStyle = red ? "#d62728" : strong ? ink : arrows[run.header.edge_types[edge[x]]] || quiet;
      ctx.globalAlpha = strong || red ? 0.9 : 0.6;
      ctx.setLineDash(run.columns.inferred[x] ? [4, 3] : []);
      ctx.beginPath();
      ctx.moveTo(x0, y0);
      const down = y1 > y0 ? 1 : -1;
      const steep = Math.abs(x1 - x0) < 28; // an arrow between two things at almost one time goes straight up or down
      const tip = steep ? y1 - down * Math.min(6, this.height / 4) : y1;
      if (steep) ctx.bezierCurveTo(x0, (y0 + tip) / 2, x1, (y0 + tip) / 2, x1, tip);
      else {
        const bend = Math.max(12, Math.min(160, Math.abs(x1 - x0) / 2));
        ctx.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
      }
      ctx.stroke();
      ctx.fillStyle = ctx.strokeStyle;
      ctx.beginPath();
      ctx.moveTo(x1, tip);
      ctx.lineTo(x1 - (steep ? 3 : 6), tip - (steep ? 6 * down : 3));
      ctx.lineTo(x1 + (steep ? 3 : -6), tip - (steep ? 6 * down : -3));
      ctx.fill();
    };
    ctx.save();
    ctx.beginPath();
    ctx.rect(0, AXIS, this.width, this.room());
    ctx.clip();
    ctx.lineWidth = 1;
    if (inView <= ARROWS) {
      const first = Math.floor(this.top / this.height);
      const last = Math.min(run.lanes.length, Math.ceil((this.top + this.room()) / this.height));
      this.each(first, last, (e) => run.causesOf(e).forEach((x) => run.header.edge_types[edge[x]] !== "temporal" && arrow(x, false)));
    }
    ctx.lineWidth = 2;
    if (this.critical && run.pathEdges().length < 20_000) for (const x of run.pathEdges()) arrow(x, false, true);
    ctx.lineWidth = 1.5;
    for (const e of [this.hover, this.selected]) if (e >= 0) [...run.causesOf(e), ...run.effectsOf(e)].forEach((x) => arrow(x, true));
    ctx.restore();
  }

  outline(ctx, e, colour) {
    if (e < 0 || Number.isNaN(this.run.x0[e])) return;
    const x = this.px(this.run.x0[e]);
    const y = this.middle(e);
    if (y < AXIS) return;
    const width = Math.max(8, this.px(this.run.x1[e]) - x);
    const half = Math.max(5, Math.min(this.height * 0.4, 12));
    ctx.strokeStyle = colour;
    ctx.lineWidth = 2;
    ctx.strokeRect(x - (width <= 8 ? 5 : 1), y - half, width + 2, 2 * half);
  }

  axis(ctx, ink, quiet) {
    const { run } = this;
    if (!run.n) return;
    ctx.font = "11px system-ui, sans-serif";
    ctx.textBaseline = "top";
    ctx.textAlign = "center";
    const step = niceStep((this.b - this.a) / Math.max(2, this.width / 110));
    for (let x = Math.ceil(this.a / step) * step; x <= this.b; x += step) {
      const p = this.px(x);
      ctx.fillStyle = quiet;
      ctx.fillRect(p, AXIS - 5, 1, 5);
      ctx.fillStyle = ink;
      const at = run.clock(x);
      const text = run.timed ? tick(Math.abs(at) < step / 1e6 ? 0 : at, step) : `event ${Math.round(at)}`;
      const half = ctx.measureText(text).width / 2 + 2;
      ctx.fillText(text, Math.min(Math.max(p, half), this.width - half), 4);
    }
    if (run.warp) {
      ctx.fillStyle = quiet;
      for (let i = 2; i < run.warp.to.length; i += 2) {
        const p = this.px(run.warp.to[i]);
        if (p > 0 && p < this.width) ctx.fillText("≈", p, AXIS - 13);
      }
    }
  }

  label(first, last) {
    const { run, height } = this;
    const now = [first, last, this.top, height, run.layout, this.bar.clientHeight].join();
    if (now === this.labelled) return; // going sideways leaves the names as they are
    this.labelled = now;
    const rows = [];
    if (height >= 11) {
      for (let i = first; i < last; i++) {
        const { agent, folded } = run.lanes[i];
        const kids = run.children[agent].length > 0;
        const y = AXIS + i * height - this.top;
        if (y < AXIS - height / 2) continue;
        const name = run.header.agents[agent];
        const shown = run.titles[agent];
        const row = h("div.name", {
          role: "treeitem", title: shown === name ? name : `${shown} (${name})`, "aria-level": String(run.depth[agent] + 1), "aria-expanded": kids ? String(!folded) : null,
          "aria-label": `${shown}, ${number(run.count[agent])} events`,
        }, kids ? h("button.fold", { "aria-label": `${folded ? "unfold" : "fold"} ${shown}`, tabindex: "-1", onclick: () => this.fold(agent) }, folded ? "▸" : "▾") : h("span.fold"),
        h("span", { onclick: () => this.onagent?.(agent) }, shown + (folded ? ` +${run.last[agent] - run.place[agent] - 1}` : "")));
        row.style.top = `${y}px`;
        row.style.height = `${height}px`;
        row.style.lineHeight = `${height}px`;
        row.style.fontSize = `${Math.min(12, height - 1)}px`;
        row.style.paddingLeft = `${4 + Math.min(run.depth[agent], 8) * 10}px`;
        rows.push(row);
      }
    }
    this.names.replaceChildren(...rows);
    const all = run.lanes.length * height;
    const thumb = this.bar.firstChild;
    this.bar.hidden = all <= this.room();
    thumb.style.height = `${Math.max(14, (this.room() / all) * this.bar.clientHeight)}px`;
    thumb.style.top = `${(this.top / all) * this.bar.clientHeight}px`;
  }
}

const HUES = ["#0072b2", "#e69f00", "#009e73", "#aa4499", "#56b4e9", "#d55e00", "#b8a000", "#882255", "#44aa99", "#6b6b6b"];
// The same, light enough for a dark page.
const LIGHT_HUES = ["#4aa8e8", "#f0b429", "#2fc79a", "#d98cd0", "#a5dcff", "#ff8a3d", "#dcc846", "#d07aa6", "#7fdccb", "#a8b2bb"];
const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark";
const hue = (i) => (isDark() ? LIGHT_HUES : HUES)[i % HUES.length];
const paintCache = new Map();
const paintOf = (hex) => {
  if (!paintCache.has(hex)) paintCache.set(hex, paint(hex));
  return paintCache.get(hex);
};
const css = (c) => `rgb(${c & 255} ${(c >> 8) & 255} ${(c >> 16) & 255})`;

function faint(c, base) {
  const mix = (shift) => ((((c >> shift) & 255) + 3 * ((base >> shift) & 255)) >> 2) << shift;
  return (255 << 24) | mix(0) | mix(8) | mix(16);
}

// Credit: blue above nothing, orange below, grey where there is none.
function creditPaint(v, scale) {
  if (v === undefined || Number.isNaN(v)) return paintOf("#b4bcc4");
  const share = Math.min(1, Math.abs(v) / (scale || 1));
  const [r, g, b] = v >= 0 ? [0, 90, 181] : [220, 90, 0];
  const mix = (x) => Math.round(225 + (x - 225) * (0.15 + 0.85 * share));
  return (255 << 24) | (mix(b) << 16) | (mix(g) << 8) | mix(r);
}

const light = (c) => 0.299 * (c & 255) + 0.587 * ((c >> 8) & 255) + 0.114 * ((c >> 16) & 255) > 130;

function clip(ctx, text, room) {
  if (ctx.measureText(text).width <= room) return text;
  const keep = Math.max(0, Math.floor((text.length * room) / ctx.measureText(text).width) - 1);
  return keep > 1 ? text.slice(0, keep) + "…" : "";
}

// A time at the axis, as exact as the steps between two of them ask for.
function tick(at, step) {
  if (step >= 60 || at <= 0) return seconds(at);
  const digits = (unit) => Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  if (at < 1) return `${(at * 1e3).toFixed(digits(1e-3))} ms`;
  if (at < 119.5) return `${at.toFixed(digits(1))} s`;
  const [minutes, rest] = [Math.floor(at / 60), (at % 60).toFixed(digits(1)).padStart(digits(1) ? digits(1) + 3 : 2, "0")];
  return minutes < 60 ? `${minutes}:${rest} min` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest} h`;
}

function niceStep(x, plain = false) {
  const minutes = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  if (!plain && x > 1 && x < 86400) return minutes.find((m) => m >= x);
  const power = 10 ** Math.floor(Math.log10(x || 1));
  return [1, 2, 5, 10].find((m) => m * power >= x * 0.999) * power;
}
