// The heat map: target words down, source words across; and small maps of all heads.

const NUMBER = 0.05; // the least weight with a number in its cell
const DARK = 0.67; // from this weight on a number has the colour of the background
const HEAVY = 0.4; // from this weight on a number is bold

const NUMBERED = 22; // the least width of a cell with a number
const NARROW = 16; // and of one without
const CONFIDENCE = { wide: [66, "confidence"], narrow: [40, "conf"] }; // the column of confidences: width and heading

const WIDEST = 96; // wider cells look like a table; longer words are slanted

// The size of cells that fit into `room`; if they would be too narrow, they keep a readable size, and the map scrolls.
// `label` is the width of the words over the columns, 0 if they are slanted.
function cells(rows, columns, room, label) {
  const most = Math.max(rows, columns);
  const [wide, high] = most <= 16 ? [38, 30] : most <= 80 ? [30, 25] : [24, 22];
  const fitting = Math.floor(room / columns);
  return [fitting >= NARROW ? Math.min(Math.max(wide, label), fitting) : Math.min(wide, 26), high];
}

function heatmap(panel, box = panel.box) {
  const { source, target } = panel.units;
  const svg = makeSvg("svg", { "aria-hidden": "true" });
  const frame = make("div", { className: "v-grid" }, make("span", { className: "v-corner" }));
  const [confidenceWidth, name] = panel.trace.self ? [0, ""] : CONFIDENCE[box.clientWidth < 420 ? "narrow" : "wide"];
  frame.append(wordList(panel, "source"), make("span", { className: "v-confidence-head", ariaHidden: "true" }, name));
  frame.append(wordList(panel, "target"), svg, confidences(panel));
  box.replaceChildren(frame);
  const words = frame.querySelector(".v-target");
  words.style.minWidth = `${lastLayout(panel, "heatmap")?.left ?? 0}px`;
  const left = words.offsetWidth;
  saveLayout(panel, "heatmap", { left });
  const room = box.clientWidth - left - confidenceWidth - 2;
  const label = Math.ceil(widest(source, frame)) + 12;
  const flat = label <= WIDEST && source.length * label <= room;
  // Slanted words: the height of the longest, and the overhang of the last ones.
  const slanted = (words) => 0.7072 * Math.min(170, widest(words, frame));
  const ends = panel.trace.source.turned ? source.slice(0, 2) : source.slice(-2);
  const over = flat ? 0 : Math.max(0, Math.ceil(slanted(ends) + 14) - confidenceWidth);
  const [wide, high] = cells(target.length, source.length, room - over, flat ? label : 0);
  svg.setAttribute("width", source.length * wide);
  svg.setAttribute("height", target.length * high);
  const letters = flat ? 14.4 : Math.min(14.4, 0.72 * wide); // slanted words do not overlap
  const long = flat ? 34 : Math.ceil(slanted(source) + 28);
  const sizes = { wide, high, confidence: confidenceWidth, over, letters, labels: left, long };
  frame.classList.toggle("v-flat", flat);
  for (const [name, size] of Object.entries(sizes)) frame.style.setProperty(`--${name}`, `${size}px`);
  // Cut off, or too narrow for numbers: panels are stacked then.
  frame.classList.toggle("v-tight", wide < NUMBERED || frame.scrollWidth > frame.clientWidth + 1);
  box.append(legend(panel, wide >= NUMBERED, name));
  // A source from right to left begins at the right.
  const turned = Boolean(panel.trace.source.turned);
  const column = (s) => (turned ? source.length - 1 - s : s);
  if (turned) frame.scrollLeft = frame.scrollWidth;
  const more = () => {
    const left = frame.scrollWidth - frame.clientWidth - frame.scrollLeft;
    frame.classList.toggle("v-more", (turned ? frame.scrollLeft : left) > 2);
  };
  frame.classList.toggle("v-rtl", turned);
  frame.classList.toggle("v-tall", target.length * high > 900);
  more();
  frame.addEventListener("scroll", more, { passive: true });
  const large = target.length * source.length > 4000;
  let active = null;

  function fill(whole = false) {
    const all = whole || !large;
    const [x0, x1] = all ? [0, source.length] : visibleRange(frame.scrollLeft, frame.clientWidth, wide, source.length);
    const [y0, y1] = all ? [0, target.length] : visibleRange(frame.scrollTop, frame.clientHeight, high, target.length);
    svg.replaceChildren(makeSvg("path", { class: "v-lines", d: lines(x0, x1, y0, y1, wide, high) }));
    for (const { s, t, w } of panel.kept.links) {
      const x = column(s);
      if (x < x0 || x >= x1 || t < y0 || t >= y1) continue;
      const group = makeSvg("g", { class: `v-cell${isHighlighted(active, { s, t }) ? " v-on" : ""}` });
      const shade = Math.min(1, w).toFixed(3);
      group.append(makeSvg("rect", { x: x * wide, y: t * high, width: wide, height: high, "fill-opacity": shade }));
      if (w >= NUMBER && wide >= NUMBERED) {
        const text = makeSvg("text", { x: (x + 0.5) * wide, y: (t + 0.5) * high + 4, class: number(w) });
        text.textContent = Math.round(100 * w);
        group.append(text);
      }
      svg.append(group);
    }
    if (panel.unit === "words") {
      for (const [s, t] of panel.trace.gold) {
        const at = { x: column(s) * wide + 2, y: t * high + 2, width: wide - 4, height: high - 4, rx: 3 };
        svg.append(makeSvg("rect", { class: "v-gold", ...at }));
      }
    }
    const divided = dividers(panel, column, wide, high);
    if (divided) svg.append(makeSvg("path", { class: "v-divider", d: divided }));
    if (active) {
      const place = active.side === "source" ? { ...active, i: column(active.i) } : active;
      svg.append(band(place, wide, high, source.length, target.length));
    }
    svg.classList.toggle("v-dimmed", active !== null);
  }

  fill();
  if (large) frame.addEventListener("scroll", () => onNextFrame(panel, fill), { passive: true });
  const cell = (event) => Math.floor((event.clientY - svg.getBoundingClientRect().top) / high);
  svg.addEventListener("pointermove", (event) => {
    if (event.pointerType === "mouse") panel.point("target", cell(event));
  });
  svg.addEventListener("pointerleave", () => panel.point(null));
  svg.addEventListener("click", (event) => panel.pin("target", cell(event)));
  return { fill, mark: (now) => { active = now; fill(); } };
}

// The classes of the number of a cell, by the shade behind it.
const number = (weight) => `${weight >= HEAVY ? "v-heavy" : ""} ${weight >= DARK ? "v-full" : ""}`.trim();

// The confidence of each target word, at the right of its row; none for self-attention.
function confidences(panel) {
  const list = make("div", { className: "v-confidence", ariaHidden: "true" });
  if (panel.trace.self) return list;
  panel.units.target.forEach((_, t) => list.append(make("span", {}, percent(confidence(panel, t)))));
  return list;
}

// The legend of shades, numbers and the column of confidences.
function legend(panel, numbered, name) {
  const scale = make("span", { className: "v-scale", ariaHidden: "true" });
  for (const share of [0, 25, 50, 75, 100]) {
    const box = make("span", { className: number(share / 100) }, make("b", {}, String(share)));
    box.style.setProperty("--share", `${share}%`);
    scale.append(box);
  }
  const entries = [`${labelsOf(panel.trace)[0]} in per cent${numbered ? ", with numbers from 5 on" : ""}`];
  if (name) entries.push(`${name}: ${name === "conf" ? "confidence, the " : ""}probability of the word`);
  if (panel.trace.generated != null) entries.push("line: between prompt and generated");
  return make("p", { className: "v-legend" }, scale, entries.join(" · "));
}

// Lines between prompt and generated words, "" if there are none: `trace.generated` is the first generated token.
function dividers({ trace, units: { source, target } }, column, wide, high) {
  if (trace.generated == null) return "";
  const [s, t] = [source, target].map((words) => words.filter(({ first }) => first < trace.generated).length);
  const x = Math.max(column(s - 1), column(s)) * wide;
  const across = t > 0 && t < target.length ? `M0 ${t * high}H${source.length * wide}` : "";
  return across + (s > 0 && s < source.length ? `M${x} 0V${target.length * high}` : "");
}

// The range of visible cells, and some more on either side.
function visibleRange(from, length, size, n) {
  return [Math.max(0, Math.floor((from - length / 2) / size)), Math.min(n, Math.ceil((from + 1.5 * length) / size))];
}

function lines(x0, x1, y0, y1, wide, high) {
  let path = "";
  for (let y = y0; y <= y1; y++) path += `M${x0 * wide} ${y * high}H${x1 * wide}`;
  for (let x = x0; x <= x1; x++) path += `M${x * wide} ${y0 * high}V${y1 * high}`;
  return path;
}

function band({ side, i }, wide, high, columns, rows) {
  const row = { x: 0, y: i * high, width: columns * wide, height: high };
  const column = { x: i * wide, y: 0, width: wide, height: rows * high };
  return makeSvg("rect", { class: "v-band", ...(side === "source" ? column : row) });
}

// Small heat maps of all heads, a row for each layer; the chosen one is enlarged below them.
function heads(panel) {
  const { layers, each } = panel.trace;
  const box = make("div", { className: "v-heads-view" });
  const table = make("div", { className: "v-thumbs", role: "listbox" });
  table.setAttribute("aria-label", `${layers.length} layers of ${each.length} heads`);
  table.style.setProperty("--columns", each.length);
  const large = make("div", { className: "v-large" });
  box.append(table, describeMap(panel), large);
  panel.box.replaceChildren(box);
  const chosen = panel.choice.startsWith("head:") ? Number(panel.choice.slice(5)) : -1;
  layers.forEach((layer, l) => each.forEach((head, h) => {
    const map = l * each.length + h;
    const first = map === Math.max(0, chosen);
    const button = make("div", { className: "v-thumb", role: "option", tabIndex: first ? 0 : -1 });
    button.dataset.map = map;
    button.setAttribute("aria-label", `layer ${layer}, head ${head}`);
    button.setAttribute("aria-selected", String(map === chosen));
    button.append(thumbnail(panel, map), make("span", { ariaHidden: "true" }, `${layer}.${head}`));
    table.append(button);
  }));
  table.addEventListener("click", (event) => choose(event.target.closest("[data-map]")));
  table.addEventListener("keydown", (event) => {
    const at = event.target.closest("[data-map]");
    const next = nextMap(event.key, Number(at.dataset.map), each.length);
    if (event.key === "Enter" || event.key === " ") choose(at);
    else if (table.children[next]) choose(table.children[next]); // the focused head is enlarged
    else return;
    event.preventDefault();
  });
  function choose(button) {
    if (!button) return;
    panel.choose(`head:${button.dataset.map}`);
    panel.box.querySelector(`[data-map="${button.dataset.map}"]`)?.focus();
  }
  return heatmap(panel, large);
}

// The name of the enlarged map, and why it was chosen.
function describeMap(panel) {
  const { choice, trace } = panel;
  const name = make("b", {}, panel.shown());
  if (choice === "read") return make("p", { className: "v-which" }, name, ". Choose a head above to enlarge it.");
  const why = choice === `head:${trace.chosen}` ? trace.why : "selected";
  return make("p", { className: "v-which" }, name, why ? `: ${why}` : "");
}

// Arrow keys among the small maps: down and up move by a layer.
function nextMap(key, i, columns) {
  return { ArrowRight: i + 1, ArrowLeft: i - 1, ArrowDown: i + columns, ArrowUp: i - columns }[key];
}

// A map as an image of at most 96 pixels a side; with more words, a pixel is the largest of several weights.
function thumbnail(panel, map) {
  const { source, target } = panel.units;
  const size = (n) => Math.max(1, Math.min(96, n));
  const [wide, high] = [size(source.length), size(target.length)];
  const canvas = make("canvas", { width: wide, height: high });
  const shade = getComputedStyle(panel.box).getPropertyValue("--v-shade").trim();
  const [red, green, blue] = [1, 3, 5].map((i) => parseInt(shade.slice(i, i + 2), 16));
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(wide, high);
  const dots = image.data;
  for (let at = 0; at < dots.length; at += 4) dots.set([red, green, blue], at);
  visitRows(panel.heads, [map], source, target, (t, touched, sums, total, scale) => {
    const y = Math.floor((t * high) / target.length);
    for (const s of touched) {
      const x = panel.trace.source.turned ? source.length - 1 - s : s;
      const at = 4 * (y * wide + Math.floor((x * wide) / source.length)) + 3;
      dots[at] = Math.max(dots[at], Math.round(255 * Math.min(1, sums[s] * scale)));
    }
  });
  pen.putImageData(image, 0, 0);
  return canvas;
}
