// The screens: one run, many runs, two runs beside each other.

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
    this.plain = run.mode;
    this.lanes = new Lanes(run, { onselect: (e) => this.chosen(e), onview: () => this.remember() });
    this.lanes.onpaint = () => {
      if (this.aim !== undefined) this.lanes.reveal(this.aim, false);
      this.aim = undefined;
      this.strips.draw();
    };
    this.lanes.onagent = (a) => this.about(a);
    this.strips = new Strips(run, this.lanes);
    this.cross = h("div.cross", { hidden: true, "aria-hidden": "true" });
    this.lanes.oncross = this.strips.oncross = (x) => this.point(x);
    this.status = h("p.quiet.status", { role: "status" });
    this.tools = h("div.toolbar", {}, this.timesPicker(), this.colourPicker(),
      h("button", run.columns.flags.some((f) => f & 1) ? { title: "only the chain that decides how long the run takes", "aria-pressed": "false", onclick: (c) => this.light(c.currentTarget) } : { disabled: true, title: "no event says how long it took, so that no chain can be told", "aria-pressed": "false" }, "Critical path"),
      h("label.workers", { title: "the same work by another number of workers" }, "Workers ", this.slider = h("input", { type: "range", min: "0", max: "32", value: "0", "aria-label": "Number of workers; 0: as it was", oninput: (c) => this.work(+c.target.value) }), this.workers = h("output", {}, "as it was")));
    this.zooms = h("div.toolbar.zooms", {},
      h("span.group", {}, "Zoom ", h("button", { "aria-label": "Zoom out", onclick: () => this.lanes.zoom(2) }, "−"), h("button", { "aria-label": "Zoom in", onclick: () => this.lanes.zoom(0.5) }, "+"), h("button", { onclick: () => this.lanes.fit() }, "All")),
      h("span.group", {}, "Lanes ", h("button", { "aria-label": "Lower lanes", onclick: () => this.lanes.size(this.lanes.height / 1.5) }, "−"), h("button", { "aria-label": "Higher lanes", onclick: () => this.lanes.size(this.lanes.height * 1.5) }, "+")));
    this.panels = null;
    this.legend = h("ul.legend", { "aria-label": "Legend" });
    this.main = h("div.stage", {}, this.tools, h("div.under-tools", {}, this.status, this.zooms), h("div.pictures", {}, this.lanes.element, this.strips.element, this.cross), this.legend);
    this.panels = new Panels(this);
    this.element = h("div.run", {}, this.main, this.panels.element);
    this.say();
    this.explain();
    this.pin();
    this.rename();
    this.ready = this.restore(state || {});
  }

  // What the detectors found stands at its events, here and in the lanes.
  async pin() {
    const audit = await ask("audit", { run: this.run.number }).catch(() => null);
    if (!audit) return;
    this.findings = [...audit.found, ...audit.observed].flatMap((one) => one.suspects.map((s) => ({ detector: one.detector, level: one.level, confidence: s.confidence, rows: s.rows })));
    this.lanes.findings = this.findings;
    this.lanes.pins = new Set(this.findings.filter((f) => f.level === "finding").flatMap((f) => f.rows));
    this.lanes.draw();
  }

  async rename() {
    const summary = await ask("summary", { run: this.run.number }).catch(() => null);
    if (!summary) return;
    this.run.rename(summary.facts.agents);
    this.lanes.draw();
    if (this.run.titles !== this.run.header.agents && this.panels.now === "list") this.panels.fill();
  }

  // One line through all pictures, and the figures at that time beside them.
  point(x) {
    const place = x === null ? -1 : this.lanes.px(x);
    this.cross.hidden = place < 0 || place > this.lanes.width;
    this.cross.style.left = `${this.lanes.canvas.offsetLeft + place}px`;
    this.strips.read(x);
  }

  say() {
    const { run } = this;
    const notes = [`${number(run.n)} event${run.n === 1 ? "" : "s"}, ${number(run.tree.length)} agent${run.tree.length === 1 ? "" : "s"}`];
    if (!run.n) notes.push("this run has no events, so there is nothing to draw");
    else if (!run.timed) notes.push("no event says when it happened: they stand in the order of the record");
    else if (run.untimed) notes.push(`${number(run.untimed)} events have no time and are in the list alone`);
    if (run.mode === "busy") notes.push("idle time is cut short where you see ≈");
    if (run.mode === "schedule") notes.push(`with ${run.workers} worker${run.workers === 1 ? "" : "s"} the recorded work takes ${seconds(run.makespan)}; as it was, ${seconds(run.span)}`);
    this.status.textContent = notes.join(" · ");
  }

  timesPicker() {
    const { run } = this;
    return h("label", {}, "Time ", (this.times = h("select", { onchange: (c) => this.setTimes(c.target.value) }, h("option", { value: "clock", selected: run.mode === "clock" }, "by the clock"), h("option", { value: "busy", selected: run.mode === "busy" }, "without idle time"), h("option", { value: "schedule" }, "with k workers"))));
  }

  colourPicker() {
    return h("label", {}, "Colour ", (this.colours = h("select", { onchange: (c) => this.colourBy(c.target.value) },
      Object.entries({ type: "by event", time: "model, tool, person", tool: "by tool", safety: "by trust", credit: "by credit" }).map(([value, name]) => h("option", { value }, name)))));
  }

  // What the colours of the lanes mean now.
  explain() {
    const { run } = this;
    const { colour } = this.lanes;
    const there = (codes, words) => words.filter((_, code) => codes.indexOf(code) >= 0);
    const entries = {
      type: () => there(run.columns.type, run.header.event_types).map((t) => [COLOURS[t], words(t).replace("orchestrator ", "")]),
      time: () => Object.entries(TIMES).map(([who, hex]) => [hex, `the ${who}'s time`]),
      tool: () => [...(run.header.tool_words || []).slice(0, HUES.length * 2).map((t, i) => [HUES[i % HUES.length], t]), ["#9aa7b4", "no tool"]],
      safety: () => [["#c00000", "came from outside"], ["#e69f00", "derives from that"], ["#9aa7b4", "neither"]],
      credit: () => (this.which === "difference" ? [["#005ab5", `${colour.name}: more`], ["#dc5a00", "less"], ["#b4bcc4", "not paid by both"]] : [["#005ab5", `${colour.name}: earned`], ["#dc5a00", "cost"], ["#b4bcc4", "not paid"]]),
    }[colour.by]();
    const kinds = there(run.columns.edge, run.header.edge_types).filter((t) => t in ARROW_COLOURS && t !== "causal");
    const arrows = kinds.map((t) => h("li", { title: WORDS_OF_ARROWS[t] }, arrowSign(ARROW_COLOURS[t]), ` ${ARROW_NAMES[t] || words(t)}`));
    this.legend.replaceChildren(...entries.map(([hex, name]) => h("li", { title: MEANINGS[name] }, dot(hex), ` ${name}`)), ...(arrows.length ? [h("li.quiet", {}, "arrows:")] : []), ...arrows, ...(run.columns.flags.some((f) => f & 1) ? [h("li", {}, h("span.path"), " critical path")] : []));
  }

  setTimes(mode) {
    if (mode === "schedule") return this.work(+this.slider.value || 4);
    this.run.setTimes(mode);
    this.plain = mode;
    this.slider.value = "0";
    this.workers.textContent = "as it was";
    this.times.value = mode;
    this.lanes.fit();
    this.say();
    this.remember();
  }

  work(k) {
    if (!k) return this.setTimes(this.plain);
    this.run.setTimes("schedule", k);
    this.times.value = "schedule";
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
    this.paintBy(by === "credit" ? this.creditColour() : { by });
  }

  paintBy(colour) {
    this.lanes.colour = colour;
    this.lanes.draw();
    this.explain();
    this.remember();
  }

  // Which of two methods the lanes show, or their difference.
  paintCredit(which) {
    this.which = which;
    this.paintBy(this.creditColour());
    return this.panels.fill();
  }

  creditColour() {
    const [one, two] = [this.credit, this.other];
    const named = ({ header }) => `${header.method} (${words(header.unit)})`;
    let { values, name } = { values: one.columns.event, name: named(one) };
    if (this.which === "second") ({ values, name } = { values: two.columns.event, name: named(two) });
    if (this.which === "difference") ({ values, name } = { values: values.map((v, i) => v - two.columns.event[i]), name: `${one.header.method} less ${two.header.method}` });
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
    this.which = this.other ? "difference" : "first";
    this.colours.value = this.credit ? "credit" : "type";
    this.paintBy(this.credit ? this.creditColour() : { by: "type" });
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
      if (this.matches) this.follow(null);
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
    this.follow(this.matches);
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
    if (state.event !== undefined && +state.event < run.n) {
      lanes.select(+state.event, !view);
      if (view) this.aim = +state.event; // as soon as it is known how much room there is
    }
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
      Escape: () => this.follow?.(null) ?? lanes.select(-1), n: () => this.match?.(1), p: () => this.match?.(-1), b: () => this.hide?.(),
      ...Object.fromEntries(Object.keys(this.panels?.names || {}).map((name, i) => [String(i + 1), () => this.panels.open(name)])),
    };
    if (!(k.key in keys)) return false;
    keys[k.key]();
    return true;
  }

  // Some events stand out, as what an event led to or what was searched for, and all else stands back; null: nothing does.
  follow(rows) {
    const { lanes, run } = this;
    const had = lanes.faded !== null;
    lanes.faded = rows === null ? null : new Uint8Array(run.n).fill(1);
    if (rows !== null) for (const e of rows) lanes.faded[e] = 0;
    lanes.draw();
    return rows === null && !had ? null : true;
  }

  // More room for the lanes.
  hide() {
    this.panels.element.hidden = !this.panels.element.hidden;
    this.lanes.draw();
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
      cost_usd: r.cost, reward: r.reward, activity: sparkline(r.activity), folder: r.folder, file: r.file,
    }));
    this.rows = rows;
    this.box = h("div");
    const filter = h("input", { type: "search", placeholder: "Filter by any word", "aria-label": "Filter the runs", oninput: (c) => this.searched(c.target.value) });
    this.fill = (query = "") => {
      const some = this.rows.filter((r) => Object.values(r).join(" ").toLowerCase().includes(query.toLowerCase()));
      this.box.replaceChildren(table(some, { columns: this.names(), onrow: (r) => go({ screen: `run/${r.number}` }), caption: "Runs" }));
    };
    this.fill();
    const faults = index.unreadable.length ? h("details", {}, h("summary", {}, `${index.unreadable.length} not read`), h("ul", {}, index.unreadable.map((u) => h("li", {}, u)))) : null;
    const trainings = index.trainings.length ? [h("h2", {}, "Trainings"), table(index.trainings.map((t) => ({ training: t.name, number: t.training, iterations: t.iterations, regret: t.regret })), { columns: ["training", "iterations", "regret"], onrow: (t) => go({ screen: `train/${t.number}` }) })] : [];
    this.more = h("div");
    this.element = h("main.page", {}, h("h1", {}, many(index.runs.length, "run")), faults, index.runs.length > 5 ? filter : null, this.box, this.more, trainings);
  }

  // The columns of which the runs say something, and not all the same.
  names() {
    const there = (n) => this.rows.some((r) => r[n] !== null && r[n] !== undefined && r[n] !== "" && (r[n] !== 0 || !["calls", "failed"].includes(n)));
    const differs = (n) => new Set(this.rows.map((r) => r[n])).size > 1;
    const all = ["run", "task", "agents", "events", "wall_clock_s", "team_s", "calls", "failed", "tokens", "cost_usd", "reward", "activity", "ended", "project", "file", "folder"];
    return all.filter((n) => there(n) && (!["project", "folder", "ended", "file"].includes(n) || differs(n)) && (n !== "file" || differs("file") && !differs("run")) && (n !== "team_s" || this.rows.some((r) => r.team_s !== r.wall_clock_s)) && (n !== "task" || this.rows.some((r) => r.task !== r.run)));
  }

  // What the runs cost comes later: every one has to be read whole for it.
  async costs() {
    const sums = await ask("folder").catch(() => null);
    if (!sums) return;
    for (const r of sums.runs) Object.assign(this.rows[r.number], { project: r.project, team_s: r.team, cost_usd: r.usd ?? this.rows[r.number].cost_usd, tokens: null, calls: r.calls, failed: r.failed_calls, ended: r.ending === "not recorded" ? null : r.ending });
    this.fill(this.query);
    const open = (n) => h("button.link", { onclick: () => go({ screen: `run/${n}` }) }, short(this.rows[n]?.run ?? `run ${n}`));
    const part = (name, rows, columns) => rows.length && this.more.append(h("h2", {}, name), table(rows, { columns: (columns || Object.keys(rows[0])).filter((n) => rows.some((r) => r[n] !== null)), caption: name }));
    const timed = (rows) => rows.map(({ team, usd, at_least, ...r }) => ({ ...r, cost: usd === null ? null : { shown: `${at_least ? "≥ " : ""}${money(usd)}`, valueOf: () => usd }, team_s: team }));
    part("What costs most", sums.habits.map((r) => ({ habit: r.sentence, runs: r.runs, times: r.times, cost_usd: r.usd, takes_s: r.seconds, worst: h("span", {}, r.worst.slice(0, 3).flatMap((n) => [open(n), " "])) })));
    if (sums.projects.length > 1) part("By project", timed(sums.projects));
    part("By day", timed(sums.days));
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
    const figures = await ask("compare", { a, b }).catch(() => figuresOf(a, b));
    return new CompareScreen(index, new Run(a, one), new Run(b, two), figures);
  }

  constructor(index, a, b, { figures, branch }) {
    Object.assign(this, { name: "compare", a, b });
    const pick = (label, value, change) => h("label", {}, `${label} `, h("select", { onchange: (c) => change(+c.target.value) }, index.runs.map((r) => h("option", { value: String(r.run), selected: r.run === value }, `${r.run}: ${r.name}`))));
    const board = (run, label) => {
      const lanes = new Lanes(run, { label, onselect: (e) => e >= 0 && go({ screen: `run/${run.number}`, event: e, panel: "event" }), onview: (l) => this.together(l) });
      lanes.element.classList.add("small");
      Object.assign(lanes, { height: 20, sized: true });
      return lanes;
    };
    for (const run of [a, b]) [run.low, run.high] = [Math.min(a.low, b.low), Math.max(a.high, b.high)]; // one axis for both
    this.boards = [board(a, "Run A"), board(b, "Run B")];
    const parts = branch ? this.left(branch) : [h("p.quiet", {}, "Neither run branched from the other, so their pictures and figures are set side by side.")];
    const reward = figures.find((f) => f.name === "rewards.team");
    parts.push(this.cards(figures));
    if (reward && reward.a !== null && reward.b !== null) parts.push(h("p", {}, worth("B", reward.b - reward.a)));
    const rows = figures.filter((f) => f.a !== f.b).map((f) => ({ figure: title(f.name.replace(/^clock/, "time").replace(/^spending/, "tokens and price").replaceAll(".", " · ")), a: measure(f.name, f.a), b: measure(f.name, f.b), difference: f.a === null || f.b === null ? null : measure(f.name, f.b - f.a) }));
    const same = figures.length - rows.length;
    this.boards.forEach((lanes) => lanes.fit());
    this.element = h("main.page.compare", {}, h("h1", {}, "Two runs"), h("div.row", {}, pick("A", a.number, (v) => go({ screen: "compare", a: v, b: b.number })), pick("B", b.number, (v) => go({ screen: "compare", a: a.number, b: v }))), parts, this.siblings(index),
      this.boards.flatMap((l, i) => [h("h3", {}, `${"AB"[i]}: ${l.run.header.trace_id}`), l.element]), branch?.shared ? this.changed() : null,
      h("h2", {}, "What differs"), table(rows, { caption: "Figures of both runs" }), h("p.quiet", {}, `${many(same, "figure")} ${same === 1 ? "is" : "are"} the same in both.`));
  }

  // Where one run left the other, what was done there, and which events they share: these stand back in both pictures.
  left(branch) {
    const [parent, child] = branch.swapped ? [this.b, this.a] : [this.a, this.b];
    const [above, under] = branch.swapped ? [this.boards[1], this.boards[0]] : this.boards;
    const where = branch.row === null ? "" : ` at row ${branch.row}`;
    const parts = [h("p", {}, `${child.header.trace_id} branched from ${parent.header.trace_id}${where}${branch.t === null ? "" : `, ${seconds(branch.t)} after its start (the line)`}. ${branch.do ? done(branch.do) : ""}`)];
    if (branch.t !== null) for (const lanes of this.boards) lanes.line = branch.t;
    if (!branch.shared) return parts;
    above.faded = new Uint8Array(parent.n);
    under.faded = Uint8Array.from(branch.shared, (row) => row >= 0);
    for (const row of branch.shared) if (row >= 0) above.faded[row] = 1;
    const shared = branch.shared.filter((row) => row >= 0).length;
    parts.push(h("p", {}, `${many(shared, "event")} ${shared === 1 ? "is" : "are"} the same in both and ${shared === 1 ? "stands" : "stand"} back; ${number(child.n - shared)} ${child.n - shared === 1 ? "is" : "are"} new.`));
    return parts;
  }

  // The figures that one asks for first: of A, of B, and the difference.
  cards(figures) {
    const asked = [["rewards.team", "Reward of the team"], ["clock.wall", "Time"], ["critical_path.seconds", "Critical path"], ["spending.usd", "Price"], ["spending.output", "Tokens written"], ["spending.turns", "Turns"], ["trouble.calls", "Calls"], ["trouble.failed_calls", "Failed calls"]];
    const show = (name, v) => (v === null ? "–" : ((m) => m.shown ?? number(+m.toPrecision(4)))(measure(name, v)));
    return h("div.cards", {}, asked.map(([name, called]) => {
      const f = figures.find((one) => one.name === name);
      if (!f || (f.a === null && f.b === null) || (!f.a && !f.b && name !== "rewards.team")) return null;
      const d = f.a === null || f.b === null ? null : f.b - f.a;
      return h("div.card", {}, h("span.quiet", {}, called), h("strong", {}, `${show(name, f.a)} → ${show(name, f.b)}`), h("span.quiet", {}, d === null ? "" : d === 0 ? "the same" : `B has ${show(name, Math.abs(d))} ${d > 0 ? "more" : "less"}`));
    }).filter(Boolean));
  }

  // What only one of the two did, the first of it.
  changed() {
    const side = (lanes, name) => {
      const { run, faded } = lanes;
      const own = Array.from(run.order).filter((e) => !faded[e]);
      const links = own.slice(0, 8).map((e) => h("li", {}, h("span.quiet", {}, `${run.timed ? seconds(run.start[e]) : `event ${e}`} `), h("button.link", { onclick: () => go({ screen: `run/${run.number}`, event: e, panel: "event" }) }, `${run.titles[run.columns.agent[e]]}: ${run.label(e)}`)));
      return h("section", {}, h("h3", {}, `Only in ${name} (${number(own.length)})`), own.length ? h("ul.links", {}, links) : h("p.quiet", {}, "nothing"), own.length > 8 ? h("p.quiet", {}, `and ${many(own.length - 8, "more event")}`) : null);
    };
    return h("section", {}, h("h2", {}, "What changed"), h("div.charts", {}, side(this.boards[0], "A"), side(this.boards[1], "B")));
  }

  // All branches of the run that one of the two is, or left.
  siblings(index) {
    const root = index.runs[this.a.number].parent ?? index.runs[this.a.number].name;
    const parent = index.runs.find((r) => r.name === root);
    const rows = index.runs.filter((r) => r.parent === root && parent).map((r) => ({ branch: r.name, number: r.run, at_row: r.branch, what: r.do ? done(JSON.parse(r.do)) : null, reward: r.reward, worth: r.reward === null || parent.reward === null ? null : r.reward - parent.reward }));
    const forest = h("div");
    if (parent && rows.length && rows.length <= 40) this.forest(parent, index.runs.filter((r) => r.parent === root)).then((f) => f && forest.append(f)).catch(() => null);
    return !rows.length ? null : h("section", {}, h("h2", {}, `All branches of ${root}`), forest, rows.length < 2 ? null : h("details", {}, h("summary", {}, "The branches as a table"), table(rows, { columns: ["branch", "at_row", "what", "reward", "worth"], onrow: (r) => go({ screen: "compare", a: parent.run, b: r.number }), caption: "Branches" })));
  }

  // A run and all its branches on one axis of time: what they share with it stands back, the diamond is where they left, at the right what they were worth.
  async forest(parent, branches) {
    const list = [parent, ...branches];
    const runs = await Promise.all(list.map(async (r) => new Run(r.run, await ask("run", { run: r.run }))));
    const [W, L, R, ROW, BINS] = [960, 150, 150, 24, 360];
    const high = Math.max(1e-9, ...runs.map((r) => r.high));
    const x = (t) => L + (t / high) * (W - L - R);
    const most = Math.max(1e-12, ...list.map((r) => (r.reward === null || parent.reward === null ? 0 : Math.abs(r.reward - parent.reward))));
    const said = list.map((r) => `${r.name}${r.reward === null ? "" : ` reward ${number(+r.reward.toPrecision(4))}`}`).join(", ");
    const picture = svg("svg", { viewBox: `0 0 ${W} ${list.length * ROW + 24}`, role: "img", class: "chart", "aria-label": `A run and its branches aligned in time: ${said}` });
    list.forEach((r, i) => {
      const run = runs[i];
      const y = i * ROW + 4;
      const left = i === 0 || r.branch === null ? -Infinity : runs[0].start[r.branch] ?? -Infinity;
      const chosen = r.run === this.a.number ? "A" : r.run === this.b.number ? "B" : "";
      const name = svgText({ x: L - 10, y: y + 13, "text-anchor": "end", class: "pick", ...(chosen ? { "font-weight": "bold" } : {}) }, `${chosen ? `${chosen}: ` : ""}${i ? briefly(r) : "the run itself"}`);
      name.addEventListener("click", () => go(i ? { screen: "compare", a: parent.run, b: r.run } : { screen: `run/${r.run}` }));
      picture.append(name, svg("line", { x1: L, x2: W - R, y1: y + 8, y2: y + 8, stroke: "var(--rule)" }));
      const bins = new Map();
      for (const e of run.order) bins.set(Math.floor((run.start[e] / high) * BINS), e);
      for (const e of bins.values()) picture.append(svg("rect", { x: x(run.start[e]), y: y + 1, width: Math.max(2.2, x(run.stop[e]) - x(run.start[e])), height: 14, rx: 1, fill: COLOURS[run.type(e)], opacity: run.start[e] < left ? 0.22 : 0.95 }));
      if (left > -Infinity) picture.append(svg("path", { d: `M${x(left)},${y + 1} l5,7 l-5,7 l-5,-7 z`, fill: "var(--ink)", stroke: "var(--page)" }));
      const more = i === 0 || r.reward === null || parent.reward === null ? null : r.reward - parent.reward;
      const middle = W - R + 50;
      if (more) picture.append(svg("rect", { x: more > 0 ? middle : middle - (34 * -more) / most, y: y + 2, width: Math.max(1, (34 * Math.abs(more)) / most), height: 12, fill: more > 0 ? "#005ab5" : "#dc5a00" }));
      picture.append(svgText({ x: W - 4, y: y + 13, "text-anchor": "end" }, i === 0 ? (r.reward === null ? "" : `reward ${number(+r.reward.toPrecision(3))}`) : more === null ? "" : `${more > 0 ? "+" : ""}${number(+more.toPrecision(3))}`));
    });
    const foot = list.length * ROW + 16;
    if (runs[0].timed) picture.append(svgText({ x: L, y: foot, class: "soft" }, "0 s"), svgText({ x: W - R, y: foot, "text-anchor": "end", class: "soft" }, seconds(high)));
    picture.append(svgText({ x: W - 4, y: foot, "text-anchor": "end", class: "soft" }, "worth"));
    return h("figure.chartbox", {}, h("figcaption", {}, h("span.quiet", {}, "What a branch shares with its parent stands back; the diamond is where it left. Blue was worth more, orange less.")), picture);
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
    return RunScreen.prototype.key.call({ lanes: this.boards[0], run: this.a, tools: { querySelector: () => ({ click() {} }) } }, k); // what a run has and two have not is left out
  }
}

const worth = (name, more) => (more === 0 ? `${name} is worth the same.` : `${name} is worth ${number(Math.abs(+more.toPrecision(6)))} ${more > 0 ? "more" : "less"}.`);

// What a branch did otherwise, in a word.
function briefly(r) {
  const { what, value } = r.do ? JSON.parse(r.do) : {};
  const word = what === "choose" ? String(value) : what ? `${what}${value === null || value === undefined ? "" : ` ${value}`}` : r.name;
  return word.length > 18 ? `${word.slice(0, 17)}…` : word;
}

function done({ what, value, row, ...rest }) {
  const sentence = { choose: `Another option was taken: ${value}.`, replace: `Something else was put there: ${value}.`, remove: "It was taken away.", delay: `It was delayed by ${seconds(value)}.`, mask: `What ${value === null ? "its agent" : [value].flat().join(", ")} would do from there on was left undone.` }[what] || `What was done: ${words(what)} ${value ?? ""}.`;
  return Object.values(rest).some((v) => v !== null && v !== undefined) ? `${sentence} (${brief(rest)})` : sentence;
}

// A figure of a summary by its place in it: times of the clock and the critical path are seconds, prices dollars.
function measure(name, value) {
  if (value === null || value === undefined) return null;
  const timed = /^clock\.(?!.*(events|at_once))|seconds$|_s$/.test(name);
  return timed ? { shown: seconds(value), valueOf: () => value } : /usd$/.test(name) ? { shown: money(value), valueOf: () => value } : +value.toPrecision(6);
}

// The figures of two runs that no file of comparisons was written for.
async function figuresOf(a, b) {
  const [one, two] = await Promise.all([ask("summary", { run: a }), ask("summary", { run: b })]);
  const flat = (facts, prefix = "") => Object.entries(facts).flatMap(([k, v]) => (v !== null && typeof v === "object" && !Array.isArray(v) ? flat(v, `${prefix}${k}.`) : typeof v === "number" ? [[prefix + k, v]] : []));
  const [first, second] = [Object.fromEntries(flat(one.facts)), Object.fromEntries(flat(two.facts))];
  return { figures: [...new Set([...Object.keys(first), ...Object.keys(second)])].map((name) => ({ name, a: first[name] ?? null, b: second[name] ?? null })), branch: null };
}
