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

  async described(e) {
    const { run } = this.screen;
    const chunk = Math.floor(e / run.header.chunk);
    const events = await ask("events", { run: run.number, chunk });
    return events[e - chunk * run.header.chunk];
  }

  link(e, text) {
    return h("button.link", { onclick: () => this.screen.lanes.select(e, true) }, text || `${this.screen.run.label(e)} (row ${e})`);
  }

  async event() {
    const { run, lanes } = this.screen;
    const e = lanes.selected;
    if (e < 0 && this.screen.agent !== undefined) return this.agent(this.screen.agent);
    if (e < 0) return h("p.quiet", {}, "Choose an event in the lanes, or press j and k to go from one to the next. The name of an agent tells of the agent.");
    const c = run.columns;
    const { id, t, type, agent, podium, content, ...rest } = await this.described(e).catch((error) => ({ fields: error.message }));
    const rows = [
      ["Agent", run.header.agents[c.agent[e]]], ["Begins", Number.isNaN(run.columns.t[e]) ? "not recorded" : `${seconds(run.columns.t[e])} after the start`],
      ["Takes", run.stop[e] > run.start[e] && run.timed ? seconds(run.stop[e] - run.start[e]) : "not recorded"],
      ["Row", String(e)], ["Id", id], ["On the critical path", run.flag(e, "critical") ? "yes" : "no"],
    ];
    for (const n of ["tokens_in", "cache_read", "cache_write", "tokens_out", "cost"]) if (c[n] && !Number.isNaN(c[n][e])) rows.push([title(n), number(c[n][e])]);
    for (const n of ["untrusted", "tainted", "invalid"]) if (run.flag(e, n)) rows.push([title(n), "yes"]);
    for (const [k, v] of Object.entries({ ...rest, ...podium })) if (!["options", "option_logps", "votes", "inferred", "tokens_in", "tokens_out", "cost", "cache_read", "cache_write"].includes(k)) rows.push([title(k), v !== null && typeof v === "object" ? brief(v) : figure(k, v)]);
    const parts = [h("h2", {}, `${MARKS[run.type(e)]} ${run.label(e)}`), h("table.facts", {}, h("tbody", {}, rows.map(([k, v]) => h("tr", {}, h("th", { scope: "row" }, k), h("td", {}, v ?? "not recorded")))))];
    if (podium?.options) parts.push(h("h3", {}, "What it could choose"), this.options(podium, run.word("chosen", e)));
    if (podium?.votes) parts.push(h("h3", {}, "Votes it counted"), table(podium.votes));
    if (content !== undefined) parts.push(h("h3", {}, "Content"), h("pre", {}, typeof content === "string" ? content : JSON.stringify(content, null, 1)));
    if (this.screen.credit) {
      const { header, columns } = this.screen.credit;
      const v = columns.event[e];
      parts.push(h("h3", {}, "Credit"), h("p", {}, `${header.method} at the unit ${words(header.unit)}: ${Number.isNaN(v) ? "not paid" : number(v)}`));
    }
    const findings = (this.screen.findings || []).filter((f) => f.rows.includes(e));
    if (findings.length) parts.push(h("h3", {}, "Findings"), h("ul", {}, findings.map((f) => h("li", {}, `${words(f.detector)} (${f.level}, ${f.confidence})`))));
    const side = (name, edges, end) => {
      const shown = edges.slice(0, 100);
      return [h("h3", {}, `${name} (${edges.length})`), shown.length ? h("ul.links", {}, shown.map((x) => h("li", {}, h("span.quiet", {}, `${words(run.header.edge_types[c.edge[x]])}${c.inferred[x] ? ", inferred" : ""} `), this.link(c[end][x])))) : h("p.quiet", {}, "none recorded")];
    };
    parts.push(...side("Causes", run.causesOf(e), "src"), ...side("Effects", run.effectsOf(e), "dst"));
    return h("div", {}, parts);
  }

  async agent(a) {
    const { run } = this.screen;
    const name = run.header.agents[a];
    const told = (await ask("summary", { run: run.number })).facts.agents.find((one) => one.name === name);
    return h("div", {}, h("h2", {}, name), h("p", {}, h("button", { onclick: () => this.screen.searched(`agent:${name}`) }, `its ${number(run.count[a])} events`)), facts(told || { agent: name, events: run.count[a] }));
  }

  options(podium, chosen) {
    return table(podium.options.map((option, i) => ({
      option, chosen: option === chosen ? "chosen" : "",
      probability: podium.option_logps && podium.option_logps[i] !== null ? Math.exp(podium.option_logps[i]) : null,
    })));
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
        h("p", {}, `${matches ? `${number(rows.length)} events match “${this.screen.query}”` : `${number(rows.length)} events in the order of time`}${run.untimed && !matches ? `; ${number(run.untimed)} without a time are not among them` : ""}`),
        h("div.row", {}, h("button", { disabled: from === 0, onclick: () => { from -= 100; page(); } }, "Earlier"), h("span.quiet", {}, rows.length ? `${from + 1} to ${Math.min(from + 100, rows.length)}` : ""), h("button", { disabled: from + 100 >= rows.length, onclick: () => { from += 100; page(); } }, "Later"),
          h("button", { onclick: () => { from = Math.floor(Math.max(0, lower(Float64Array.from(rows, (e) => run.x0[e]), lanes.a)) / 100) * 100; page(); } }, "In view")),
        table(some.map((e) => ({ at: run.timed ? seconds(run.start[e]) : `event ${e}`, agent: run.header.agents[run.columns.agent[e]], event: this.link(e, `${MARKS[run.type(e)]} ${run.label(e)}`) })), { caption: "Events" }));
    };
    page();
    return box;
  }

  async summary() {
    const { run } = this.screen;
    const [told, measured] = await Promise.all([ask("summary", { run: run.number }), ask("metrics", { run: run.number }).catch(() => [])]);
    const parts = [h("pre.screen", { tabindex: "0" }, told.lines.join("\n")), h("details", {}, h("summary", {}, "The same as tables"), facts(told.facts))];
    if (measured.length) {
      parts.push(h("h3", {}, "Metrics"), table(measured.filter((m) => m.mean !== null).map((m) => ({ dimension: m.dimension, metric: words(m.metric), value: m.mean, better: m.better })), { caption: "Metrics" }));
      const absent = measured.filter((m) => m.mean === null).map((m) => words(m.metric));
      if (absent.length) parts.push(h("p.quiet", {}, `The record cannot tell: ${absent.join(", ")}.`));
    }
    return h("div", {}, parts);
  }

  async credit() {
    const { screen } = this;
    const { run } = screen;
    const index = await ask("index");
    const methods = index.static ? index.methods.filter((m) => carried.has(keyOf("credit", { run: run.number, method: m.name, unit: "own" }))) : index.methods;
    const pick = (value, others, label, change) => h("label", {}, `${label} `, h("select", { onchange: (c) => change(c.target.value) }, others.map((o) => h("option", { value: o, selected: o === value }, o ? words(o) : label === "Unit" ? "its own" : "none"))));
    const asked = screen.wanted;
    const parts = [h("p", {}, "Credit says how much each part of the team added to the outcome, as a method would pay it. Blue earned, orange cost, grey was not paid.")];
    parts.push(h("div.row", {},
      pick(asked.method, ["", ...methods.map((m) => m.name)], "Method", (method) => screen.pay({ method })),
      index.static ? null : pick(asked.unit, ["", ...index.units], "Unit", (unit) => screen.pay({ unit })),
      pick(asked.other, ["", ...methods.map((m) => m.name)], "Beside", (other) => screen.pay({ other }))));
    if (index.static) parts.push(h("p.quiet", {}, "This file carries some methods, each at its own unit. `podium view` serves all methods at all eight units."));
    if (!asked.method) {
      if (!index.static) {
        const button = h("button", { onclick: async () => {
          button.replaceWith(h("p.quiet", {}, "trying every method of the table …"));
          const { paid, refused } = await ask("payable", { run: run.number });
          this.body.append(table(paid.map((p) => ({ method: p.method, unit: words(p.unit), paid: `${p.paid} of ${p.units}` })), { onrow: (p) => screen.pay({ method: p.method, unit: "" }), caption: "Methods that pay" }), h("p.quiet", {}, `${Object.keys(refused).length} others pay nothing of this run alone.`));
        } }, "Which methods can be paid from this run?");
        parts.push(button);
      }
      return h("div", {}, parts);
    }
    if (screen.fault) parts.push(h("p.fault", {}, screen.fault));
    if (!screen.credit) return h("div", {}, parts);
    const { header, columns } = screen.credit;
    parts.push(h("p.quiet", {}, `reward: ${header.reward}; credit: ${header.credit}; ${number(header.paid)} of ${number(header.units)} units (${words(header.unit)}) are paid${header.compared_with ? `, beside ${number(header.compared_with)} other runs of the task` : ""}`));
    parts.push(waterfall(run, screen.credit, (row) => screen.lanes.select(row, true)));
    const other = screen.other && screen.other.header.unit === header.unit ? screen.other.columns : null;
    const rows = Array.from(columns.row, (row, i) => ({ i, row })).filter(({ row }) => row >= 0)
      .sort((a, b) => Math.abs(columns.value[b.i] || 0) - Math.abs(columns.value[a.i] || 0)).slice(0, 200)
      .map(({ i, row }) => {
        const told = { unit: this.link(row, unitName(run, header.unit, row)), [header.method]: nan(columns.value[i]) };
        if (other) Object.assign(told, { [screen.other.header.method]: nan(other.value[i]), difference: nan(columns.value[i] - other.value[i]) });
        return told;
      });
    parts.push(table(rows, { caption: "Credit by unit" }));
    return h("div", {}, parts);
  }

  async safety() {
    const { screen } = this;
    const { run } = screen;
    const told = await ask("audit", { run: run.number });
    const parts = [h("div.row", {}, h("label", {}, h("input", { type: "checkbox", checked: screen.lanes.colour.by === "safety", onchange: (c) => screen.colourBy(c.target.checked ? "safety" : "type") }), " colour by trust: red came from outside, orange derives from it"))];
    const untrusted = [];
    let tainted = 0;
    for (let e = 0; e < run.n; e++) {
      if (run.flag(e, "untrusted")) untrusted.push(e);
      if (run.flag(e, "tainted")) tainted++;
    }
    parts.push(h("p", {}, `${number(untrusted.length)} ${untrusted.length === 1 ? "event" : "events"} brought content from outside; with what derives from that it is ${number(tainted)}.`));
    if (untrusted.length) parts.push(h("ul.links", {}, untrusted.slice(0, 50).map((e) => h("li", {}, this.link(e)))));
    const permission = await this.permissions();
    if (permission) parts.push(h("h3", {}, "Permissions granted"), permission);
    const group = (name, list) => list.length && parts.push(h("h3", {}, name), ...list.map((one) => h("details", { open: list.length < 4 }, h("summary", {}, `${words(one.detector)}: ${one.count}`), h("p", {}, `It looks for ${one.finds}. What helps: ${one.todo}.`), h("ul.links", {}, one.suspects.slice(0, 50).map((s) => h("li", {}, `${s.agent || "the team"}, ${s.confidence}, ${number(s.figure)} `, s.rows.slice(0, 8).map((row) => h("span", {}, this.link(row, `row ${row}`), " "))))))));
    group("Findings", told.found);
    group("Observations", told.observed);
    if (!told.found.length) parts.push(h("p", {}, "No detector found a fault."));
    if (told.cannot_tell.length) parts.push(h("h3", {}, "Cannot tell"), h("ul", {}, told.cannot_tell.map((c) => h("li", {}, `${words(c.detector)}: needs ${Array.isArray(c.needs) ? c.needs.join(", ") : c.needs}`))));
    return h("div", {}, parts);
  }

  async permissions() {
    const { run } = this.screen;
    const spawns = Array.from(run.order).filter((e) => run.type(e) === "spawn").slice(0, 100);
    const rows = [];
    for (const e of spawns) {
      const told = await this.described(e).catch(() => ({}));
      const granted = told.permissions ?? told.tools ?? told.podium?.permissions;
      if (granted !== undefined) rows.push({ to: told.to, granted: brief([granted]), event: this.link(e) });
    }
    return rows.length ? table(rows) : null;
  }
}

const nan = (x) => (Number.isNaN(x) || x === undefined ? null : x);

function unitName(run, unit, row) {
  const agent = run.header.agents[run.columns.agent[row]];
  if (unit === "team") return "the team";
  if (unit === "agent") return agent;
  if (unit === "role") return run.word("role", row) || agent;
  return `${agent}: ${run.label(row)} (row ${row})`;
}

// From the reward of the team to the units that are paid: the steps add up to the sum of credit, and what is left is shown.
function waterfall(run, { header, columns }, onpick) {
  const units = Array.from(columns.value, (value, i) => ({ value, row: columns.row[i] })).filter((u) => !Number.isNaN(u.value) && u.row >= 0);
  units.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const shown = units.slice(0, 14);
  const rest = units.slice(14).reduce((s, u) => s + u.value, 0);
  const bars = shown.map((u) => ({ name: unitName(run, header.unit, u.row), value: u.value, row: u.row }));
  if (units.length > 14) bars.push({ name: `${units.length - 14} more units`, value: rest });
  const sum = header.sum;
  const reward = header.team_reward;
  if (reward !== null) bars.push({ name: "baseline, scale", value: reward - sum, kind: "rest" }, { name: "team reward", value: reward, total: true });
  else bars.push({ name: "sum of credit", value: sum, total: true });
  let at = 0;
  const steps = bars.map((b) => {
    const from = b.total ? 0 : at;
    const to = b.total ? b.value : at + b.value;
    at = to;
    return { ...b, from, to };
  });
  const low = Math.min(0, ...steps.map((s) => Math.min(s.from, s.to)));
  const high = Math.max(1e-12, ...steps.map((s) => Math.max(s.from, s.to)));
  const W = 420;
  const L = 150;
  const x = (v) => L + ((v - low) / (high - low)) * (W - L - 70);
  const picture = svg("svg", { viewBox: `0 0 ${W} ${steps.length * 22 + 8}`, role: "img", "aria-label": `Credit by unit: ${header.units} units add up to ${number(sum)}${reward === null ? "" : ` of a team reward of ${number(reward)}`}`, class: "chart" });
  steps.forEach((s, i) => {
    const y = i * 22 + 4;
    const colour = s.total ? "var(--ink)" : s.kind === "rest" ? "var(--quiet)" : s.value >= 0 ? "#005ab5" : "#dc5a00";
    const name = svg("text", { x: L - 6, y: y + 13, "text-anchor": "end", class: s.row >= 0 ? "pick" : "" });
    name.textContent = s.name.length > 24 ? s.name.slice(0, 23) + "…" : s.name;
    if (s.row >= 0) name.addEventListener("click", () => onpick(s.row));
    const value = svg("text", { x: Math.max(x(s.from), x(s.to)) + 4, y: y + 13 });
    value.textContent = number(+s.value.toPrecision(4));
    picture.append(name, svg("rect", { x: Math.min(x(s.from), x(s.to)), y, width: Math.max(1, Math.abs(x(s.to) - x(s.from))), height: 17, fill: colour }), value);
  });
  picture.append(svg("line", { x1: x(0), x2: x(0), y1: 0, y2: steps.length * 22 + 4, stroke: "var(--quiet)" }));
  return h("figure", {}, picture, h("figcaption.quiet", {}, reward === null ? "The run has no team reward to set this beside." : "The units add up to the sum of credit; with what the method takes off as baseline and scale, to the reward of the team."));
}
