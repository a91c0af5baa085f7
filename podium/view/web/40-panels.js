// The panels beside the lanes: one event, the list of events, the summary, credit, safety.

class Panels {
  constructor(screen) {
    this.screen = screen;
    this.names = { event: "Event", list: "List", summary: "Summary", credit: "Credit", safety: "Safety" };
    this.tabs = h("div.tabs", { role: "tablist", "aria-label": "Panels" });
    this.body = h("div.panel", { role: "tabpanel", tabindex: "0", "aria-live": "polite" });
    this.element = h("aside.dock", { "aria-label": "Details" }, this.tabs, this.body);
    this.buttons = Object.entries(this.names).map(([key, name]) =>
      h("button", { role: "tab", id: `tab-${key}`, "aria-selected": "false", onclick: () => this.open(key) }, name));
    this.tabs.append(...this.buttons);
    this.tabs.addEventListener("keydown", (k) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[k.key];
      if (!by) return;
      const keys = Object.keys(this.names);
      this.open(keys[(keys.indexOf(this.now) + by + keys.length) % keys.length]);
      this.buttons[keys.indexOf(this.now)].focus();
      k.stopPropagation();
    });
    this.open("summary");
  }

  open(key) {
    this.now = key in this.names ? key : "summary";
    Object.keys(this.names).forEach((k, i) => {
      this.buttons[i].setAttribute("aria-selected", String(k === this.now));
      this.buttons[i].tabIndex = k === this.now ? 0 : -1;
    });
    this.body.setAttribute("aria-labelledby", `tab-${this.now}`);
    this.screen.remember?.();
    return this.fill();
  }

  async fill() {
    const key = this.now;
    let content;
    const wait = setTimeout(() => this.now === key && this.body.replaceChildren(h("p.quiet", {}, "reading …")), 150);
    try {
      content = await this[key]();
    } catch (error) {
      content = h("p.fault", {}, String(error.message || error));
    }
    clearTimeout(wait);
    if (this.now === key) this.body.replaceChildren(content);
  }

  link(e, text) {
    return h("button.link", { onclick: () => this.screen.lanes.select(e, true) }, text || `${this.screen.run.label(e)} (row ${e})`);
  }

  async event() {
    const { run, lanes } = this.screen;
    const e = lanes.selected;
    if (e < 0 && this.screen.agent !== undefined) return this.unit("agent", this.screen.agent);
    if (e < 0) return h("p.quiet", {}, "Choose an event in the lanes, or press j and k to go from one to the next. The name of an agent tells of the agent.");
    const [record, kinds] = await Promise.all([describe(run, e).catch((error) => ({ fields: error.message })), this.units()]);
    const { id, t, type, agent, podium = {}, content, rewards, ...rest } = record;
    const { options, option_logps, votes, ...more } = podium;
    const c = run.columns;
    const rows = [
      ["Agent", h("button.link", { onclick: () => this.screen.about(c.agent[e]) }, run.titles[c.agent[e]])],
      ["Begins", Number.isNaN(c.t[e]) ? "not recorded" : `${seconds(c.t[e])} after the start`],
      ["Takes", run.stop[e] > run.start[e] && run.timed ? seconds(run.stop[e] - run.start[e]) : "not recorded"],
    ];
    for (const n of TOKENS) if (c[n] && !Number.isNaN(c[n][e])) rows.push([title(n), number(c[n][e])]);
    const price = (c.cost || c.price)?.[e];
    if (price >= 0) rows.push([c.cost ? "Cost" : "Price by list", money(price)]);
    for (const n of ["tool", "role", "model", "chosen"]) if (run.word(n, e) !== null) rows.push([title(n), run.word(n, e)]);
    if (c.decision[e] >= 0) rows.push(["Decides", words(run.header.decisions[c.decision[e]])]);
    rows.push(["Critical path", run.flag(e, "critical") ? "on it" : "not on it"]);
    if (run.flag(e, "untrusted")) rows.push(["Trust", h("span", {}, "it came from outside; ", this.lineage(e))]);
    else if (run.flag(e, "tainted")) {
      const sources = [...run.reach(e, "tainted", true)].filter((r) => run.flag(r, "untrusted")).sort((a, b) => a - b);
      rows.push(["Trust", h("span", {}, "derives from what came from outside: ", sources.slice(0, 5).flatMap((r) => [this.link(r), " "]))]);
    }
    if (run.flag(e, "invalid")) rows.push(["Valid", "no"]);
    for (const [channel, value] of Object.entries(rewards ?? more.rewards ?? {})) rows.push([`Reward, ${words(channel)}`, number(value)]);
    const parts = [h("h2", {}, `${MARKS[run.type(e)]} ${run.label(e)}`), factTable(rows)];
    if (options) parts.push(h("h3", {}, "What it could choose"), table(optionRows(podium, run.word("chosen", e)).map((o) => ({ ...o, probability: o.probability === null ? null : { shown: figure("share", o.probability), valueOf: () => o.probability } })), { caption: "Options" }));
    if (votes) parts.push(h("h3", {}, "Votes it counted"), table(votes, { caption: "Votes" }));
    if (content !== undefined) parts.push(h("h3", {}, "Content"), h("pre", { tabindex: "0" }, typeof content === "string" ? content : JSON.stringify(content, null, 1)));
    parts.push(await this.creditOf(e), this.findingsOf([e]));
    if (kinds) {
      const links = kinds.header.units.filter((kind) => kinds.columns[kind][e] >= 0).map((kind) => h("button", { onclick: () => this.show(kind, kinds.columns[kind][e]) }, words(kind)));
      if (links.length) parts.push(h("h3", {}, "Part of"), h("div.row", {}, links));
    }
    const side = (name, edges, end) => {
      const shown = edges.slice(0, 100);
      return [h("h3", {}, `${name} (${edges.length})`), shown.length ? h("ul.links", {}, shown.map((x) => h("li", {}, h("span.quiet", {}, `${words(run.header.edge_types[c.edge[x]])}${c.inferred[x] ? ", inferred" : ""} `), this.link(c[end][x])))) : h("p.quiet", {}, "none recorded")];
    };
    parts.push(...side("Causes", run.causesOf(e), "src"), ...side("Effects", run.effectsOf(e), "dst"));
    const fields = Object.entries({ row: e, id, t, ...rest, ...more }).filter(([k, v]) => v !== undefined && k !== "rewards" && k !== "inferred");
    parts.push(h("details", {}, h("summary", {}, "All fields of the record"), factTable(fields.map(([k, v]) => [words(k), v !== null && typeof v === "object" ? brief(v) : String(v)]))));
    return h("div", {}, parts.filter(Boolean));
  }

  // Lights what an event led to.
  lineage(e) {
    const rows = this.screen.run.reach(e, "tainted");
    return h("button.link", { title: "Escape shows all again", onclick: () => this.screen.follow(rows) }, `show the ${many(rows.size - 1, "event")} that derive${rows.size === 2 ? "s" : ""} from it`);
  }

  units() {
    return ask("units", { run: this.screen.run.number }).catch(() => null);
  }

  // What the methods that were asked for pay to the unit of an event.
  async creditOf(e) {
    const rows = [];
    for (const { header, columns } of [this.screen.credit, this.screen.other, ...(await this.carriedCredit())].filter(Boolean)) {
      const value = columns.event[e];
      if (!rows.some((r) => r.method === header.method && r.unit === words(header.unit))) rows.push({ method: header.method, unit: words(header.unit), credit: nan(value) });
    }
    return rows.length ? h("section", {}, h("h3", {}, "Credit"), table(rows, { caption: "Credit by method" })) : null;
  }

  // A file has its methods at hand; a server would have to compute each.
  async carriedCredit() {
    const names = [...carried.keys()].filter((k) => k.startsWith("credit?") && new URLSearchParams(k.slice(7)).get("run") === String(this.screen.run.number) && k.endsWith("unit=own"));
    return Promise.all(names.map((k) => ask("credit", Object.fromEntries(new URLSearchParams(k.slice(7))))));
  }

  findingsOf(rows) {
    const wanted = new Set(rows);
    const list = (this.screen.findings || []).filter((f) => f.rows.some((r) => wanted.has(r)));
    return list.length ? h("section", {}, h("h3", {}, "Findings"), h("ul", {}, list.map((f) => h("li", {}, `${words(f.detector)} (${f.level}, ${f.confidence})`)))) : null;
  }

  async show(kind, number) {
    this.body.replaceChildren(await this.unit(kind, number));
    this.body.scrollTop = 0;
    this.body.focus();
  }

  // A unit of any kind: its events, when, what they cost, what each method pays it, what was found in it.
  async unit(kind, place) {
    const { run } = this.screen;
    const codes = kind === "agent" ? run.columns.agent : (await this.units()).columns[kind];
    const rows = [];
    for (let e = 0; e < run.n; e++) if (codes[e] === place) rows.push(e);
    const sum = run.extent(rows);
    const name = kind === "agent" ? run.titles[place] : `${title(kind)} of ${run.titles[run.columns.agent[rows[0]]]}`;
    const lines = [["Events", number(rows.length)]];
    if (sum.from < Infinity) lines.push(["From", `${seconds(sum.from)} after the start`], ["To", `${seconds(sum.to)} after the start`]);
    if (sum.tokens !== null) lines.push(["Tokens", number(Math.round(sum.tokens))]);
    if (sum.price !== null) lines.push([run.columns.cost ? "Cost" : "Price by list", money(sum.price)]);
    for (const flag of ["untrusted", "tainted", "invalid", "critical"]) {
      const count = rows.filter((e) => run.flag(e, flag)).length;
      if (count) lines.push([`${title(flag)} events`, number(count)]);
    }
    const parts = [h("h2", {}, name), factTable(lines), rows.length ? await this.creditOf(rows[0]) : null, this.findingsOf(rows)];
    if (kind === "agent") {
      const agent = run.header.agents[place];
      const row = (await ask("summary", { run: run.number })).facts.agents.find((one) => one.name === agent);
      parts.splice(1, 0, h("p", {}, h("button", { onclick: () => this.screen.searched(`agent:${agent}`) }, `its ${many(rows.length, "event")}`)));
      if (row) parts.push(h("h3", {}, "In the summary"), facts(row));
    } else parts.push(h("h3", {}, "Its events"), h("ul.links", {}, rows.slice(0, 200).map((e) => h("li", {}, this.link(e)))));
    return h("div", {}, parts.filter(Boolean));
  }

  // Events that match what is searched for, in the order of time; all of them where nothing is.
  async list() {
    const { run, lanes } = this.screen;
    const matches = this.screen.matches;
    const rows = matches || run.order;
    let from = 0;
    const box = h("div");
    const page = () => {
      const some = Array.from(rows.slice(from, from + 100));
      box.replaceChildren(
        h("p", {}, `${matches ? `${many(rows.length, "event")} match${rows.length === 1 ? "es" : ""} “${this.screen.query}”` : `${number(rows.length)} events in the order of time`}${run.untimed && !matches ? `; ${number(run.untimed)} without a time are not among them` : ""}`),
        h("div.row", {}, h("button", { disabled: from === 0, onclick: () => { from -= 100; page(); } }, "Earlier"), h("span.quiet", {}, rows.length ? `${from + 1} to ${Math.min(from + 100, rows.length)}` : ""), h("button", { disabled: from + 100 >= rows.length, onclick: () => { from += 100; page(); } }, "Later"),
          h("button", { onclick: () => { from = Math.floor(Math.max(0, lower(Float64Array.from(rows, (e) => run.x0[e]), lanes.a)) / 100) * 100; page(); } }, "In view")),
        table(some.map((e) => ({ at: run.timed ? seconds(run.start[e]) : `event ${e}`, agent: run.titles[run.columns.agent[e]], event: this.link(e, `${MARKS[run.type(e)]} ${run.label(e)}`) })), { caption: "Events" }));
    };
    page();
    return box;
  }

  async summary() {
    const { run } = this.screen;
    const [answer, measured] = await Promise.all([ask("summary", { run: run.number }), ask("metrics", { run: run.number }).catch(() => [])]);
    const parts = [new Summary(this.screen, answer).element()];
    const known = measured.filter((m) => m.mean !== null);
    if (known.length) {
      const absent = measured.filter((m) => m.mean === null).map((m) => words(m.metric));
      parts.push(h("details", {}, h("summary", {}, "Metrics"), table(known.map((m) => ({ dimension: m.dimension, metric: words(m.metric), value: m.mean, better: m.better })), { caption: "Metrics" }),
        absent.length ? h("p.quiet", {}, `The record cannot tell: ${absent.join(", ")}.`) : null));
    }
    return h("div", {}, parts);
  }

  async credit() {
    const { screen } = this;
    const { run } = screen;
    const index = await ask("index");
    const methods = index.static ? index.methods.filter((m) => carried.has(keyOf("credit", { run: run.number, method: m.name, unit: "own" }))) : index.methods;
    const carries = (unit) => !index.static || carried.has(keyOf("credit", { run: run.number, method: screen.wanted.method, unit }));
    const all = index.units.filter(carries);
    const pick = (value, others, label, change) => h("label", {}, `${label} `, h("select", { onchange: (c) => change(c.target.value) }, others.map((o) => h("option", { value: o, selected: o === value }, o ? words(o) : label === "Unit" ? "its own" : "none"))));
    const { wanted } = screen;
    const parts = [h("p", {}, "Credit says how much each part of the team added to the outcome, as a method would pay it. Blue earned, orange cost, grey was not paid.")];
    const names = ["", ...methods.map((m) => m.name)];
    if (!methods.length) return h("div", {}, parts, h("p", {}, run.header.rewarded ? "No method of this file pays anything of this run." : "This run says nothing of its outcome: without a reward no method can pay anyone. A reward can be recorded with a run (Recorder.outcome) or given by a reward function."));
    parts.push(h("div.row", {},
      pick(wanted.method, names, "Method", (method) => screen.pay({ method })),
      all.length ? pick(wanted.unit, ["", ...all], "Unit", (unit) => screen.pay({ unit })) : null,
      pick(wanted.other, names, "Beside", (other) => screen.pay({ other }))));
    if (index.static) parts.push(h("p.quiet", {}, `This file carries ${many(methods.length, "method")}${all.length || !wanted.method ? "" : ", each at its own unit"}. \`podium view\` serves all methods at all eight units.`));
    if (!wanted.method) {
      if (!index.static) parts.push(this.payable());
      return h("div", {}, parts);
    }
    if (screen.fault) parts.push(h("p.fault", {}, screen.fault));
    if (!screen.credit) return h("div", {}, parts);
    const { header, columns } = screen.credit;
    const second = screen.other;
    const other = second && second.header.unit === header.unit ? second.columns : null;
    if (second) parts.push(h("div.row", { role: "group", "aria-label": "What the colour of the lanes shows" }, Object.entries({ first: header.method, second: second.header.method, difference: "difference" }).map(([which, name]) =>
      h("button", { "aria-pressed": String(screen.which === which), onclick: () => screen.paintCredit(which) }, name))));
    if (second && !other) parts.push(h("p.quiet", {}, `${header.method} pays ${words(header.unit)}s and ${second.header.method} ${words(second.header.unit)}s: choose one unit to set them side by side.`));
    for (const paid of [screen.credit, second].filter(Boolean)) {
      const one = paid.header;
      parts.push(h("h3", {}, one.method), h("p.quiet", {}, `reward: ${one.reward}; credit: ${one.credit}; ${number(one.paid)} of ${number(one.units)} units (${words(one.unit)}) are paid${one.compared_with ? `, beside ${many(one.compared_with, "other run")} of the task` : ""}`), /anneal/.test(one.reward + one.credit) ? h("p.quiet", {}, "Annealed rewards are read as at the start of training, where they count in full.") : null, one.own_unit !== one.unit ? h("p.quiet", {}, `It pays by ${words(one.own_unit)}. By ${words(one.unit)} that is summed where a part is larger, and stands at each part in full where it is smaller.`) : null, one.unplaced ? h("p.fault", {}, `${number(+one.unplaced.toPrecision(4))} of the credit belongs to what holds no ${words(one.unit)}, and is not shown.`) : null, waterfall(run, paid, (row) => screen.lanes.select(row, true)));
    }
    const rows = Array.from(columns.row, (row, i) => ({ i, row })).filter(({ row }) => row >= 0)
      .sort((a, b) => Math.abs(columns.value[b.i] || 0) - Math.abs(columns.value[a.i] || 0)).slice(0, 200)
      .map(({ i, row }) => {
        const line = { unit: this.link(row, unitName(run, header.unit, row)), [header.method]: nan(columns.value[i]) };
        if (other) Object.assign(line, { [second.header.method]: nan(other.value[i]), difference: nan(columns.value[i] - other.value[i]) });
        return line;
      });
    parts.push(table(rows, { caption: "Credit by unit" }));
    return h("div", {}, parts);
  }

  payable() {
    const { run } = this.screen;
    const button = h("button", { onclick: async () => {
      button.replaceWith(h("p.quiet", {}, "trying every method of the table …"));
      const { paid, refused } = await ask("payable", { run: run.number });
      this.body.append(table(paid.map((p) => ({ method: p.method, unit: words(p.unit), paid: `${p.paid} of ${p.units}` })), { onrow: (p) => this.screen.pay({ method: p.method, unit: "" }), caption: "Methods that pay" }), h("p.quiet", {}, `${Object.keys(refused).length} others pay nothing of this run alone.`));
    } }, "Which methods can be paid from this run?");
    return button;
  }

  async safety() {
    const { screen } = this;
    const { run } = screen;
    const audit = await ask("audit", { run: run.number });
    const untrusted = [];
    let tainted = 0;
    for (let e = 0; e < run.n; e++) {
      if (run.flag(e, "untrusted")) untrusted.push(e);
      if (run.flag(e, "tainted")) tainted++;
    }
    const parts = [h("div.row", {}, h("label", {}, h("input", { type: "checkbox", checked: screen.lanes.colour.by === "safety", onchange: (c) => screen.colourBy(c.target.checked ? "safety" : "type") }), " colour by trust: red came from outside, orange derives from it"))];
    const suspects = (one) => h("ul.links", {}, one.suspects.slice(0, 50).map((s) => h("li", {}, `${run.titles[run.header.agents.indexOf(s.agent)] || s.agent || "the team"} (${s.confidence}) `, s.rows.slice(0, 8).map((row) => h("span", {}, this.link(row), " ")))));
    const group = (name, list) => list.length && parts.push(h("h3", {}, name), ...list.map((one) => h("details", { open: list.length < 4 }, h("summary", {}, `${title(one.detector)}: ${one.count}`), h("p", {}, `It looks for ${one.finds}. What helps: ${one.todo}.`), suspects(one))));
    if (!audit.found.length) parts.push(h("p", {}, `No detector found a fault; ${number(audit.detectors)} looked.`));
    group("Findings", audit.found);
    group("Observations", audit.observed);
    parts.push(h("h3", {}, "Content from outside"), h("p", {}, untrusted.length ? `${many(untrusted.length, "event")} brought content from outside; with all that derives from it ${number(tainted)}.` : "No event says that it brought content from outside."));
    if (untrusted.length) parts.push(h("ul.links", {}, untrusted.slice(0, 50).map((e) => h("li", {}, this.link(e), " · ", this.lineage(e)))));
    parts.push(h("h3", {}, "Permissions"), await this.permissions());
    if (audit.cannot_tell.length) parts.push(h("details", {}, h("summary", {}, `${many(audit.cannot_tell.length, "detector")} cannot tell`), h("ul", {}, audit.cannot_tell.map((c) => h("li", {}, `${words(c.detector)}: needs ${Array.isArray(c.needs) ? c.needs.join(", ") : c.needs}`)))));
    return h("div", {}, parts);
  }

  // What each agent was granted at its spawn, as far as that was recorded, and what it used.
  async permissions() {
    const { run } = this.screen;
    const used = run.header.agents.map(() => new Map());
    const spawns = [];
    for (let e = 0; e < run.n; e++) {
      const type = run.type(e);
      if (type === "spawn" && spawns.length < 100) spawns.push(e);
      const tool = type === "tool_call" ? run.word("tool", e) : null;
      if (tool !== null && run.columns.agent[e] >= 0) used[run.columns.agent[e]].set(tool, (used[run.columns.agent[e]].get(tool) || 0) + 1);
    }
    const granted = new Map();
    for (const e of spawns) {
      const fields = await describe(run, e).catch(() => ({}));
      if (fields.granted !== undefined) granted.set(fields.to, fields.granted);
    }
    const rows = run.tree.map((a) => {
      const list = granted.get(run.header.agents[a]);
      const tools = [...used[a].keys()];
      const beyond = list && !list.includes("*") ? tools.filter((t) => !list.includes(t)) : [];
      return { agent: run.titles[a], granted: list ? list.join(", ") || "no tool" : null, used: [...used[a]].map(([t, n]) => `${t} ${n}`).join(", ") || "no tool", beyond_the_grant: beyond.join(", ") || null };
    }).filter((r) => r.granted !== null || r.used !== "no tool").slice(0, 200);
    if (!rows.length) return h("p.quiet", {}, "No agent was granted a tool, and none used one.");
    return h("div", {}, granted.size ? null : h("p.quiet", {}, "The record does not say what was granted, only what was used."), table(rows, { columns: granted.size ? undefined : ["agent", "used"], caption: "Permissions granted and used" }));
  }
}

const nan = (x) => (Number.isNaN(x) || x === undefined ? null : Math.abs(x) < 1e-12 ? 0 : x);

function unitName(run, unit, row) {
  const agent = run.titles[run.columns.agent[row]];
  if (unit === "team") return "the team";
  if (unit === "agent") return agent;
  if (unit === "role") return run.word("role", row) || agent;
  return `${agent}: ${run.label(row)} (row ${row})`;
}

// From the reward of the team to the units that are paid: what the method adds or takes off, then unit by unit until nothing is left.
function waterfall(run, { header, columns }, onpick) {
  const units = Array.from(columns.value, (value, i) => ({ value, row: columns.row[i] })).filter((u) => !Number.isNaN(u.value) && u.row >= 0);
  units.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const most = 14;
  const parts = units.slice(0, most).map((u) => ({ name: unitName(run, header.unit, u.row), value: u.value, row: u.row }));
  if (units.length > most) parts.push({ name: many(units.length - most, "more unit"), value: units.slice(most).reduce((s, u) => s + u.value, 0) });
  const { sum, team_reward: reward } = header;
  const steps = [];
  if (reward !== null) {
    steps.push({ name: "team reward", value: reward, from: 0, to: reward, colour: "var(--ink)" });
    if (Math.abs(sum - reward) > 1e-9) steps.push({ name: "baseline and scale", value: sum - reward, from: reward, to: sum, colour: "var(--quiet)", signed: true });
  }
  steps.push({ name: "credit in all", value: sum, from: 0, to: sum, colour: "var(--ink)" });
  let at = sum;
  for (const p of parts) {
    steps.push({ ...p, from: at, to: at - p.value, colour: p.value >= 0 ? "#005ab5" : "#dc5a00", signed: true });
    at -= p.value;
  }
  if (Math.abs(at) < 1e-6 * Math.max(1, Math.abs(sum))) at = 0;
  steps.push({ name: "left over", value: at, from: 0, to: at, colour: "var(--ink)" });
  const ends = steps.flatMap((s) => [s.from, s.to]);
  const [low, high] = [Math.min(0, ...ends), Math.max(1e-12, ...ends)];
  const [W, L, R, ROW] = [480, 190, 64, 24];
  const x = (v) => L + ((v - low) / (high - low)) * (W - L - R);
  const shown = (v, signed) => `${signed && v > 0 ? "+" : ""}${number(+v.toPrecision(4))}`;
  const picture = svg("svg", { viewBox: `0 0 ${W} ${steps.length * ROW + 4}`, role: "img", "aria-label": `Credit by unit: ${header.units} units add up to ${number(sum)}${reward === null ? "" : ` of a team reward of ${number(reward)}`}; ${number(at)} is left over`, class: "chart" });
  picture.append(svg("line", { x1: x(0), x2: x(0), y1: 0, y2: steps.length * ROW, stroke: "var(--quiet)" }));
  steps.forEach((s, i) => {
    const y = i * ROW + 4;
    const name = svgText({ x: L - 8, y: y + 13, "text-anchor": "end", class: s.row >= 0 ? "pick" : "" }, s.name.length > 30 ? `${s.name.slice(0, 29)}…` : s.name);
    if (s.row >= 0) name.addEventListener("click", () => onpick(s.row));
    const [a, b] = [Math.min(x(s.from), x(s.to)), Math.max(x(s.from), x(s.to))];
    if (i < steps.length - 1) picture.append(svg("line", { x1: x(s.to), x2: x(s.to), y1: y + 17, y2: y + ROW, stroke: "var(--quiet)", "stroke-dasharray": "2 2" }));
    picture.append(name, svg("rect", { x: a, y, width: Math.max(1, b - a), height: 17, rx: 2, fill: s.colour }), svgText({ x: b + 5, y: y + 13 }, shown(s.value, s.signed)));
  });
  const sums = [...(reward === null ? [] : [`team reward ${shown(reward)}${Math.abs(sum - reward) > 1e-9 ? `, ${shown(sum - reward, true)} by the method's baseline and scale` : ""}`]), `credit ${shown(sum)} = ${many(units.length, "unit")}: ${parts.slice(0, 4).map((p) => shown(p.value)).join(" + ").replaceAll("+ -", "− ")}${parts.length > 4 ? " + …" : ""}`];
  return h("figure", {}, picture, h("figcaption.quiet", {}, `${sums.join("; ")}${parts.length > 4 ? "" : "."} ${at === 0 ? "✓ It adds up." : ""}${reward === null ? " The run has no team reward to set this beside." : ""}`));
}
