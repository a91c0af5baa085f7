// One run: its columns, who spawned whom, and the times that its picture is drawn by.

const COLOURS = {
  // Okabe and Ito's colours, which people who confuse red and green tell apart
  orchestrator_decision: "#aa4499", spawn: "#009e73", despawn: "#8a8a8a", message: "#56b4e9", tool_call: "#e69f00",
  tool_result: "#b8a000", return: "#0072b2", aggregate: "#d55e00", human_intervention: "#6b6b6b", safety_event: "#c00000",
};
const MARKS = { orchestrator_decision: "◆", spawn: "+", despawn: "×", message: "✉", tool_call: "○", tool_result: "●", return: "◀", aggregate: "▣", human_intervention: "H", safety_event: "!" };
const TIMES = { model: "#0072b2", tool: "#e69f00", person: "#6b6b6b" };
const TOKENS = ["tokens_in", "cache_read", "cache_write", "tokens_out"];
// Edges between agents, and their names for a person.
const ARROW_COLOURS = { spawn: "#009e73", message: "#56b4e9", return: "#0072b2", aggregate: "#d55e00", tool_dependency: "#b8860b", safety_flow: "#c00000", causal: "#8a94a0" };
const BLOCK = 64;

const paint = (hex) => {
  const n = parseInt(hex.slice(1), 16);
  return (255 << 24) | ((n & 255) << 16) | (n & 0xff00) | (n >> 16);
};

class Run {
  constructor(number, { header, columns }) {
    Object.assign(this, { number, header, columns });
    this.n = header.events;
    this.people = new Set(header.people);
    this.timed = header.timed > 0;
    const { t, end } = columns;
    this.start = new Float64Array(this.n);
    this.stop = new Float64Array(this.n);
    for (let e = 0; e < this.n; e++) {
      const at = this.timed ? t[e] : e;
      this.start[e] = at;
      this.stop[e] = this.timed && end[e] > at ? end[e] : at;
    }
    this.order = this.timeOrder(this.start);
    this.untimed = this.n - this.order.length;
    this.family();
    this.folded = new Set();
    this.titles = header.agents; // what agents are called, until the summary says what each was launched for
    this.setTimes("clock");
    this.span = this.high - this.low; // how long it took, by the clock
  }

  timeOrder(start) {
    const rows = new Uint32Array(this.n);
    let n = 0;
    let sorted = true;
    let last = -Infinity;
    for (let e = 0; e < this.n; e++) {
      if (Number.isNaN(start[e])) continue;
      if (start[e] < last) sorted = false;
      last = start[e];
      rows[n++] = e;
    }
    const order = rows.subarray(0, n);
    return sorted ? order : order.sort((a, b) => start[a] - start[b] || a - b);
  }

  // Agents from the top of the tree down: an agent stands below whoever spawned it, in the order in which they first act.
  family() {
    const { agents, parents } = this.header;
    const first = new Float64Array(agents.length).fill(Infinity);
    this.count = new Int32Array(agents.length);
    const agent = this.columns.agent;
    for (let e = 0; e < this.n; e++) {
      const a = agent[e];
      if (a < 0) continue;
      this.count[a]++;
      const at = Number.isNaN(this.start[e]) ? 1e300 : this.start[e];
      if (at < first[a]) first[a] = at;
    }
    this.children = agents.map(() => []);
    const roots = [];
    parents.forEach((p, a) => (p >= 0 ? this.children[p] : roots).push(a));
    const shown = (a) => this.count[a] > 0 || this.children[a].length > 0;
    const byTime = (a, b) => first[a] - first[b] || a - b;
    this.tree = [];
    this.depth = new Int32Array(agents.length);
    this.last = new Int32Array(agents.length); // of the subtree: where it ends in `tree`
    const stack = roots.filter(shown).sort(byTime).reverse();
    const open = [];
    while (stack.length) {
      const a = stack.pop();
      while (open.length && open[open.length - 1] !== parents[a]) this.last[open.pop()] = this.tree.length;
      this.depth[a] = open.length;
      this.tree.push(a);
      open.push(a);
      stack.push(...this.children[a].filter(shown).sort(byTime).reverse());
    }
    while (open.length) this.last[open.pop()] = this.tree.length;
    this.place = new Int32Array(agents.length).fill(-1);
    this.tree.forEach((a, i) => (this.place[a] = i));
  }

  // What the horizontal axis is: the clock, the clock without idle time, or the schedule of k workers.
  setTimes(mode, k = 0) {
    this.mode = mode;
    this.workers = k;
    this.warp = null;
    if (mode === "schedule") {
      const plan = this.schedule(k);
      this.x0 = plan.start;
      this.x1 = plan.stop;
      this.makespan = plan.makespan;
      this.drawn = this.timeOrder(this.x0);
    } else {
      this.x0 = this.start;
      this.x1 = this.stop;
      this.drawn = this.order;
      if (mode === "busy") this.squeeze();
    }
    let low = Infinity;
    let high = -Infinity;
    for (const e of this.drawn) {
      if (this.x0[e] < low) low = this.x0[e];
      if (this.x1[e] > high) high = this.x1[e];
    }
    this.low = this.drawn.length ? low : 0;
    this.high = this.drawn.length ? Math.max(high, low + 1e-6) : 1;
    this.lay();
    this.sums = null;
  }

  // When the team is done with an event: a person who takes the night to answer keeps nobody busy.
  end(e) {
    return this.people.has(this.columns.agent[e]) ? this.start[e] : this.stop[e];
  }

  // The share of the time in which nothing at all happens; a long night between two tasks is most of it.
  idleShare() {
    let busy = 0;
    let until = -Infinity;
    let last = -Infinity;
    for (const e of this.order) {
      last = Math.max(last, this.start[e], this.end(e));
      const from = Math.max(this.start[e], until);
      if (this.end(e) > from) busy += this.end(e) - from;
      until = Math.max(until, this.end(e));
    }
    const span = this.order.length ? last - this.start[this.order[0]] : 0;
    return span > 0 && busy > 0 ? 1 - busy / span : 0;
  }

  // Where nothing happens for more than a fiftieth of the busy time, that much is shown of it.
  squeeze() {
    const gaps = [];
    let until = -Infinity;
    let busy = 0;
    for (const e of this.order) {
      if (this.start[e] > until && until > -Infinity) gaps.push([until, this.start[e]]);
      busy += Math.max(0, this.end(e) - Math.max(this.start[e], until));
      until = Math.max(until, this.end(e));
    }
    const most = Math.max(busy / 50, 1e-9);
    const from = [this.order.length ? this.start[this.order[0]] : 0];
    const to = [0];
    for (const [a, b] of gaps) {
      if (b - a <= most) continue;
      const here = to[to.length - 1] + (a - from[from.length - 1]);
      from.push(a, b);
      to.push(here, here + most);
    }
    this.warp = { from, to };
    const squeezed = (values) => Float64Array.from(values, (t) => this.shown(t));
    this.x0 = squeezed(this.start);
    this.x1 = squeezed(this.stop);
  }

  shown(t) {
    if (!this.warp) return t;
    const { from, to } = this.warp;
    const i = Math.max(0, below(from, t));
    const next = from[i + 1];
    const slope = next !== undefined ? (to[i + 1] - to[i]) / (next - from[i] || 1) : 1;
    return to[i] + (t - from[i]) * slope;
  }

  clock(x) {
    if (!this.warp) return x;
    const { from, to } = this.warp;
    const i = Math.max(0, below(to, x));
    const next = to[i + 1];
    const slope = next !== undefined ? (from[i + 1] - from[i]) / (next - to[i] || 1) : 1;
    return from[i] + (x - to[i]) * slope;
  }

  // Lanes from top to bottom; that of a folded agent has the events of all below it.
  lay() {
    this.layout = (this.layout || 0) + 1;
    const { agents } = this.header;
    const lane = new Int32Array(agents.length).fill(-1);
    this.lanes = [];
    for (let i = 0; i < this.tree.length; i++) {
      const a = this.tree[i];
      lane[a] = this.lanes.length;
      this.lanes.push({ agent: a, folded: this.folded.has(a), n: 0 });
      if (this.folded.has(a)) {
        for (let k = i + 1; k < this.last[a]; k++) lane[this.tree[k]] = lane[a];
        i = this.last[a] - 1;
      }
    }
    this.lane = lane;
    const agent = this.columns.agent;
    const first = new Int32Array(this.lanes.length + 1);
    for (const e of this.drawn) if (agent[e] >= 0) first[lane[agent[e]] + 1]++;
    for (let i = 0; i < this.lanes.length; i++) first[i + 1] += first[i];
    const rows = new Uint32Array(first[this.lanes.length]);
    const next = first.slice();
    for (const e of this.drawn) if (agent[e] >= 0) rows[next[lane[agent[e]]]++] = e;
    this.lanes.forEach((l, i) => {
      l.rows = rows.subarray(first[i], first[i + 1]);
      l.n = l.rows.length;
      const blocks = Math.ceil(l.n / BLOCK);
      l.longest = new Int32Array(blocks); // in each block of events the place of the one that ends last
      l.until = new Float64Array(blocks); // when the last of these and all earlier blocks ends
      let until = -Infinity;
      for (let b = 0; b < blocks; b++) {
        let best = b * BLOCK;
        for (let k = best; k < Math.min(l.n, (b + 1) * BLOCK); k++) if (this.x1[l.rows[k]] > this.x1[l.rows[best]]) best = k;
        l.longest[b] = best;
        until = Math.max(until, this.x1[l.rows[best]]);
        l.until[b] = until;
      }
    });
  }

  // Where to begin in a lane to see all that is under way at x or begins later.
  firstAt(l, x) {
    let low = 0;
    let high = l.until.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (l.until[middle] < x) low = middle + 1;
      else high = middle;
    }
    return low * BLOCK;
  }

  // The place, from i to before j, of the event that ends last.
  longestIn(l, i, j) {
    let best = i;
    for (let k = i; k < j; ) {
      if (k % BLOCK === 0 && k + BLOCK <= j) {
        const candidate = l.longest[k / BLOCK];
        if (this.x1[l.rows[candidate]] > this.x1[l.rows[best]]) best = candidate;
        k += BLOCK;
      } else {
        if (this.x1[l.rows[k]] > this.x1[l.rows[best]]) best = k;
        k++;
      }
    }
    return best;
  }

  // The first place after i whose event begins at x or later: doubling steps, then halving.
  after(l, i, x) {
    let step = 1;
    let low = i;
    while (low + step < l.n && this.x0[l.rows[low + step]] < x) {
      low += step;
      step *= 2;
    }
    let high = Math.min(l.n, low + step);
    while (low + 1 < high) {
      const middle = (low + high) >> 1;
      if (this.x0[l.rows[middle]] < x) low = middle;
      else high = middle;
    }
    return low + 1;
  }

  // What happens side by side: sorted starts and ends of each agent's busy time, and running sums of tokens and money.
  totals() {
    if (this.sums) return this.sums;
    const starts = [];
    const ends = [];
    for (const l of this.lanes) {
      if (this.people.has(l.agent)) continue;
      let from = NaN;
      let until = -Infinity;
      for (const e of l.rows) {
        if (!(this.x1[e] > this.x0[e])) continue;
        if (this.x0[e] > until) {
          if (until > -Infinity) ends.push(until);
          from = this.x0[e];
          starts.push(from);
          until = this.x1[e];
        } else until = Math.max(until, this.x1[e]);
      }
      if (until > -Infinity) ends.push(until);
    }
    const at = new Float64Array(this.drawn.length); // plain loops: a run of a million events waits for them
    for (let i = 0; i < at.length; i++) at[i] = this.x0[this.drawn[i]];
    const running = (names) => {
      const there = names.filter((n) => this.columns[n]);
      if (!there.length) return null;
      const sum = new Float64Array(this.drawn.length + 1);
      for (const n of there) {
        const values = this.columns[n];
        for (let i = 0; i < this.drawn.length; i++) if (values[this.drawn[i]] > 0) sum[i + 1] += values[this.drawn[i]];
      }
      for (let i = 1; i < sum.length; i++) sum[i] += sum[i - 1];
      return sum;
    };
    const [first, last] = [Float64Array.from(starts).sort(), Float64Array.from(ends).sort()];
    this.sums = {
      starts: first, ends: last, level: levels(first, last), at, // how many are busy when one begins
      tokens: running(TOKENS), money: running([this.columns.cost ? "cost" : "price"]),
    };
    return this.sums;
  }

  // What an agent was launched for says more than its identifier.
  rename(agents) {
    const tasks = new Map(agents.filter((a) => a.task).map((a) => [a.name, a.task]));
    this.layout++;
    if (tasks.size) this.titles = this.header.agents.map((name) => tasks.get(name) || name);
  }

  // Of some events: when they begin and end, their tokens and their price, as far as the record says.
  extent(rows) {
    const sum = { from: Infinity, to: -Infinity, tokens: null, price: null };
    for (const e of rows) {
      if (this.timed && this.start[e] < sum.from) sum.from = this.start[e];
      if (this.timed && this.stop[e] > sum.to) sum.to = this.stop[e];
      for (const name of TOKENS) if (this.columns[name]?.[e] >= 0) sum.tokens += this.columns[name][e];
      const price = (this.columns.cost || this.columns.price)?.[e];
      if (price >= 0) sum.price += price;
    }
    return sum;
  }

  effects() {
    if (this.byCause) return this.byCause;
    const { src, dst } = this.columns;
    const first = new Int32Array(this.n + 1);
    for (const s of src) first[s + 1]++;
    for (let e = 0; e < this.n; e++) first[e + 1] += first[e];
    const edges = new Int32Array(src.length);
    const next = first.slice();
    for (let x = 0; x < dst.length; x++) edges[next[src[x]]++] = x;
    return (this.byCause = { first, edges });
  }

  causesOf(e) {
    const { dst } = this.columns;
    let low = lower(dst, e);
    const edges = [];
    while (low < dst.length && dst[low] === e) edges.push(low++);
    return edges;
  }

  effectsOf(e) {
    const { first, edges } = this.effects();
    return [...edges.subarray(first[e], first[e + 1])];
  }

  // A list schedule of the same work by k workers (Graham 1969): a free worker takes the lowest row whose causes are done.
  schedule(k) {
    const { work, dst } = this.columns;
    const { first, edges } = this.effects();
    const waits = new Int32Array(this.n);
    for (const d of dst) waits[d]++;
    const start = new Float64Array(this.n).fill(NaN);
    const stop = new Float64Array(this.n).fill(NaN);
    const ready = new Heap((a, b) => a - b);
    const running = new Heap((a, b) => stop[a] - stop[b] || a - b);
    const done = [];
    let now = 0;
    const free = (e) => (work[e] > 0 ? ready.push(e) : done.push(e));
    for (let e = 0; e < this.n; e++) if (!waits[e]) free(e);
    while (done.length || ready.size || running.size) {
      while (done.length) {
        const e = done.pop();
        if (!(work[e] > 0)) start[e] = stop[e] = now;
        for (let i = first[e]; i < first[e + 1]; i++) if (!--waits[dst[edges[i]]]) free(dst[edges[i]]);
      }
      while (ready.size && running.size < k) {
        const e = ready.pop();
        start[e] = now;
        stop[e] = now + work[e];
        running.push(e);
      }
      if (running.size) now = stop[running.top()];
      while (running.size && stop[running.top()] === now) done.push(running.pop());
    }
    return { start, stop, makespan: now };
  }

  word(column, e) {
    const codes = this.columns[column];
    return codes && codes[e] >= 0 ? this.header[`${column}_words`][codes[e]] : null;
  }

  type(e) {
    return this.header.event_types[this.columns.type[e]];
  }

  // Whose time an event is: of the person, of a tool, or of the model.
  time(e) {
    const type = this.type(e);
    return type === "human_intervention" || this.people.has(this.columns.agent[e]) ? "person" : type === "tool_call" ? "tool" : "model";
  }

  flag(e, name) {
    return (this.columns.flags[e] >> this.header.flags.indexOf(name)) & 1;
  }

  // The options of a decision, with their probabilities where these were recorded, as far as the columns have them.
  options(e) {
    const { option_event: of, option, option_logp: logp } = this.columns;
    if (!of) return [];
    const first = lower(of, e);
    const chosen = this.word("chosen", e);
    const list = [];
    for (let i = first; i < of.length && of[i] === e; i++) {
      const name = this.header.option_words[option[i]];
      list.push({ name, chosen: name === chosen, p: Number.isNaN(logp[i]) ? null : Math.exp(logp[i]) });
    }
    return list;
  }

  // Of each event on the critical path the edge by which the path came to it: from the cause that was done last.
  pathEdges() {
    if (this.path) return this.path;
    const { src, dst } = this.columns;
    const best = new Map();
    for (let x = 0; x < dst.length; x++) {
      if (!this.flag(dst[x], "critical") || !this.flag(src[x], "critical")) continue;
      const now = best.get(dst[x]);
      if (now === undefined || this.stop[src[x]] > this.stop[src[now]]) best.set(dst[x], x);
    }
    return (this.path = [...best.values()]);
  }

  // All that is reached from an event by edges between events with a flag: what derives from it, or what it derives from.
  reach(e, flag, back = false) {
    const { src, dst } = this.columns;
    const reached = new Set([e]);
    const todo = [e];
    while (todo.length && reached.size < 20_000) {
      const at = todo.pop();
      for (const x of back ? this.causesOf(at) : this.effectsOf(at)) {
        const next = back ? src[x] : dst[x];
        if (reached.has(next) || !(this.flag(next, flag) || this.flag(next, "untrusted"))) continue;
        reached.add(next);
        todo.push(next);
      }
    }
    return reached;
  }

  label(e) {
    const what = this.word("tool", e) || this.word("chosen", e) || "";
    return `${words(this.type(e)).replace("orchestrator ", "")}${what ? ` ${what}` : ""}`;
  }
}

// What the record says of one event, read with those around it.
async function describe(run, e) {
  const chunk = Math.floor(e / run.header.chunk);
  const events = await ask("events", { run: run.number, chunk });
  return events[e - chunk * run.header.chunk];
}

// The options of a decision, with their probabilities where these were recorded.
function optionRows(fields, chosen) {
  const logps = fields?.option_logps;
  return (fields?.options || []).map((option, i) => ({
    option, chosen: option === chosen ? "chosen" : "", probability: logps && logps[i] !== null ? Math.exp(logps[i]) : null,
  }));
}

class Heap {
  constructor(compare) {
    this.items = [];
    this.compare = compare;
  }
  get size() {
    return this.items.length;
  }
  top() {
    return this.items[0];
  }
  push(item) {
    const { items, compare } = this;
    let i = items.push(item) - 1;
    while (i && compare(items[i], items[(i - 1) >> 1]) < 0) {
      const up = (i - 1) >> 1;
      [items[i], items[up]] = [items[up], items[i]];
      i = up;
    }
  }
  pop() {
    const { items, compare } = this;
    const top = items[0];
    const last = items.pop();
    if (items.length) {
      items[0] = last;
      for (let i = 0; ; ) {
        let least = i;
        for (const child of [2 * i + 1, 2 * i + 2]) if (child < items.length && compare(items[child], items[least]) < 0) least = child;
        if (least === i) break;
        [items[i], items[least]] = [items[least], items[i]];
        i = least;
      }
    }
    return top;
  }
}

// How many are under way when each begins: of sorted beginnings and ends, those begun by then less those ended by then.
function levels(first, last) {
  const level = new Float64Array(first.length);
  let ended = 0;
  for (let i = 0; i < first.length; ) {
    let j = i;
    while (j < first.length && first[j] === first[i]) j++;
    while (ended < last.length && last[ended] <= first[i]) ended++;
    level.fill(j - ended, i, j);
    i = j;
  }
  return level;
}

// The first place whose value is x or more; the last whose value is x or less.
function lower(values, x) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

function upper(values, x) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low;
}

const below = (values, x) => upper(values, x) - 1;
