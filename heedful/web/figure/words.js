// The words of one side: a list that can be pointed at and moved through by keys; and the status text about one word.

const MISSING = "not in the vocabulary";
const COPIED = "copied from the source, since the model wrote an unknown word";
const NAMES = { source: "source", target: "translation" };
const RIGHT_TO_LEFT = /[\p{sc=Arab}\p{sc=Hebr}\p{sc=Syrc}\p{sc=Thaa}\p{sc=Nkoo}\p{sc=Adlm}]/u;
const SELF = { source: "attended to", target: "attending" };

function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name in element && name !== "list" && name !== "role") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function makeSvg(tag, options = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(options)) element.setAttribute(name, value);
  return element;
}

// English text as nodes in which words from right to left are isolated, so that lists keep their order.
function isolatedNodes(text) {
  const parts = text.split(/([\s']+)/u);
  return parts.map((part) => (RIGHT_TO_LEFT.test(part) ? make("bdi", {}, part) : part));
}

// The direction of a side, as most of its letters are written.
function direction(panel, side) {
  return { true: "rtl", false: "ltr" }[panel.trace[side].turned] ?? "auto";
}

// A list of words with one tab stop; the arrow keys move on from it.
function wordList(panel, side) {
  const words = panel.units[side];
  const what = panel.trace.self ? `words: ${SELF[side]}` : NAMES[side];
  const list = make("ul", { className: `v-side v-${side}`, role: "listbox", dir: direction(panel, side) });
  list.setAttribute("aria-label", `${what}, ${words.length} ${panel.unit}`);
  const { copied = [], unknown = [] } = panel.trace[side];
  const missing = new Set(panel.unit === "words" ? copied : []);
  for (const at of unknown) words.forEach(({ first, last }, i) => { if (at >= first && at < last) missing.add(i); });
  const alarmed = new Set(panel.unit === "words" ? panel.trace.alarms.flatMap((alarm) => alarm[side]) : []);
  panel.items[side] = words.map((word, i) => {
    const why = missing.has(i) ? `: ${copied.includes(i) ? COPIED : MISSING}` : "";
    const item = make("li", { role: "option", title: word.text + why }, make("span", {}, word.text));
    item.tabIndex = i === panel.at[side] ? 0 : -1;
    item.dataset.side = side;
    item.dataset.i = i;
    item.setAttribute("aria-selected", "false");
    item.classList.toggle("v-end", word.text === "</s>");
    item.classList.toggle("v-alarm", alarmed.has(i));
    item.classList.toggle("v-missing", missing.has(i));
    item.classList.toggle("v-unsure", side === "target" && !panel.trace.self && confidence(panel, i) < 0.5);
    return item;
  });
  list.append(...panel.items[side]);
  return list;
}

// The width of the widest of some words, by those with the most letters.
function widest(words, list) {
  const pen = document.createElement("canvas").getContext("2d");
  const { fontWeight, fontSize, fontFamily } = getComputedStyle(list); // `font` is empty with tabular digits
  pen.font = `${fontWeight} ${fontSize} ${fontFamily}`;
  const longest = words.map(({ text }) => text.slice(0, 60)).sort((a, b) => b.length - a.length);
  return Math.max(0, ...longest.slice(0, 50).map((text) => pen.measureText(text).width));
}

function confidence(panel, t) {
  const { first, last } = panel.units.target[t];
  const logs = panel.trace.logs.slice(first, last);
  return logs.length ? Math.exp(logs.reduce((a, b) => a + b, 0) / logs.length) : 1;
}

// The drawn links of one word, the largest first, as [other word, weight].
function linkedWords(panel, side, i) {
  const other = side === "source" ? "t" : "s";
  const links = panel.kept.links.filter((link) => link[side[0]] === i).map((link) => [link[other], link.w]);
  return links.sort((a, b) => b[1] - a[1]);
}

// The attention of a word, or to it, that is not drawn; in rows.
function hidden(panel, side, i, drawn) {
  const row = (total, { links }) => total + (links.find(({ s }) => s === i)?.w ?? 0);
  const all = side === "target" ? panel.rows[i].total : panel.rows.reduce(row, 0);
  return all - drawn.reduce((sum, [, w]) => sum + w, 0);
}

// The status text of a word: "eating: खाना 61 %, खा 30 %, hidden 9 %". Words are isolated, each in its own direction.
function statusText(panel, side, i) {
  const other = side === "source" ? "target" : "source";
  const links = linkedWords(panel, side, i);
  const word = make("bdi", {}, panel.units[side][i].text);
  if (!panel.sparse) return [word, ": no weights"];
  const parts = [word, side === "source" ? `: ${labelsOf(panel.trace)[2]} ` : ": "];
  links.slice(0, 6).forEach(([j, w], n) => {
    parts.push(n ? ", " : "", make("bdi", {}, panel.units[other][j].text), `\u00a0${percent(w)}`);
  });
  if (!links.length) parts.push("no word");
  if (links.length > 6) {
    const more = links.slice(6).reduce((sum, [, w]) => sum + w, 0);
    parts.push(` and ${links.length - 6} more, ${percent(more)}\u00a0together`);
  }
  const lacking = hidden(panel, side, i, links);
  if (lacking >= 0.005) parts.push(` · hidden\u00a0${percent(lacking)}`);
  if (side === "target" && !panel.trace.self) parts.push(` · confidence\u00a0${percent(confidence(panel, i))}`);
  return parts;
}

// What the numbers of a trace are called: one, all, and how a source word relates to target words.
function labelsOf({ attention }) {
  return attention === false ? ["share", "shares", "influence on"] : ["weight", "weight", "attended to by"];
}

// The word that a key moves to from word i of n; null for other keys.
function step(key, i, n, reverse) {
  const right = reverse ? -1 : 1;
  const moves = { ArrowRight: right, ArrowLeft: -right, ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
  if (key === "Home") return 0;
  if (key === "End") return n - 1;
  return key in moves ? Math.min(n - 1, Math.max(0, i + moves[key])) : null;
}
