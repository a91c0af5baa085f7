// What ties the screens together: the head of the page, addresses that name any view, keys, light and dark, and what is new on disk.

let screen = null;
let live = false;

const KEYS = [
  ["Arrows", "move"], ["+ −", "zoom"], ["0", "show all"], ["j k", "next and previous event"], ["/", "search: matches stand out, n and p go through them"],
  ["c", "light the critical path"], ["f", "fold the agent of the chosen event"], ["1 … 5", "panels: event, list, summary, credit, safety"], ["b", "hide or show the panels"],
  ["d", "light or dark"], ["Esc", "show all, then choose nothing"], ["?", "this help"],
];
// What words mean, for who has never heard of them.
const MEANINGS = {
  decision: "the orchestrator chose: whom to launch, whom to ask, when to stop", spawn: "an agent was launched", despawn: "an agent was let go", message: "one agent wrote to another",
  "tool call": "a program was called", "tool result": "what the program gave back", return: "an agent handed its work back to who launched it", aggregate: "several answers, or votes, became one",
  "human intervention": "a person stepped in", "safety event": "a check looked, released or refused",
};
const ARROW_NAMES = { aggregate: "vote", tool_dependency: "tool", safety_flow: "safety" };
const WORDS_OF_ARROWS = { spawn: "from who launched an agent to its first event", message: "from who wrote to who read", return: "from an agent back to who launched it", aggregate: "from an answer or vote to what was made of it", tool_dependency: "between a call and what came back", safety_flow: "from a check to what it let through" };
const GLOSSARY = [
  ["Event", "one thing that happened: a decision, a message, a call of a tool, a return."], ["Critical path", "the chain of work that decided how long the run took."],
  ["Credit", "how much of the outcome a part of the team is paid for, by the rule of a method."], ["Unit", "what is paid: the whole team, a role, an agent, a decision, a turn, a message, a tool call, a token."],
  ["Regret", "the share of the best possible score that was missed."], ["From outside", "content that nobody on the team wrote or vouches for, such as a web page."], ["Branch", "a run that repeats another one up to a point and then does something else."],
];
const GUIDE = [
  "Each line is one agent, below whoever launched it. Time runs from left to right.",
  "A bar is work that took time; a dot is an event whose end was not recorded. An arrow leads from a cause to its effect; dashed: inferred.",
  "A red line below marks the critical path: what could not have been later without the whole run ending later.",
  "Come near and labels, arrows and options appear. Point at anything to read what it was; choose it to see all that the record says.",
];

const stateOf = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

function remember(state) {
  const address = "#" + new URLSearchParams(Object.entries(state).filter(([, v]) => v !== undefined && v !== "")).toString();
  if (address !== location.hash) history.replaceState(null, "", location.pathname + location.search + address);
}

function go(state) {
  history.pushState(null, "", location.pathname + location.search + "#" + new URLSearchParams(state).toString());
  return open();
}

async function open() {
  const state = stateOf();
  const body = document.getElementById("body");
  try {
    const index = await ask("index");
    const [kind, number] = (state.screen || first(index)).split("/");
    const kinds = { run: RunScreen, runs: FolderScreen, compare: CompareScreen, train: TrainScreen };
    if (!(kind in kinds)) throw new Error(`There is no view called ${kind}.`);
    screen = await kinds[kind].open(number === undefined ? undefined : +number, state);
    body.replaceChildren(screen.element);
    navigation(index, kind, number);
    screen.lanes?.draw();
    document.body.dataset.ready = kind;
  } catch (error) {
    body.replaceChildren(h("main.page", {}, h("h1", {}, "This cannot be shown"), h("p.fault", {}, String(error.message || error)), h("p", {}, h("button", { onclick: () => go({ screen: "runs" }) }, "All runs"))));
    document.body.dataset.ready = "fault";
    screen = null;
  }
}

const first = (index) => (index.report || (index.trainings.length && !index.static) ? "train/0" : index.runs.length === 1 ? "run/0" : "runs");

function navigation(index, kind, number) {
  const items = [];
  if (index.report || index.trainings.length) items.push([index.trainings.length ? "Training" : "Report", { screen: "train/0" }, kind === "train"]);
  if (index.runs.length > 1 || !items.length) items.push(["Runs", { screen: "runs" }, kind === "runs"]);
  if (index.runs.length) items.push([kind === "run" ? `Run: ${index.runs[number]?.name ?? number}` : "Run", { screen: `run/${kind === "run" ? number : 0}` }, kind === "run"]);
  if (index.runs.length > 1) items.push(["Compare", { screen: "compare", ...(kind === "run" ? { a: number } : {}) }, kind === "compare"]);
  document.getElementById("nav").replaceChildren(...items.map(([name, state, here]) => h("button", { "aria-current": here ? "page" : null, onclick: () => go(state) }, name)));
}

function theme(next) {
  const now = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const chosen = next || (now === "dark" ? "light" : "dark");
  document.documentElement.dataset.theme = chosen;
  try {
    localStorage.setItem("podium-theme", chosen);
  } catch {
    // a file opened from disk may have no storage
  }
  screen?.lanes?.draw();
  for (const picture of [...(screen?.boards || []), ...(screen?.charts || [])]) picture.draw();
}

function frame() {
  const search = h("input", { type: "search", placeholder: "Search", "aria-label": "Search agents, tools, types, choices; or agent:NAME, tool:NAME", id: "search" });
  search.addEventListener("change", () => {
    clearTimeout(search.waiting);
    if (search.value.trim() !== (screen?.query || "")) screen?.searched?.(search.value); // a click on a match leaves the field
  });
  search.addEventListener("keydown", (k) => k.key === "Escape" && search.blur());
  search.addEventListener("input", () => {
    clearTimeout(search.waiting);
    search.waiting = setTimeout(() => screen?.searched?.(search.value), 250);
  });
  const keys = h("table.facts", {}, h("tbody", {}, KEYS.map(([key, does]) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, does)))));
  const help = h("dialog", { id: "help", "aria-label": "How to read this, and keys" }, h("h2", {}, "How to read this"), GUIDE.map((line) => h("p", {}, line)), h("h2", {}, "Words"), factTable(GLOSSARY), h("h2", {}, "Keys"), keys, h("form", { method: "dialog" }, h("button", {}, "Close")));
  help.querySelector("form").addEventListener("submit", (s) => {
    s.preventDefault();
    help.close();
  });
  document.body.append(
    h("header", {}, h("strong", {}, "Podium"), h("nav", { id: "nav", "aria-label": "Views" }), h("span.spacer"), h("span.quiet", { id: "live", role: "status" }), search,
      h("button", { "aria-label": "Light or dark", onclick: () => theme() }, "◐"), h("button", { "aria-label": "Help and keys", onclick: () => help.showModal() }, "?")),
    h("div", { id: "body" }), h("p.hidden", { id: "keys" }, KEYS.map(([key, does]) => `${key}: ${does}`).join("; ")), help);
}

document.addEventListener("keydown", (k) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(k.target.tagName) || k.ctrlKey || k.metaKey || k.altKey;
  if (typing || document.getElementById("help").open) return;
  if (k.key === "/") document.getElementById("search").focus();
  else if (k.key === "?") document.getElementById("help").showModal();
  else if (k.key === "d") theme();
  else if (k.target.closest(".dock, .page") && !k.target.closest(".lanes") && /^(Arrow|Page|Home|End)/.test(k.key)) return;
  else if (!screen?.key(k)) return;
  k.preventDefault();
});

// Follows what is on disk: a run that goes on, an iteration that is done.
async function follow() {
  if (carried.size) return;
  const note = document.getElementById("live");
  try {
    const { stamp } = JSON.parse(new TextDecoder().decode(await bytesOf("changed", {})));
    if (live && stamp !== live) {
      answers.clear();
      const state = screen?.state();
      if (screen?.refresh) await screen.refresh();
      else if (state) {
        history.replaceState(null, "", location.pathname + location.search + "#" + new URLSearchParams(Object.entries(state).filter(([, v]) => v !== undefined)).toString());
        await open();
      }
      note.textContent = "updated";
      setTimeout(() => (note.textContent = ""), 2000);
    }
    live = stamp;
  } catch {
    note.textContent = "the server has stopped";
  }
  setTimeout(follow, 1000);
}

window.podium = { screen: () => screen, ask }; // for tests
frame();
try {
  const chosen = localStorage.getItem("podium-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch {
  // no storage
}
addEventListener("popstate", open);
addEventListener("hashchange", () => screen && JSON.stringify(stateOf().screen) !== JSON.stringify(screen.state().screen) && open());
open().then(follow);
