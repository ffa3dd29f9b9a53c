// The braid: source and target words, and between them ribbons as wide as their weights.

const UNIT = { across: 26, down: 18 }; // pixels of a weight of 1
const HUES = 5; // a ribbon has the hue of its source word, as in static pictures
const LINE = 26; // the least height of a word in a column
const TALL = 1400; // a higher braid scrolls, and only its visible part is drawn

// On a line if the words fit, otherwise in two columns.
function braid(panel) {
  const few = Math.max(panel.units.source.length, panel.units.target.length) <= 60;
  const made = few && !lastLayout(panel, "down") ? across(panel) : null;
  return made ?? down(panel);
}

// The measures of the last complete drawing in this layout, if it had the same source: while another translation is
// streamed, words keep their places.
function lastLayout(panel, layout) {
  const { last, trace } = panel;
  return trace.growing && last?.layout === layout && last.key === layoutKey(panel) ? last : null;
}

function saveLayout(panel, layout, measures) {
  if (!panel.trace.growing) panel.last = { layout, key: layoutKey(panel), ...measures };
}

const layoutKey = ({ unit, box, trace }) => [unit, box.clientWidth, ...trace.source.tokens].join("\n");

// Ribbons at a word are side by side, in the order of their other ends.
function ribbonEnds(panel, places, unit) {
  const ends = { source: [], target: [] };
  for (const side of ["source", "target"]) {
    const other = side === "source" ? "target" : "source";
    const linksOf = places[side].map(() => []);
    panel.kept.links.forEach((link, i) => linksOf[link[side[0]]].push(i));
    linksOf.forEach((links, word) => {
      const place = (i) => places[other][panel.kept.links[i][other[0]]];
      links.sort((a, b) => place(a) - place(b));
      let at = places[side][word] - (unit * links.reduce((sum, i) => sum + panel.kept.links[i].w, 0)) / 2;
      for (const i of links) {
        const wide = unit * panel.kept.links[i].w;
        ends[side][i] = at + wide / 2;
        at += wide;
      }
    });
  }
  return ends;
}

function ribbon(link, unit, path) {
  const wide = Math.max(1.2, unit * link.w);
  const group = makeSvg("g", { class: `v-ribbon v-c${link.s % HUES}` });
  group.style.setProperty("--w", Math.min(1, link.w).toFixed(3));
  if (wide >= 4) group.append(makeSvg("path", { class: "v-edge", d: path, "stroke-width": (wide + 2.5).toFixed(1) }));
  group.append(makeSvg("path", { d: path, "stroke-width": wide.toFixed(1) }));
  return group;
}

// The bar of a word: all its attention, with what is hidden.
function bar(side, i, x, y, width, height) {
  const [left, top, wide, high] = [x, y, width, height].map((number) => number.toFixed(1));
  const hue = side === "source" ? ` v-c${i % HUES}` : "";
  return makeSvg("rect", { class: `v-bar${hue}`, x: left, y: top, width: wide, height: high, rx: 1.5 });
}

function across(panel) {
  const unit = UNIT.across;
  const covered = coverage(panel.rows, panel.units.source.length);
  const frame = make("div", { className: "v-braid v-across" });
  const svg = makeSvg("svg", { "aria-hidden": "true" });
  frame.append(label(panel, "source"), wordList(panel, "source"), svg, wordList(panel, "target"), label(panel, "target"));
  const widths = { source: [...covered].map((sum) => unit * sum), target: panel.rows.map((row) => unit * row.total) };
  const before = lastLayout(panel, "across");
  for (const side of ["source", "target"]) {
    panel.items[side].forEach((item, i) => {
      const wide = Math.max(widths[side][i], (side === "source" && before?.source[i]) || 0);
      item.style.minWidth = `${Math.ceil(wide) + 4}px`;
    });
  }
  panel.box.replaceChildren(frame);
  if (frame.offsetWidth > panel.box.clientWidth) return null;
  // Some space between the words, if there is any.
  const room = before?.width ?? Math.max(320, 1.4 * frame.offsetWidth);
  frame.style.width = `${Math.min(panel.box.clientWidth, Math.max(frame.offsetWidth, room))}px`;
  if (panel.trace.growing) reserve(panel, frame, before);
  const width = frame.clientWidth;
  saveLayout(panel, "across", { width, source: widths.source, targets: panel.units.target.length });
  const height = Math.round(Math.min(230, Math.max(110, width / 3.2)));
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  const left = frame.getBoundingClientRect().left;
  const places = {};
  for (const side of ["source", "target"]) {
    places[side] = panel.items[side].map((item) => {
      const box = item.getBoundingClientRect();
      return box.left - left + box.width / 2;
    });
  }
  for (const [side, y] of [["source", 0], ["target", height - 5]]) {
    places[side].forEach((x, i) => svg.append(bar(side, i, x - widths[side][i] / 2, y, widths[side][i], 5)));
  }
  const ends = ribbonEnds(panel, places, unit);
  const middle = (height / 2).toFixed(0);
  const order = panel.kept.links.map((link, i) => i).sort((a, b) => panel.kept.links[a].w - panel.kept.links[b].w);
  const ribbons = new Map(order.map((i) => {
    const [x, y] = [ends.source[i].toFixed(1), ends.target[i].toFixed(1)];
    return [i, ribbon(panel.kept.links[i], unit, `M${x} 0C${x} ${middle} ${y} ${middle} ${y} ${height}`)];
  }));
  svg.append(...ribbons.values());
  return { mark: (active) => highlight(panel, svg, ribbons, active) };
}

// While a translation is streamed, its words get about their final places: space is left for as many words as the last
// translation of the same source had, or as the source has.
function reserve(panel, frame, before) {
  const { source, target } = panel.units;
  const width = panel.box.clientWidth;
  if (!before) frame.style.width = `${Math.min(width, Math.max(frame.clientWidth, 90 * source.length))}px`;
  const list = frame.querySelector(".v-target");
  const free = frame.clientWidth - panel.items.target.reduce((sum, item) => sum + item.offsetWidth, 0);
  const missing = Math.max(0, 1 - target.length / Math.max(1, before?.targets ?? source.length));
  list.style.paddingInlineEnd = `${Math.max(0, Math.min(free, missing * frame.clientWidth)).toFixed(0)}px`;
}

// Two columns of the same height; places are computed without the layout of the browser.
function down(panel) {
  const unit = UNIT.down;
  const covered = coverage(panel.rows, panel.units.source.length);
  const before = lastLayout(panel, "down");
  const heights = {
    source: panel.units.source.map((_, s) => Math.max(LINE, Math.ceil(unit * covered[s]) + 6, before?.source[s] ?? 0)),
    target: panel.units.target.map(() => LINE),
  };
  const sum = (list) => list.reduce((a, b) => a + b, 0);
  const height = Math.max(sum(heights.source), sum(heights.target), before?.height ?? 0);
  saveLayout(panel, "down", { height, source: heights.source, targets: heights.target.length });
  const places = {};
  const frame = make("div", { className: "v-braid v-down" });
  // In print the columns are further apart: ribbons are stretched between them.
  const svg = makeSvg("svg", { "aria-hidden": "true", height, preserveAspectRatio: "none" });
  const scroll = make("div", { className: "v-scroll" }, wordList(panel, "source"), svg, wordList(panel, "target"));
  frame.append(make("div", { className: "v-heads" }, label(panel, "source"), label(panel, "target")), scroll);
  for (const side of ["source", "target"]) {
    // Space for as many words as the last translation had, or as the source has.
    const most = Math.max(before?.targets ?? heights.source.length, heights.target.length);
    const count = panel.trace.growing && side === "target" ? most : heights[side].length;
    const taken = sum(heights[side]) + LINE * (count - heights[side].length);
    const gap = Math.max(0, height - taken) / count;
    let at = 0;
    places[side] = panel.items[side].map((item, i) => {
      item.style.height = `${(heights[side][i] + gap).toFixed(2)}px`;
      at += heights[side][i] + gap;
      return at - (heights[side][i] + gap) / 2;
    });
  }
  frame.classList.toggle("v-tall", height > TALL);
  panel.box.replaceChildren(frame);
  const width = Math.max(60, svg.clientWidth);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const ends = ribbonEnds(panel, places, unit);
  const links = panel.kept.links.map((link, i) => i).sort((a, b) => panel.kept.links[a].w - panel.kept.links[b].w);
  const ribbons = new Map();
  const middle = (width / 2).toFixed(0);
  let [top, bottom] = [0, height];
  const near = (y) => y >= top && y <= bottom;
  let active = null;

  function fill(whole = false) {
    const { scrollTop: from, clientHeight: view } = scroll;
    [top, bottom] = whole || height <= TALL ? [0, height] : [from - view / 2, from + 1.5 * view];
    svg.replaceChildren();
    ribbons.clear();
    for (const [side, x] of [["source", 0], ["target", width - 5]]) {
      places[side].forEach((y, i) => {
        const tall = unit * (side === "source" ? covered[i] : panel.rows[i].total);
        if (near(y)) svg.append(bar(side, i, x, y - tall / 2, 5, tall));
      });
    }
    for (const i of links) {
      const [y, z] = [ends.source[i], ends.target[i]];
      const link = panel.kept.links[i];
      if (!near(y) && !near(z) && !isHighlighted(active, link)) continue;
      const path = `M0 ${y.toFixed(1)}C${middle} ${y.toFixed(1)} ${middle} ${z.toFixed(1)} ${width} ${z.toFixed(1)}`;
      ribbons.set(i, ribbon(link, unit, path));
    }
    svg.append(...ribbons.values());
    highlight(panel, svg, ribbons, active);
  }

  fill();
  if (height > TALL) scroll.addEventListener("scroll", () => onNextFrame(panel, fill), { passive: true });
  return { fill, mark: (now) => { active = now; if (height > TALL) fill(); else highlight(panel, svg, ribbons, now); } };
}

function label(panel, side) {
  return make("p", { className: "v-label", ariaHidden: "true" }, panel.trace.self ? SELF[side] : NAMES[side]);
}

// Once before the next frame, however often it is called.
function onNextFrame(panel, work) {
  if (panel.waiting) return;
  panel.waiting = true;
  requestAnimationFrame(() => { panel.waiting = false; work(); });
}

const isHighlighted = (active, link) => active !== null && link[active.side[0]] === active.i;

function highlight(panel, svg, ribbons, active) {
  svg.classList.toggle("v-dimmed", active !== null);
  for (const [i, group] of ribbons) {
    const on = isHighlighted(active, panel.kept.links[i]);
    group.classList.toggle("v-on", on);
    if (on) svg.append(group); // on top
  }
}
