// The screens: one run, many runs, two runs beside each other, a training.

class RunScreen {
  static async open(number, state) {
    const screen = new RunScreen(new Run(number, await ask("run", { run: number })), state);
    await screen.ready;
    return screen;
  }

  constructor(run, state) {
    this.run = run;
    this.name = `run/${run.number}`;
    this.wanted = { method: "", unit: "", other: "" };
    if (run.timed && run.idleShare() > 0.5) run.setTimes("busy");
    this.lanes = new Lanes(run, { onselect: (e) => this.chosen(e), onview: () => this.remember() });
    this.lanes.onpaint = () => this.strips.draw();
    this.lanes.onagent = (a) => this.about(a);
    this.strips = new Strips(run, this.lanes);
    this.status = h("p.quiet.status", { role: "status" });
    this.tools = h("div.toolbar", {}, this.timesPicker(), this.colourPicker(),
      h("button", { title: "only the chain that decides how long the run takes", "aria-pressed": "false", onclick: (c) => this.light(c.currentTarget) }, "Critical path"),
      h("label.workers", { title: "the same work by another number of workers" }, "Workers ", this.slider = h("input", { type: "range", min: "0", max: "32", value: "0", "aria-label": "Number of workers; 0: as it was", oninput: (c) => this.work(+c.target.value) }), this.workers = h("output", {}, "as it was")),
      h("span.group", {}, h("button", { "aria-label": "Zoom in", onclick: () => this.lanes.zoom(0.5) }, "+"), h("button", { "aria-label": "Zoom out", onclick: () => this.lanes.zoom(2) }, "−"), h("button", { onclick: () => this.lanes.fit() }, "All"),
        h("button", { "aria-label": "Lower lanes", onclick: () => this.lanes.size(this.lanes.height / 1.5) }, "≡"), h("button", { "aria-label": "Higher lanes", onclick: () => this.lanes.size(this.lanes.height * 1.5) }, "☰")));
    this.panels = null;
    this.legend = this.makeLegend();
    this.main = h("div.stage", {}, this.tools, this.status, this.lanes.element, this.strips.element, this.legend);
    this.panels = new Panels(this);
    this.element = h("div.run", {}, this.main, this.panels.element);
    this.say();
    this.lanes.height = run.lanes.length > 200 ? 12 : run.lanes.length < 12 ? 34 : 24;
    this.pin();
    this.ready = this.restore(state || {});
  }

  // What the detectors found stands at its events, here and in the lanes.
  async pin() {
    const told = await ask("audit", { run: this.run.number }).catch(() => null);
    if (!told) return;
    this.findings = [...told.found, ...told.observed].flatMap((one) => one.suspects.map((s) => ({ detector: one.detector, level: one.level, confidence: s.confidence, rows: s.rows })));
    this.lanes.pins = new Set(this.findings.filter((f) => f.level === "finding").flatMap((f) => f.rows));
    this.lanes.draw();
  }

  say() {
    const { run } = this;
    const told = [`${number(run.n)} event${run.n === 1 ? "" : "s"}, ${number(run.tree.length)} agent${run.tree.length === 1 ? "" : "s"}`];
    if (!run.n) told.push("this run has no events, so there is nothing to draw");
    else if (!run.timed) told.push("no event says when it happened: they stand in the order of the record");
    else if (run.untimed) told.push(`${number(run.untimed)} events have no time and are in the list alone`);
    if (run.mode === "busy") told.push("idle time is cut short where you see ≈");
    if (run.mode === "schedule") told.push(`with ${run.workers} worker${run.workers === 1 ? "" : "s"} the recorded work takes ${seconds(run.makespan)}`);
    this.status.textContent = told.join(" · ");
  }

  timesPicker() {
    const { run } = this;
    return h("label", {}, "Time ", (this.times = h("select", { onchange: (c) => this.setTimes(c.target.value) }, h("option", { value: "clock", selected: run.mode === "clock" }, "by the clock"), h("option", { value: "busy", selected: run.mode === "busy" }, "without idle time"))));
  }

  colourPicker() {
    return h("label", {}, "Colour ", (this.colours = h("select", { onchange: (c) => this.colourBy(c.target.value) },
      Object.entries({ type: "by event", time: "model, tool, person", tool: "by tool", safety: "by trust", credit: "by credit" }).map(([value, name]) => h("option", { value }, name)))));
  }

  makeLegend() {
    const { run } = this;
    const there = run.header.event_types.filter((t, code) => run.columns.type.indexOf(code) >= 0);
    return h("ul.legend", { "aria-label": "Legend" }, there.map((t) => {
      const dot = h("span.dot");
      dot.style.background = COLOURS[t];
      return h("li", {}, dot, ` ${words(t).replace("orchestrator ", "")}`);
    }));
  }

  setTimes(mode) {
    this.run.setTimes(mode);
    this.lanes.selected = this.lanes.selected;
    this.slider.value = "0";
    this.workers.textContent = "as it was";
    this.times.value = mode;
    this.lanes.fit();
    this.say();
    this.remember();
  }

  work(k) {
    if (!k) return this.setTimes("clock");
    this.run.setTimes("schedule", k);
    this.slider.value = String(k);
    this.workers.textContent = `${k}: ${seconds(this.run.makespan)}`;
    this.lanes.fit();
    this.say();
  }

  light(button) {
    this.lanes.critical = !this.lanes.critical;
    button.setAttribute("aria-pressed", String(this.lanes.critical));
    this.lanes.draw();
  }

  colourBy(by) {
    this.colours.value = by;
    if (by === "credit") {
      this.panels.open("credit");
      if (!this.credit) return;
    }
    this.lanes.colour = by === "credit" ? this.creditColour() : { by };
    this.lanes.draw();
    this.remember();
  }

  creditColour() {
    const { header, columns } = this.credit;
    let values = columns.event;
    let name = `${header.method} (${words(header.unit)})`;
    if (this.other && this.other.columns.event.length === values.length && this.difference) {
      values = values.map((v, i) => v - this.other.columns.event[i]);
      name = `${header.method} less ${this.other.header.method}`;
    }
    let scale = 0;
    for (const v of values) if (Math.abs(v) > scale) scale = Math.abs(v);
    return { by: "credit", values, scale, name };
  }

  async pay(change) {
    Object.assign(this.wanted, change);
    const { method, unit, other } = this.wanted;
    const at = (name) => ({ run: this.run.number, method: name, unit: unit || "own" });
    this.fault = "";
    this.credit = null;
    this.other = null;
    try {
      if (method) this.credit = await ask("credit", at(method));
      if (method && other) this.other = await ask("credit", at(other));
    } catch (error) {
      this.fault = error.message;
    }
    this.difference = Boolean(this.other);
    this.colours.value = this.credit ? "credit" : "type";
    this.lanes.colour = this.credit ? this.creditColour() : { by: "type" };
    this.lanes.draw();
    this.remember();
    return this.panels.open("credit");
  }

  chosen(e) {
    this.remember();
    if (e >= 0) this.panels?.open("event");
    else if (this.panels?.now === "event") this.panels.fill();
  }

  about(agent) {
    this.agent = agent;
    this.lanes.select(-1);
    return this.panels.open("event");
  }

  // Events whose agent, type, tool, choice, role or model has these words; `agent:` and the like ask for one of them.
  searched(query) {
    this.query = query.trim();
    const { run } = this;
    if (!this.query) {
      this.matches = null;
      return this.panels.open(this.panels.now === "list" ? "list" : this.panels.now);
    }
    const [, field, text] = /^(agent|type|tool|chosen|role|model):(.*)$/.exec(this.query) || [null, "", this.query];
    const wanted = text.toLowerCase();
    const hit = (list) => list.map((w) => w.toLowerCase().includes(wanted));
    const tables = [];
    if (!field || field === "agent") tables.push([run.columns.agent, hit(run.header.agents)]);
    if (!field || field === "type") tables.push([run.columns.type, hit(run.header.event_types.map(words))]);
    for (const name of ["tool", "chosen", "role", "model"]) if ((!field || field === name) && run.columns[name]) tables.push([run.columns[name], hit(run.header[`${name}_words`])]);
    const row = /^#?(\d+)$/.exec(this.query);
    this.matches = Array.from(run.order).filter((e) => tables.some(([codes, good]) => codes[e] >= 0 && good[codes[e]]) || (row && e === +row[1]));
    return this.panels.open("list");
  }

  state() {
    const { lanes, run } = this;
    const state = { screen: this.name, panel: this.panels?.now };
    if (lanes.selected >= 0) state.event = lanes.selected;
    if (Math.abs(lanes.a - run.low) + Math.abs(lanes.b - run.high) > (run.high - run.low) * 0.05) state.view = `${+lanes.a.toPrecision(8)}..${+lanes.b.toPrecision(8)}`;
    if (run.mode !== "clock") state.times = run.mode === "schedule" ? String(run.workers) : run.mode;
    if (lanes.colour.by !== "type" && lanes.colour.by !== "credit") state.colour = lanes.colour.by;
    for (const key of ["method", "unit", "other"]) if (this.wanted[key]) state[key] = this.wanted[key];
    if (run.folded.size) state.folded = [...run.folded].join(".");
    if (this.query) state.search = this.query;
    return state;
  }

  remember() {
    if (this.live) remember(this.state());
  }

  async restore(state) {
    const { run, lanes } = this;
    if (state.times === "busy" || state.times === "clock") this.setTimes(state.times);
    else if (+state.times > 0) this.work(+state.times);
    if (state.folded) {
      for (const a of state.folded.split(".").map(Number)) if (run.children[a]?.length) run.folded.add(a);
      run.lay();
    }
    if (state.method) await this.pay({ method: state.method, unit: state.unit || "", other: state.other || "" });
    else if (state.colour) this.colourBy(state.colour);
    if (state.search) this.searched(state.search);
    const view = /^(.+)\.\.(.+)$/.exec(state.view || "");
    if (view) lanes.show(+view[1], +view[2]);
    else lanes.fit();
    if (state.event !== undefined && +state.event < run.n) lanes.select(+state.event, !view);
    if (state.panel) await this.panels.open(state.panel);
    this.live = true;
  }

  key(k) {
    const { lanes } = this;
    const keys = {
      ArrowLeft: () => lanes.pan(-0.1), ArrowRight: () => lanes.pan(0.1), ArrowUp: () => lanes.scroll(-lanes.height), ArrowDown: () => lanes.scroll(lanes.height),
      PageUp: () => lanes.scroll(-lanes.room()), PageDown: () => lanes.scroll(lanes.room()), Home: () => lanes.show(this.run.low, this.run.low + lanes.b - lanes.a), End: () => lanes.show(this.run.high - (lanes.b - lanes.a), this.run.high),
      "+": () => lanes.zoom(0.6), "=": () => lanes.zoom(0.6), "-": () => lanes.zoom(1.7), 0: () => lanes.fit(), j: () => lanes.step(1), k: () => lanes.step(-1),
      c: () => this.tools.querySelector("[aria-pressed]").click(), f: () => lanes.selected >= 0 && lanes.fold(this.run.columns.agent[lanes.selected]),
      Escape: () => lanes.select(-1), n: () => this.match(1), p: () => this.match(-1),
    };
    if (!(k.key in keys)) return false;
    keys[k.key]();
    return true;
  }

  match(by) {
    if (!this.matches?.length) return;
    const at = this.matches.indexOf(this.lanes.selected);
    this.lanes.select(this.matches[(at + by + this.matches.length) % this.matches.length], true);
  }
}

class FolderScreen {
  static async open() {
    const screen = new FolderScreen(await ask("index"));
    screen.costs();
    return screen;
  }

  constructor(index) {
    this.name = "runs";
    const rows = index.runs.map((r) => ({
      run: r.name, number: r.run, task: r.task, agents: r.agents, events: r.events, wall_clock_s: r.wall_clock_s, tokens: r.tokens_in === null && r.tokens_out === null ? null : (r.tokens_in || 0) + (r.tokens_out || 0),
      cost_usd: r.cost, reward: r.reward, activity: sparkline(r.activity), folder: r.folder,
    }));
    const names = ["run", "task", "agents", "events", "wall_clock_s", "tokens", "cost_usd", "reward", "activity", "folder"].filter((n) => rows.some((r) => r[n] !== null && r[n] !== ""));
    this.rows = rows;
    this.names = names.filter((n) => n !== "task" || rows.some((r) => r.task !== r.run));
    this.box = h("div");
    this.fill = (query = "") => {
      const some = this.rows.filter((r) => Object.values(r).join(" ").toLowerCase().includes(query.toLowerCase()));
      this.box.replaceChildren(table(some, { columns: this.names, onrow: (r) => go({ screen: `run/${r.number}` }), caption: "Runs" }));
    };
    this.fill();
    const faults = index.unreadable.length ? h("details", {}, h("summary", {}, `${index.unreadable.length} not read`), h("ul", {}, index.unreadable.map((u) => h("li", {}, u)))) : null;
    const trainings = index.trainings.length ? [h("h2", {}, "Trainings"), table(index.trainings.map((t) => ({ training: t.name, number: t.training, iterations: t.iterations, regret: t.regret })), { columns: ["training", "iterations", "regret"], onrow: (t) => go({ screen: `train/${t.number}` }) })] : [];
    this.more = h("div");
    this.element = h("main.page", {}, h("h1", {}, `${number(index.runs.length)} runs`), faults, this.box, this.more, trainings);
  }

  // What the runs cost comes later: every one has to be read whole for it.
  async costs() {
    const told = await ask("folder").catch(() => null);
    if (!told) return;
    for (const r of told.runs) Object.assign(this.rows[r.number], { project: r.project, team_s: r.team, cost_usd: r.usd, tokens: null, calls: r.calls, failed: r.failed_calls, ended: r.ending });
    const there = (n) => this.rows.some((r) => r[n] !== null && r[n] !== undefined && r[n] !== "");
    this.names = [...this.names.filter((n) => !["tokens", "cost_usd", "folder", "activity"].includes(n)), "team_s", "calls", "failed", "cost_usd", "ended", "project", "activity", "folder"].filter(there);
    this.fill(this.query);
    const timed = (rows) => rows.map(({ team, ...r }) => ({ ...r, team_s: team }));
    const open = (r) => r.worst.length && go({ screen: `run/${r.worst[0]}` });
    this.more.append(h("h2", {}, "What costs most"), table(told.habits.map((r) => ({ habit: r.sentence, runs: r.runs, times: r.times, cost_usd: r.usd, takes_s: r.seconds, worst: r.worst })), { caption: "Habits", onrow: open }),
      h("h2", {}, "By project"), table(timed(told.projects), { caption: "By project" }), ...(told.days.length ? [h("h2", {}, "By day"), table(timed(told.days), { caption: "By day" })] : []));
  }

  searched(query) {
    this.query = query;
    this.fill(query);
  }
  state() {
    return { screen: "runs" };
  }
  key() {
    return false;
  }
}

function sparkline(values) {
  if (!values.length) return null;
  const top = Math.max(...values, 1);
  const picture = svg("svg", { viewBox: `0 0 ${values.length * 2} 16`, width: values.length * 2, height: 16, role: "img", "aria-label": "events over time" });
  values.forEach((v, i) => v && picture.append(svg("rect", { x: i * 2, y: 16 - (15 * v) / top, width: 1.6, height: (15 * v) / top, fill: "var(--accent)" })));
  return picture;
}

class CompareScreen {
  static async open(number, state) {
    const index = await ask("index");
    const a = +(state.a ?? number ?? 0);
    const child = index.runs.find((r) => r.parent !== null && r.parent === index.runs[a]?.name);
    const b = +(state.b ?? child?.run ?? Math.min(a + 1, index.runs.length - 1));
    const [one, two] = await Promise.all([ask("run", { run: a }), ask("run", { run: b })]);
    const told = await ask("compare", { a, b }).catch(() => figuresOf(a, b));
    return new CompareScreen(index, new Run(a, one), new Run(b, two), told);
  }

  constructor(index, a, b, told) {
    Object.assign(this, { name: "compare", a, b });
    const pick = (label, value, change) => h("label", {}, `${label} `, h("select", { onchange: (c) => change(+c.target.value) }, index.runs.map((r) => h("option", { value: String(r.run), selected: r.run === value }, `${r.run}: ${r.name}`))));
    const board = (run, label) => {
      const lanes = new Lanes(run, { label, onselect: (e) => e >= 0 && go({ screen: `run/${run.number}`, event: e, panel: "event" }), onview: (l) => this.together(l) });
      lanes.element.classList.add("small");
      return lanes;
    };
    this.boards = [board(a, "Run A"), board(b, "Run B")];
    const branch = told.branch;
    const parts = [];
    if (branch) {
      const [parent, child] = branch.swapped ? [b, a] : [a, b];
      parts.push(h("p", {}, `${child.header.trace_id} branched from ${parent.header.trace_id}${branch.row === null ? "" : ` at row ${branch.row}`}${branch.t === null ? "" : `, ${seconds(branch.t)} after its start`}.${branch.do ? ` What was done there: ${brief(branch.do)}.` : ""}`));
      if (branch.t !== null) for (const lanes of this.boards) lanes.shade = [0, branch.t];
      if (branch.shared) {
        const shared = branch.shared.filter((r) => r >= 0).length;
        parts.push(h("p", {}, `${number(shared)} events are the same in both (shaded), ${number(child.n - shared)} are new.`));
      }
    } else parts.push(h("p.quiet", {}, "Neither run branched from the other, so only their figures are set side by side."));
    const reward = told.figures.find((f) => f.name === "rewards.team");
    if (reward) parts.push(h("p", {}, `Reward of the team: ${figure("", reward.a)} in A, ${figure("", reward.b)} in B${reward.a !== null && reward.b !== null ? `: B is worth ${number(+(reward.b - reward.a).toPrecision(6))} more` : ""}.`));
    const rows = told.figures.map((f) => ({ figure: title(f.name.replaceAll(".", " · ")), a: f.a === null ? null : figure(f.name, f.a), b: f.b === null ? null : figure(f.name, f.b), difference: f.a === null || f.b === null ? null : f.b - f.a }));
    this.element = h("main.page.compare", {}, h("h1", {}, "Two runs"), h("div.row", {}, pick("A", a.number, (v) => go({ screen: "compare", a: v, b: b.number })), pick("B", b.number, (v) => go({ screen: "compare", a: a.number, b: v }))), parts, this.boards.map((l) => l.element), table(rows, { caption: "Figures of both runs" }));
  }

  together(from) {
    if (this.busy) return;
    this.busy = true;
    for (const l of this.boards) if (l !== from) l.show(from.a, from.b);
    this.busy = false;
  }
  state() {
    return { screen: "compare", a: this.a.number, b: this.b.number };
  }
  key(k) {
    return RunScreen.prototype.key.call({ lanes: this.boards[0], run: this.a, tools: { querySelector: () => ({ click() {} }) } }, k);
  }
}

// The figures of two runs that no file of comparisons was written for.
async function figuresOf(a, b) {
  const [one, two] = await Promise.all([ask("summary", { run: a }), ask("summary", { run: b })]);
  const flat = (told, prefix = "") => Object.entries(told).flatMap(([k, v]) => (v !== null && typeof v === "object" && !Array.isArray(v) ? flat(v, `${prefix}${k}.`) : typeof v === "number" ? [[prefix + k, v]] : []));
  const [first, second] = [Object.fromEntries(flat(one.facts)), Object.fromEntries(flat(two.facts))];
  return { figures: [...new Set([...Object.keys(first), ...Object.keys(second)])].map((name) => ({ name, a: first[name] ?? null, b: second[name] ?? null })), branch: null };
}

class TrainScreen {
  static async open(number) {
    const index = await ask("index");
    const told = index.report && !index.trainings.length ? index.report : await ask("training", { training: number || 0 });
    return new TrainScreen(told, number);
  }

  constructor(told, number) {
    this.name = `train/${number || 0}`;
    this.number = number;
    this.element = h("main.page", {});
    this.fill(told);
  }

  fill(told) {
    const parts = [h("h1", {}, told.title)];
    if (told.table.length) parts.push(table(told.table.map(plainRow), { caption: told.title }));
    if (told.facts && Object.keys(told.facts).length) parts.push(h("details", { open: !told.table.length }, h("summary", {}, "The recipe and how it ended"), facts(told.facts)));
    for (const lesson of told.lessons) parts.push(...curves(lesson));
    if (told.runs?.length) parts.push(h("h2", {}, "Runs that were kept"), table(told.runs, { columns: ["name", "file"], onrow: (r) => go({ screen: `run/${r.run}` }), caption: "Runs that were kept" }));
    this.element.replaceChildren(...parts);
  }

  async refresh() {
    if (this.number !== undefined) this.fill(await ask("training", { training: this.number }));
  }
  state() {
    return { screen: this.name };
  }
  key() {
    return false;
  }
}

const plainRow = (row) => Object.fromEntries(Object.entries(row).map(([k, v]) => [k, Array.isArray(v) ? brief(v) : v]));

function curves(lesson) {
  const { lines } = lesson;
  const points = (of) => lines.map((l) => [l.iteration + 1, of(l)]).filter(([, y]) => y !== null && y !== undefined && !Number.isNaN(y));
  const parts = [h("h2", {}, lesson.title)];
  const runs = ["before", "after"].filter((w) => lesson[w] !== undefined);
  if (runs.length) parts.push(h("p", {}, "One run, with the same luck: ", runs.map((w) => h("span", {}, h("button.link", { onclick: () => go({ screen: `run/${lesson[w]}` }) }, `${w} training`), " "))));
  const regret = points((l) => l.regret);
  if (regret.length) parts.push(chart("Regret while it learned; the optimum is the line at 0", { regret }, { percent: true, zero: true }));
  const score = points((l) => l.score);
  if (score.length) parts.push(chart("Return of its rollouts", { return: score }));
  const kinds = [...new Set(lines.flatMap((l) => Object.keys(l.mix || {})))].sort();
  for (const kind of kinds) {
    const options = [...new Set(lines.flatMap((l) => Object.keys(l.mix?.[kind]?.options || {})))].sort();
    if (options.length > 1 && options.length <= HUES.length) parts.push(chart(`${title(kind)}: share of each option`, Object.fromEntries(options.map((o) => [o, points((l) => l.mix?.[kind]?.options?.[o] ?? (l.mix?.[kind] ? 0 : null))])), { percent: true }));
  }
  const roles = [...new Set(lines.flatMap((l) => Object.keys(l.gradients || {})))].sort();
  if (roles.length) parts.push(chart("Length of the gradient of each role", Object.fromEntries(roles.map((r) => [r, points((l) => l.gradients?.[r])]))));
  const paid = points((l) => l.paid);
  if (paid.length) parts.push(chart("Share of decisions that got credit", { paid }, { percent: true, zero: true }));
  return parts;
}

function chart(name, series, { percent = false, zero = false } = {}) {
  const all = Object.values(series).flat();
  if (!all.length) return h("p.quiet", {}, `${name}: nothing was recorded.`);
  const [W, H, L, B, T] = [720, 200, 62, 26, 10];
  const xs = all.map((p) => p[0]);
  const ys = all.map((p) => p[1]);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs, Math.min(...xs) + 1)];
  const y0 = zero || Math.min(...ys) >= 0 ? Math.min(0, ...ys) : Math.min(...ys);
  const y1 = Math.max(...ys, y0 + 1e-9);
  const x = (v) => L + ((v - x0) / (x1 - x0)) * (W - L - 16);
  const y = (v) => H - B - ((v - y0) / (y1 - y0)) * (H - B - T);
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": name, class: "chart" });
  for (let i = 0; i <= 4; i++) {
    const v = y0 + ((y1 - y0) * i) / 4;
    const text = svg("text", { x: L - 6, y: y(v) + 4, "text-anchor": "end" });
    text.textContent = percent ? `${+(v * 100).toPrecision(3)} %` : String(+v.toPrecision(3));
    picture.append(svg("line", { x1: L, x2: W - 16, y1: y(v), y2: y(v), stroke: "var(--rule)" }), text);
  }
  if (zero) picture.append(svg("line", { x1: L, x2: W - 16, y1: y(0), y2: y(0), stroke: "var(--ink)", "stroke-dasharray": "5 4" }));
  const keys = Object.keys(series);
  keys.forEach((key, i) => {
    const colour = HUES[i % HUES.length];
    picture.append(svg("polyline", { points: series[key].map(([a, b]) => `${x(a)},${y(b)}`).join(" "), fill: "none", stroke: colour, "stroke-width": 2, ...(i % 2 ? { "stroke-dasharray": "7 3" } : {}) }));
    for (const [a, b] of series[key].length < 60 ? series[key] : []) {
      const dot = svg("circle", { cx: x(a), cy: y(b), r: 3, fill: colour });
      const tip = svg("title");
      tip.textContent = `${key}, iteration ${a}: ${percent ? `${+(b * 100).toPrecision(4)} %` : +b.toPrecision(5)}`;
      dot.append(tip);
      picture.append(dot);
    }
  });
  const first = svg("text", { x: L, y: H - 8 });
  first.textContent = `iteration ${x0}`;
  const last = svg("text", { x: W - 16, y: H - 8, "text-anchor": "end" });
  last.textContent = `iteration ${x1}`;
  picture.append(first, last);
  const legend = keys.length > 1 ? h("ul.legend", {}, keys.map((k, i) => {
    const dot = h("span.dot");
    dot.style.background = HUES[i % HUES.length];
    return h("li", {}, dot, ` ${k}`);
  })) : null;
  return h("figure", {}, h("figcaption", {}, name), picture, legend);
}
