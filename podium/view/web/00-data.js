"use strict";
// What the page is told, from its own file or from its server, and how figures are written.

const carried = new Map([...document.querySelectorAll('script[type="application/gzip"]')].map((s) => [s.dataset.key, s]));
const token = new URLSearchParams(location.search).get("token");
const answers = new Map();

function keyOf(name, words) {
  const names = Object.keys(words).sort();
  return name + (names.length ? "?" : "") + names.map((n) => `${n}=${words[n]}`).join("&");
}

async function bytesOf(name, words) {
  const key = keyOf(name, words);
  if (carried.size) {
    const script = carried.get(key);
    if (!script) throw new Error("This file does not carry that answer. `podium view PATH` serves a page that has all of them.");
    const packed = Uint8Array.from(atob(script.textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
  }
  const query = new URLSearchParams(words).toString();
  const reply = await fetch(`/ask/${name}${query ? "?" + query : ""}`, { headers: { "X-Podium-Token": token || "" } });
  if (!reply.ok) throw new Error((await reply.json()).error);
  return reply.arrayBuffer();
}

const isBlock = (buffer) => buffer.byteLength > 12 && new TextDecoder().decode(new Uint8Array(buffer, 0, 7)) === "PODIUM1";

function unpack(buffer) {
  const length = new DataView(buffer).getUint32(8, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 12, length)));
  const kinds = { f8: Float64Array, f4: Float32Array, i4: Int32Array, u2: Uint16Array, i1: Int8Array, u1: Uint8Array };
  const columns = {};
  for (const [name, [kind, at, n]] of Object.entries(header.columns)) columns[name] = new kinds[kind](buffer, 12 + length + at, n);
  return { header, columns };
}

// The answer to a question: JSON, or {header, columns}. Answers are remembered until something changes on disk.
function ask(name, words = {}) {
  const key = keyOf(name, words);
  if (!answers.has(key)) {
    const answer = bytesOf(name, words).then((b) => (isBlock(b) ? unpack(b) : JSON.parse(new TextDecoder().decode(b))));
    answer.catch(() => answers.delete(key));
    answers.set(key, answer);
  }
  return answers.get(key);
}

// An element. Text is always text: nothing that a trace says can become markup.
function h(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && typeof value !== "string") element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// A name that is a random number says as much by its beginning.
const short = (name) => (/^[0-9a-f]{8}-[0-9a-f]{4}-/.test(name) ? `${name.slice(0, 8)}…` : name);
const words = (name) => String(name).replaceAll("_", " ");

// A time: to the second where that says something, as in the terminal.
function seconds(s) {
  if (s === null || s === undefined || Number.isNaN(s)) return "not recorded";
  const size = Math.abs(s);
  const two = (value, parts, one, other) => `${s < 0 ? "−" : ""}${Math.floor(value / parts)} ${one}${value % parts ? ` ${value % parts} ${other}` : ""}`;
  if (size >= 86_370) return two(Math.round(size / 3600), 24, "d", "h");
  if (size >= 3570) return two(Math.round(size / 60), 60, "h", "min");
  if (size >= 119.5) return two(Math.round(size), 60, "min", "s");
  if (size >= 1 || size === 0) return `${+s.toPrecision(4)} s`;
  return size >= 1e-3 ? `${+(s * 1e3).toPrecision(3)} ms` : `${+(s * 1e6).toPrecision(3)} µs`;
}

// A large count, rounded so that it fits a column; it sorts by its size.
function rounded(x) {
  if (x === null || x === undefined || x < 10_000) return x ?? null;
  const shown = x < 999_500 ? `${+(x / 1e3).toPrecision(3)}k` : `${+(x / 1e6).toPrecision(4)}M`;
  return { shown, valueOf: () => x };
}

function number(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return "not recorded";
  if (Number.isInteger(x)) return x.toLocaleString("en");
  return Math.abs(x) >= 1e5 ? Math.round(x).toLocaleString("en") : String(+x.toPrecision(6));
}

const money = (usd) => `$${Math.abs(usd) >= 0.01 || usd === 0 ? usd.toFixed(2) : +usd.toPrecision(2)}`;

function figure(name, value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "not recorded";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  if (/(_s|seconds)$/.test(name)) return seconds(value);
  if (/(^|_)(usd|money|price|cost)$/.test(name)) return money(value);
  if (/^share|(share|regret|rate|paid)$/.test(name)) return `${+(value * 100).toPrecision(3)} %`;
  return number(value);
}

const title = (name) => words(name.replace(/_(s|usd)$/, "")).replace(/^./, (c) => c.toUpperCase());

// A table that sorts by a click on its head, from rows that are objects.
function table(rows, { columns, onrow, caption } = {}) {
  if (!rows.length) return h("p.quiet", {}, "Nothing to list.");
  const names = columns || [...new Set(rows.flatMap((r) => Object.keys(r)))];
  const numeric = new Set(names.filter((n) => rows.some((r) => typeof r[n] === "number" || r[n]?.shown)));
  const body = h("tbody");
  let by = null;
  let up = true;
  const key = (value) => (value instanceof Node ? value.textContent : value); // what has `shown` compares by its value
  const order = (a, b) => (a === b ? 0 : a === null || a === undefined ? 1 : b === null || b === undefined ? -1 : a < b ? -1 : 1);
  const cell = (row, n, i) => {
    const value = row[n];
    const absent = value === null || value === undefined;
    const shown = value instanceof Node ? value : value?.shown ? value.shown : absent ? h("span.quiet", { title: "not recorded", "aria-label": "not recorded" }, "–") : figure(n, typeof value === "object" ? brief(value) : value);
    return h(numeric.has(n) ? "td.number" : "td", {}, i === 0 && onrow ? h("button.link", { onclick: () => onrow(row) }, shown) : shown);
  };
  const fill = () => {
    const sorted = by === null ? rows : [...rows].sort((a, b) => (up ? 1 : -1) * order(key(a[by]), key(b[by])));
    body.replaceChildren(...sorted.map((row) => h("tr", {}, names.map((n, i) => cell(row, n, i)))));
  };
  const heads = names.map((n) => {
    const head = h(numeric.has(n) ? "th.number" : "th", { scope: "col" }, h("button.link", { onclick: () => {
      up = by === n ? !up : true;
      by = n;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      fill();
    } }, title(n)));
    return head;
  });
  fill();
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": caption || "table" }, h("table", {}, h("thead", {}, h("tr", {}, heads)), body));
}

// Names and values beside each other.
const factTable = (rows) => h("table.facts", {}, h("tbody", {}, rows.map(([k, v]) => h("tr", {}, h("th", { scope: "row" }, k), h("td", {}, v ?? "not recorded")))));

function brief(value) {
  if (Array.isArray(value)) return value.map((v) => (v !== null && typeof v === "object" ? brief(v) : figure("", v))).join(value.length === 2 ? " to " : ", ");
  return Object.entries(value).map(([k, v]) => `${words(k)}: ${v !== null && typeof v === "object" ? brief(v) : figure(k, v)}`).join(", ");
}

// Nested facts as they came: names and figures, lists of objects as tables.
function facts(value) {
  const nested = (v) => v !== null && typeof v === "object";
  const rows = [];
  const parts = [];
  for (const [name, v] of Object.entries(value)) {
    const section = (content) => parts.push(h("section", {}, h("h3", {}, title(name)), content));
    if (Array.isArray(v) && v.length && nested(v[0])) section(table(v, { caption: title(name) }));
    else if (nested(v) && !Array.isArray(v) && Object.values(v).some(nested)) section(facts(v));
    else rows.push([title(name), nested(v) ? brief(v) || "none" : figure(name, v)]);
  }
  return h("div", {}, rows.length ? factTable(rows) : null, parts);
}
