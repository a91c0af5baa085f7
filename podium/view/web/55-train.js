// The screen of a training, be it over or not, and of reports: how it went, how it ended, and the runs that were kept.

class TrainScreen {
  static async open(number) {
    const index = await ask("index");
    const report = index.report && !index.trainings.length ? index.report : await ask("training", { training: number || 0 });
    return new TrainScreen(report, number, index.trainings);
  }

  constructor(report, number, trainings = []) {
    this.name = `train/${number || 0}`;
    Object.assign(this, { number, trainings });
    this.element = h("main.page", {});
    this.fill(report);
  }

  fill(report) {
    const runs = report.runs || [];
    const kept = new Map();
    for (const r of runs) if (r.iteration !== null) kept.set(r.iteration + 1, [...(kept.get(r.iteration + 1) || []), r]);
    const many = report.lessons.length > 1;
    this.charts = [];
    const parts = [this.head(report), ...(report.notes || []).map((note) => h("p.quiet", {}, note))];
    if (report.table.some((r) => r.method && r.env && r.interval)) parts.push(boardTable(report.table), standings(report.table));
    for (const lesson of report.lessons) parts.push(...this.lesson(lesson, many, kept));
    if (!many && runs.length) parts.push(this.runs(runs, kept));
    if (report.table.length) parts.push(...this.table(report));
    if (report.facts && Object.keys(report.facts).length) parts.push(h("details", { open: !report.table.length && !report.lessons.length }, h("summary", {}, report.facts_title || "The recipe"), facts(report.facts)));
    const opened = new Set([...this.element.querySelectorAll("details[open]")].map((d) => d.firstChild.textContent));
    const top = this.element.scrollTop;
    this.element.replaceChildren(...parts.filter(Boolean));
    for (const d of this.element.querySelectorAll("details")) if (opened.has(d.firstChild.textContent)) d.open = true;
    this.element.scrollTop = top;
  }

  // What was trained, how far it is, and the figures that one asks for first.
  head(report) {
    const asked = report.facts || {};
    const lines = report.lessons.length === 1 ? report.lessons[0].lines : [];
    const about = [asked.world && `world ${words(asked.world)}`, asked.team && `team ${asked.team}`, asked.method && `method ${asked.method}`, asked.seed !== undefined && `seed ${asked.seed}`].filter(Boolean);
    const others = this.trainings.length > 1 ? h("label", {}, "Another training ", h("select", { onchange: (c) => go({ screen: `train/${c.target.value}` }) }, this.trainings.map((t) => h("option", { value: String(t.training), selected: t.training === (this.number || 0) }, t.name)))) : null;
    const parts = [h("div.row", {}, h("h1", {}, report.title), others), about.length ? h("p.quiet", {}, about.join(" · ")) : null];
    if (report.going) {
      const all = asked.iterations ?? asked.recipe?.iterations;
      const bar = all ? h("progress", { max: all, value: lines.length, "aria-label": "Iterations that are done" }) : null;
      parts.push(h("p.live", { role: "status" }, h("span.pulse", { "aria-hidden": "true" }), `Still going: ${many(lines.length, "iteration")} of ${all ?? "?"} so far.`, bar));
    }
    if (lines.length) parts.push(this.cards(report, lines));
    return h("div", {}, parts);
  }

  cards(report, lines) {
    const known = (of) => lines.map(of).filter((v) => v !== null && v !== undefined && !Number.isNaN(v));
    const cards = [];
    const add = (name, values, show) => values.length && cards.push(h("div.card", {}, h("span.quiet", {}, name), h("strong", {}, show(values[values.length - 1])), h("span.quiet", {}, values.length > 1 ? `${show(values[0])} at first` : "")));
    const plain = (v) => number(+v.toPrecision(4));
    add("Regret", known((l) => l.regret), percents);
    const left = (report.table || []).map((r) => r.share).filter((v) => typeof v === "number");
    if (left.length && !report.going) cards.push(h("div.card", {}, h("span.quiet", {}, "Gap left in new worlds"), h("strong", {}, percents(left.reduce((a, b) => a + b, 0) / left.length)), h("span.quiet", {}, "0 % is the optimum")));
    add("Return", known((l) => l.score), plain);
    add("Decisions that got credit", known((l) => l.paid), percents);
    add("Entropy of a decision", known((l) => l.entropy), plain);
    const total = known((l) => l.rows).reduce((a, b) => a + b, 0);
    if (total) cards.push(h("div.card", {}, h("span.quiet", {}, "Decisions learned from"), h("strong", {}, total.toLocaleString("en")), h("span.quiet", {}, `in ${many(lines.length, "iteration")}`)));
    return h("div.cards", {}, cards);
  }

  lesson(lesson, titled, kept) {
    const parts = titled ? [h("h2", {}, lesson.title)] : [];
    const pair = ["before", "after"].filter((w) => lesson[w] !== undefined);
    if (pair.length) parts.push(h("div.row", {}, h("span", {}, "One run, with the same luck:"), pair.map((w) => h("button", { onclick: () => go({ screen: `run/${lesson[w]}` }) }, `${w} training`)),
      pair.length === 2 ? h("button", { onclick: () => go({ screen: "compare", a: lesson.before, b: lesson.after }) }, "side by side") : null));
    const pointer = new Pointer(new Set(kept.keys()), (at) => go({ screen: `run/${kept.get(at)[0].run}` }));
    const charts = curves(lesson.lines, pointer);
    this.charts.push(...charts);
    if (!charts.length) return parts;
    const rows = lesson.lines.map((l) => ({ iteration: l.iteration + 1, regret: l.regret, return: l.score, paid: l.paid, entropy: l.entropy, gradient: l.gradient, decisions: l.decisions }));
    const columns = Object.keys(rows[0]).filter((n) => rows.some((r) => r[n] !== null && r[n] !== undefined));
    return [...parts, h("div.charts", {}, charts.map((c) => c.element)), h("details", {}, h("summary", {}, `The figures of each iteration${titled ? `, ${lesson.title}` : ""}`), table(rows, { columns, caption: "Iterations" }))];
  }

  // The runs before and after, and those of each iteration that were kept: a button a run.
  runs(runs, kept) {
    const button = (r, name) => h("button", { title: r.name, onclick: () => go({ screen: `run/${r.run}` }) }, name, r.reward === null ? null : h("span.quiet", {}, ` ${number(+r.reward.toPrecision(3))}`));
    const groups = new Map();
    for (const r of runs) if (r.iteration === null) groups.set(r.file, [...(groups.get(r.file) || []), r]);
    const row = (name, list) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, h("div.row", {}, list.map((r, i) => button(r, `run ${i + 1}`)))));
    const [before, after] = ["before.jsonl", "after.jsonl"].map((f) => groups.get(f) || []);
    const pairs = before.length && before.length === after.length ? h("p", {}, "Before and after are the same tasks with the same luck. Side by side: ", before.map((b, i) => h("button", { onclick: () => go({ screen: "compare", a: b.run, b: after[i].run }) }, `pair ${i + 1}`))) : null;
    return h("section", {}, h("h2", {}, "Runs to look at"), pairs, h("p.quiet", {}, kept.size ? "The first runs of each iteration, with their reward." : "No runs of iterations are in this folder."),
      h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Runs that were kept" }, h("table.kept", {}, h("tbody", {}, [...groups].map(([file, list]) => row(title(file.replace(/\.jsonl$/, "")), list)), [...kept].map(([at, list]) => row(`Iteration ${at}`, list))))));
  }

  table(report) {
    const picture = report.table.every((r) => [r.value, r.optimum, r.trivial].every((v) => typeof v === "number")) ? heldOut(report.table) : null;
    const rows = table(report.table.map(plainRow), { caption: report.title });
    return picture ? [picture, h("details", {}, h("summary", {}, "The same as a table"), rows)] : [report.table_title ? h("h2", {}, report.table_title) : null, rows];
  }

  async refresh() {
    if (this.number === undefined && this.trainings.length === 0) return;
    const index = await ask("index");
    this.trainings = index.trainings;
    this.fill(await ask("training", { training: this.number || 0 }));
  }
  state() {
    return { screen: this.name };
  }
  key() {
    return false;
  }
}

const between = (row, v) => ("share_of_gap" in row ? v.map((x) => figure("share", x)).join(" to ") : brief(v));
const plainRow = (row) => Object.fromEntries(Object.entries(row).map(([k, v]) => [k, Array.isArray(v) ? between(row, v) : v]));

// The charts of a training, of what its iterations say.
function curves(lines, pointer) {
  const points = (of) => lines.map((l) => [l.iteration + 1, of(l)]).filter(([, y]) => y !== null && y !== undefined && !Number.isNaN(y));
  const charts = [];
  const add = (name, series, how) => Object.values(series).some((p) => p.length) && charts.push(new Chart(pointer, name, series, how));
  add("Regret", { regret: points((l) => l.regret) }, { note: "what it leaves of the best possible score", percent: true, rule: { at: 0, label: "optimum" } });
  add("Return", { return: points((l) => l.score) }, { note: "the mean score of its rollouts", zero: false });
  const kinds = [...new Set(lines.flatMap((l) => Object.keys(l.mix || {})))].sort();
  if (kinds.length > 1) add("Which decisions it makes", Object.fromEntries(kinds.map((k) => [k, points((l) => (l.mix ? l.mix[k]?.share ?? 0 : null))])), { note: "share of each kind", percent: true, stack: true });
  for (const kind of kinds) {
    const share = (l, o) => (l.mix?.[kind] ? l.mix[kind].options[o] ?? 0 : null);
    const total = (o) => lines.reduce((s, l) => s + (share(l, o) || 0), 0);
    const options = [...new Set(lines.flatMap((l) => Object.keys(l.mix?.[kind]?.options || {})))].sort((a, b) => total(b) - total(a));
    if (options.length < 2) continue;
    const most = HUES.length - 1;
    const series = Object.fromEntries(options.slice(0, most).map((o) => [o, points((l) => share(l, o))]));
    if (options.length > most) series["all others"] = points((l) => (l.mix?.[kind] ? options.slice(most).reduce((s, o) => s + share(l, o), 0) : null));
    add(`What it chooses: ${words(kind)}`, series, { note: "share of each option", percent: true, stack: true });
  }
  const gradients = (l) => (l.roles ? Object.fromEntries(Object.entries(l.roles).map(([r, of]) => [r, of.gradient])) : l.gradients || {});
  const roles = [...new Set(lines.flatMap((l) => Object.keys(gradients(l))))].sort();
  add("Length of the gradient", Object.fromEntries(roles.map((r) => [r, points((l) => gradients(l)[r])])), { note: roles.length > 1 ? "of each role" : "" });
  add("Entropy", { entropy: points((l) => l.entropy) }, { note: "how open its decisions still are" });
  add("Decisions that got credit", { paid: points((l) => l.paid) }, { note: "share of all decisions", percent: true });
  return charts;
}
