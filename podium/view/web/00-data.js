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
  element.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const words = (name) => String(name).replaceAll("_", " ");

function seconds(s) {
  if (s === null || s === undefined || Number.isNaN(s)) return "not recorded";
  const size = Math.abs(s);
  if (size >= 86400) return `${+(s / 86400).toPrecision(3)} d`;
  if (size >= 3600) return `${+(s / 3600).toPrecision(3)} h`;
  if (size >= 120) return `${+(s / 60).toPrecision(3)} min`;
  if (size >= 1 || size === 0) return `${+s.toPrecision(4)} s`;
  return size >= 1e-3 ? `${+(s * 1e3).toPrecision(3)} ms` : `${+(s * 1e6).toPrecision(3)} µs`;
}

function number(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return "not recorded";
  if (Number.isInteger(x)) return x.toLocaleString("en");
  return Math.abs(x) >= 1e5 ? Math.round(x).toLocaleString("en") : String(+x.toPrecision(6));
}

function figure(name, value) {
  if (value === null || value === undefined) return "not recorded";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  if (/(_s|seconds)$/.test(name)) return seconds(value);
  if (/(^|_)(usd|money)$/.test(name)) return `$${+value.toPrecision(4)}`;
  if (/(share|regret|rate)$/.test(name)) return `${+(value * 100).toPrecision(3)} %`;
  return number(value);
}

const title = (name) => words(name.replace(/_(s|usd)$/, "")).replace(/^./, (c) => c.toUpperCase());

// A table that sorts by a click on its head, from rows that are objects.
function table(rows, { columns, onrow, caption } = {}) {
  if (!rows.length) return h("p.quiet", {}, "Nothing to list.");
  const names = columns || [...new Set(rows.flatMap((r) => Object.keys(r)))];
  const body = h("tbody");
  let by = null;
  let up = true;
  const fill = () => {
    const sorted = by === null ? rows : [...rows].sort((a, b) => (up ? 1 : -1) * order(a[by], b[by]));
    body.replaceChildren(
      ...sorted.map((row) =>
        h("tr", {}, names.map((n, i) => {
          const value = row[n] instanceof Node ? row[n] : figure(n, flat(row[n]));
          const number = typeof row[n] === "number";
          return h(number ? "td.number" : "td", {}, i === 0 && onrow ? h("button.link", { onclick: () => onrow(row) }, value) : value);
        }))));
  };
  const order = (a, b) => (a === b ? 0 : a === null || a === undefined ? 1 : b === null || b === undefined ? -1 : a < b ? -1 : 1);
  const flat = (value) => (value !== null && typeof value === "object" && !(value instanceof Node) ? brief(value) : value);
  const heads = names.map((n) => {
    const head = h(rows.some((r) => typeof r[n] === "number") ? "th.number" : "th", { scope: "col" }, h("button.link", { onclick: () => {
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

function brief(value) {
  if (Array.isArray(value)) return value.map((v) => (v !== null && typeof v === "object" ? brief(v) : figure("", v))).join(value.length === 2 ? " to " : ", ");
  return Object.entries(value).map(([k, v]) => `${words(k)}: ${v !== null && typeof v === "object" ? brief(v) : figure(k, v)}`).join(", ");
}

// Nested facts as they came: names and figures, lists of objects as tables.
function facts(value) {
  const rows = [];
  const parts = [];
  for (const [name, v] of Object.entries(value)) {
    if (Array.isArray(v) && v.length && typeof v[0] === "object" && v[0] !== null) parts.push(h("section", {}, h("h3", {}, title(name)), table(v, { caption: title(name) })));
    else if (v !== null && typeof v === "object" && !Array.isArray(v) && Object.values(v).some((x) => x !== null && typeof x === "object")) parts.push(h("section", {}, h("h3", {}, title(name)), facts(v)));
    else rows.push(h("tr", {}, h("th", { scope: "row" }, title(name)), h("td", {}, v !== null && typeof v === "object" ? brief(v) || "none" : figure(name, v))));
  }
  return h("div", {}, rows.length ? h("table.facts", {}, h("tbody", {}, rows)) : null, parts);
}
