// What `podium show` says of a run, as tables and pictures: where the time and the money went, who worked, what went wrong.

const SHARES = { model: "#0072b2", tools: "#e69f00", "sub-agents": "#009e73", you: "#6b6b6b", idle: "#b4bcc4" };

const many = (n, one) => `${number(n)} ${n === 1 ? one : one + "s"}`;
const some = (...parts) => parts.filter((p) => p !== null && p !== undefined && p !== "").join(" · ");
const section = (name, note, ...content) => h("section", {}, h("h3", {}, name, note ? h("span.quiet", {}, ` ${note}`) : null), content);

class Summary {
  constructor(screen, { facts, lines, habits }) {
    Object.assign(this, { screen, facts, lines, habits });
    this.tasks = new Map(facts.agents.map((a) => [a.name, a.task || a.name]));
  }

  element() {
    const parts = [this.head(), this.time(), this.cost(), this.agents(), this.tools(), this.apart(), this.wrong(), this.waste()];
    return h("div.summary", {}, parts, h("details", {}, h("summary", {}, "As the terminal prints it"), h("pre.screen", { tabindex: "0" }, this.lines.join("\n"))), h("details", {}, h("summary", {}, "Every figure"), facts(this.facts)));
  }

  // A price that sorts by its size and says when it is a lower bound.
  price(tally) {
    if (!tally || tally.usd === null) return null;
    return { shown: (tally.at_least ? "≥ " : "") + money(tally.usd), valueOf: () => tally.usd };
  }

  // A name that leads to its agent, or to an event.
  agent(name) {
    const { run } = this.screen;
    const a = run.header.agents.indexOf(name);
    return h("button.link", { onclick: () => this.screen.about(a) }, this.tasks.get(name) || name);
  }

  head() {
    const f = this.facts;
    const began = f.started === null ? null : `${new Date(f.started * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;
    const prompts = f.tasks.filter((t) => t.prompt !== null);
    const rows = prompts.slice(0, 3).map((t) => [f.tasks.length > 1 ? `Task ${t.number + 1}` : "Task", h("div.clamp", { title: t.prompt }, t.prompt)]);
    if (f.tasks.length > prompts.length) rows.push(["Task", `${many(f.tasks.length, "prompt")}; what they say was not kept`]);
    else if (prompts.length > 3) rows.push(["", `and ${many(prompts.length - 3, "more prompt")}`]);
    else if (!prompts.length && f.task_id && f.task_id !== f.trace_id) rows.push(["Task", f.task_id]);
    if (f.ending.how !== "not recorded" || f.ending.text) rows.push(["Ended", h("div.clamp", {}, [f.ending.how, f.ending.text].filter(Boolean).join(": "))]);
    for (const [name, value] of Object.entries(f.rewards)) rows.push([`Reward, ${words(name)}`, value === null ? "not scored" : number(value)]);
    return h("section", {}, h("h2", {}, f.trace_id || "A run"), h("p.quiet", {}, some(f.project, [f.system, f.harness].filter(Boolean).join(" "), f.topology && words(f.topology), began)), rows.length ? factTable(rows) : null);
  }

  time() {
    const { clock, critical_path: path } = this.facts;
    if (clock.wall === null) return section("Where the time went", "not recorded");
    if (clock.model === null) return section("Where the time went", `${seconds(clock.wall)}; no event says how long it took, so no more is known`);
    const models = this.facts.agents.some((a) => a.models.length);
    const parts = [
      ["model", models ? "model" : "agents", clock.model, models ? "a model was writing" : "an agent was at work"], ["tools", "tools", clock.tools, "a tool was running, and no model"],
      ["sub-agents", "sub-agents", clock.unseen, "only the end of their work is in the log"], ["you", "you", clock.person, `prompts ${seconds(clock.prompts)}, leave and answers ${seconds(clock.approvals)}`], ["idle", "idle", clock.idle, "nothing was recorded"],
    ].filter((p) => p[2] > 0.0005);
    const whole = parts.reduce((s, p) => s + p[2], 0) || 1;
    const bar = svg("svg", { viewBox: "0 0 400 16", class: "bar", preserveAspectRatio: "none", role: "img", "aria-label": `Time: ${parts.map((p) => `${p[1]} ${seconds(p[2])}`).join(", ")}` });
    let x = 0;
    for (const [key, , took] of parts) {
      bar.append(svg("rect", { x, y: 0, width: (400 * took) / whole, height: 16, fill: SHARES[key] }));
      x += (400 * took) / whole;
    }
    const rows = parts.map(([key, name, took, what]) => h("tr", {}, h("th", { scope: "row" }, dot(SHARES[key]), ` ${name}`), h("td.number", {}, seconds(took)), h("td.number", {}, `${took / clock.wall < 0.005 ? "<1" : Math.round((100 * took) / clock.wall)} %`), h("td.quiet", {}, what)));
    const note = `${seconds(clock.wall)} in all${clock.person > 0 ? `, ${seconds(clock.wall - clock.person)} without you` : ""}`;
    const links = (list, name) => list.filter((s) => s.seconds > 0.01 * path.seconds).slice(0, 3).flatMap((s, i) => [i ? ", " : " ", name(s.name), ` ${seconds(s.seconds)}`]);
    const agents = links(path.agents, (name) => this.agent(name));
    return section("Where the time went", note, bar, h("table.shares", {}, h("tbody", {}, rows)),
      h("p", {}, `At most ${many(clock.most_at_once, "agent")} at once, ${clock.mean_at_once.toFixed(1)} on average. All work one after the other: ${seconds(clock.serial)}.`),
      path.seconds === null ? null : h("p", {}, `The critical path is ${seconds(path.seconds)}: with these causes no team can be faster.`, agents.length ? [" On it:", agents, "."] : null));
  }

  cost() {
    const { spending: bill, by_model, missing_agents, stated_usd } = this.facts;
    if (!bill.turns) return section("What it cost", "not recorded: no event states a model or tokens");
    const row = (name, t) => ({ model: name, turns: t.turns, input: rounded(t.input), to_cache: rounded(t.cache_write), cached: rounded(t.cache_read), output: t.unwritten * 2 > t.turns ? null : rounded(t.output), price: this.price(t) });
    const rows = by_model.filter((s) => s.tally.usd || s.tally.unread || s.tally.input).map((s) => row(s.name, s.tally));
    if (by_model.length > 1) rows.push(row("all", bill));
    const gaps = [];
    if (bill.unwritten > bill.unread) gaps.push(`what ${number(bill.unwritten - bill.unread)} of ${many(bill.turns, "turn")} wrote`);
    if (bill.unread) gaps.push(`what ${many(bill.unread, "turn")} read`);
    if (missing_agents) gaps.push(`turns of ${many(missing_agents, "sub-agent")}`);
    const unpriced = by_model.filter((s) => s.tally.unpriced).map((s) => (s.name === "not recorded" ? "a model that the log does not name" : s.name));
    return section("What it cost", `${this.price(bill)?.shown || "not known"}${stated_usd === null ? "" : `; the log itself says ${money(stated_usd)}`}`, table(rows, { caption: "Cost by model" }),
      gaps.length ? h("p.quiet", {}, `The log does not say ${gaps.join(", nor ")}; that is not in the price.`) : null,
      unpriced.length ? h("p.quiet", {}, `No price is known of ${unpriced.join(", ")} (--prices FILE).`) : null);
  }

  agents() {
    const { agents } = this.facts;
    if (!agents.length) return null;
    const rows = agents.map((a) => ({
      agent: this.agent(a.name), launched_by: a.parent, work_s: a.busy, turns: a.missing ? null : a.tally.turns, calls: a.missing ? a.stated_calls : a.calls,
      context: rounded(a.context.most ?? a.context.stated), price: this.price(a.tally), return: a.returned ? a.returned.fate + (a.returned.failed ? ", failed" : "") : null,
    }));
    const columns = Object.keys(rows[0]).filter((n) => n === "agent" || rows.some((r) => r[n] !== null && r[n] !== 0) && (n !== "launched_by" || agents.some((a) => a.depth > 1)));
    return section("Who worked", many(agents.length, "agent"), table(rows, { columns, caption: "Agents" }));
  }

  tools() {
    const price = new Map(this.facts.by_tool.map((s) => [s.name, s.tally]));
    if (!this.facts.tools.length) return null;
    const rows = this.facts.tools.map((t) => ({ tool: h("button.link", { onclick: () => this.screen.searched(`tool:${t.name}`) }, t.name), calls: t.calls, failed: t.failed, time_s: t.seconds, price: this.price(price.get(t.name)) }));
    return section("Tools", "price: of the turns that made the calls", table(rows, { caption: "Tools" }));
  }

  apart() {
    const { apart } = this.facts;
    if (!apart?.length) return section("Could have run side by side", apart ? "nothing of note" : "cannot tell without content");
    const rows = apart.map((g) => ({ what: this.screen.panels.link(g.rows[0], `${g.rows.length} ${g.what === "sub-agents" ? "sub-agents" : "reads in a row"}`), names: [...new Set(g.names)].map((n) => this.tasks.get(n) || n).join(", "), saves_s: g.seconds }));
    return section("Could have run side by side", `at most ${seconds(apart.reduce((s, g) => s + g.seconds, 0))} saved`, table(rows, { caption: "What could have run side by side" }));
  }

  wrong() {
    const t = this.facts.trouble;
    const again = t.repeats.reduce((s, r) => s + r.rows.length - 1, 0);
    const list = [
      [t.failed_calls, `${number(t.failed_calls)} of ${many(t.calls, "call")} failed`], [again, `${many(again, "time")} a failed call was made again unchanged`], [t.failed_agents, `${many(t.failed_agents, "sub-agent")} failed or stopped`],
      [t.interruptions, `${many(t.interruptions, "interruption")} by you`], [t.refusals, `${many(t.refusals, "call")} that you refused`], [t.denials, `${number(t.denials)} denied by a permission, a guard or a hook`],
      [t.model_errors, `${many(t.model_errors, "error")} of the model's API`], [t.open_calls, `${many(t.open_calls, "call")} without a result`], [t.truncated, `${many(t.truncated, "event")} whose beginning or end is not in the log`],
    ].filter(([n]) => n);
    return section("What went wrong", list.length ? "" : "nothing that the log shows", list.length ? h("ul", {}, list.map(([, what]) => h("li", {}, what))) : null);
  }

  waste() {
    const rows = this.facts.habits.map((one) => ({ times: one.times, what: this.screen.panels.link(one.rows[0], this.habits[one.rule]), evidence: one.evidence, cost_usd: one.usd, takes_s: one.seconds }));
    const columns = ["what", "times", "evidence", "cost_usd", "takes_s"].filter((n) => rows.some((r) => r[n] !== null));
    return rows.length ? section("What cost most, and need not have", "at most", table(rows, { columns, caption: "What cost most" })) : null;
  }
}

function dot(colour) {
  const span = h("span.dot");
  span.style.background = colour;
  return span;
}

// A short arrow in its colour, for a legend.
function arrowSign(colour) {
  return svg("svg", { width: 16, height: 8, viewBox: "0 0 16 8", "aria-hidden": "true" }, svg("path", { d: "M0,4 H11", stroke: colour, "stroke-width": 1.5 }), svg("path", { d: "M16,4 l-6,-3.5 v7 z", fill: colour }));
}
