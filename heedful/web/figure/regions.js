// A caption and the regions of its image: the picture with a veil that is clear where the weights of a word are, the
// words of the caption, small pictures of all words, and a table. The source of such a trace is the cells of a grid over
// the picture, row by row, and `</s>`, which is no region.

const VEIL = [9, 11, 15];
const DARKEST = 0.8; // the opacity of the veil where a word has no weight
const POINTS = 12; // of a cell across and down, where weights are smoothed
const NO_REGION = "no region";
const SHOWN = 3; // regions and words that the status names

DRAW.regions = function regions(panel) {
  const { image } = panel.trace;
  const words = regionWords(panel);
  panel.words = words;
  const stage = picture(panel, "r-stage", image.name);
  const box = make("div", { className: "r-box", hidden: true });
  stage.append(box, cellList(panel));
  const list = wordList(panel, "target");
  list.classList.add("r-words");
  const written = words.filter(({ t }) => panel.units.target[t].text !== "</s>");
  const thumbs = make("div", { className: "r-thumbs", ariaHidden: "true" }, ...written.map((word) => thumb(panel, word)));
  panel.box.replaceChildren(stage, list, thumbs, table(panel, words));
  panel.box.style.setProperty("--shape", `${image.width} / ${image.height}`);
  panel.box.style.setProperty("--ratio", image.width / image.height);
  const veil = stage.querySelector("canvas");

  return {
    mark(active) {
      const word = active?.side === "target" ? words[active.i] : null;
      veil.hidden = !word;
      if (word) drawVeil(veil, word, image, panel.view.state.weights === "smooth");
      const sides = word && boxOf(panel, word);
      box.hidden = !sides;
      if (sides) place(box, sides, image);
      stage.classList.toggle("r-dimmed", Boolean(word));
      for (const one of thumbs.children) one.classList.toggle("v-active", Boolean(word) && Number(one.dataset.i) === active.i);
      if (active?.side !== "source") return;
      const weights = words.map((one) => weightAt(one, active.i));
      panel.items.target.forEach((item, t) => item.style.setProperty("--w", weights[t] / Math.max(...weights, 1e-9)));
    },
    // From a cell, up and down lead to the rows above and below.
    step(key, side, i) {
      if (side !== "source") return null;
      const [count, down] = [image.rows * image.columns, { ArrowDown: image.columns, ArrowUp: -image.columns }[key]];
      if (!down) return step(key, i, count, false);
      return i + down >= 0 && i + down < count ? i + down : i;
    },
    status: (side, i) => (side === "target" ? wordStatus(panel, words[i]) : regionStatus(panel, words, i)),
    note() {
      const grid = `${image.rows} × ${image.columns} regions`;
      const smooth = panel.view.state.weights === "smooth" ? "smoothed by cubic interpolation" : "not smoothed";
      const parts = [`${panel.shown()}.`, `Weights of ${grid}, ${smooth}.`];
      parts.push("Brightness: weight as a share of the word\u2019s largest.");
      parts.push("No region: weight on no part of the picture; the more of it, the darker the picture.");
      if (words.some((word) => boxOf(panel, word))) {
        parts.push("Box: connected regions with at least half of the largest weight.");
      }
      return parts;
    },
  };
};

// A model without attention: the picture, and the words.
DRAW.picture = function wholePicture(panel) {
  const { image } = panel.trace;
  const list = wordList(panel, "target");
  list.classList.add("r-words");
  panel.items.source = [];
  panel.box.replaceChildren(picture(panel, "r-stage"), list);
  panel.box.style.setProperty("--shape", `${image.width} / ${image.height}`);
  panel.box.style.setProperty("--ratio", image.width / image.height);
  panel.box.querySelector("canvas").hidden = true;
  return { mark: () => {} };
};

// Target words with their weights over the regions, and on none.
function regionWords(panel) {
  const { image } = panel.trace;
  const count = image.rows * image.columns;
  return panel.rows.map((row, t) => {
    const weights = new Float64Array(count);
    let none = 0;
    for (const { s, w } of row.links) {
      if (s < count) weights[s] = w;
      else none += w;
    }
    // With weights that are too small to be in the file one by one.
    const on = Math.max(0, row.total - none);
    return { t, weights, none, on, largest: Math.max(...weights), share: row.total > 0 ? on / row.total : 0 };
  });
}

const weightAt = (word, region) => (region < word.weights.length ? word.weights[region] : word.none);

// The picture, and a canvas over it for the veil.
function picture(panel, className, alt = "") {
  const { image } = panel.trace;
  const source = image.picture ?? panel.view.pictures.get(image.key);
  const shown = source
    ? make("img", { src: source, alt, draggable: false })
    : make("div", { className: "r-missing" });
  return make("div", { className }, shown, make("canvas", { ariaHidden: "true" }));
}

// The cells of the grid over the picture, as a list with one tab stop.
function cellList(panel) {
  const { image } = panel.trace;
  const list = make("ul", { className: "r-cells", role: "listbox" });
  list.setAttribute("aria-label", `regions of ${image.name}, ${image.rows} rows of ${image.columns}`);
  list.style.gridTemplate = `repeat(${image.rows}, minmax(0, 1fr)) / repeat(${image.columns}, minmax(0, 1fr))`;
  panel.items.source = panel.units.source.slice(0, image.rows * image.columns).map((unit, i) => {
    const item = make("li", { role: "option", tabIndex: i === panel.at.source ? 0 : -1 });
    item.setAttribute("aria-label", unit.text);
    item.setAttribute("aria-selected", "false");
    item.dataset.side = "source";
    item.dataset.i = i;
    return item;
  });
  list.append(...panel.items.source);
  // "no region" has no cell; so it is marked nowhere.
  panel.items.source.push(make("li"));
  return list;
}

function thumb(panel, word) {
  const { image } = panel.trace;
  const small = picture(panel, "r-small");
  drawVeil(small.querySelector("canvas"), word, image, panel.view.state.weights === "smooth");
  const numbers = [`largest ${largestText(word)}`, `${NO_REGION} ${percent(word.none)}`];
  const caption = make("figcaption", {}, make("bdi", {}, panel.units.target[word.t].text));
  caption.append(...numbers.map((text) => make("span", {}, text)));
  const one = make("figure", { className: "r-thumb" }, small, caption);
  one.dataset.side = "target";
  one.dataset.i = word.t;
  return one;
}

// The largest weight on a region; one that is too small to be in the file is not 0.
const largestText = (word) => percent(word.largest || Math.min(word.on, 0.001));

// The veil over a picture: opaque where a word has no weight, clear at its largest.
function drawVeil(canvas, word, image, smooth) {
  const points = smooth ? POINTS : 1;
  const [high, wide] = [image.rows * points, image.columns * points];
  const values = smooth ? smoothed(word.weights, image, high, wide) : word.weights;
  [canvas.height, canvas.width] = [high, wide];
  canvas.classList.toggle("r-smooth", smooth);
  const pen = canvas.getContext("2d");
  const pixels = pen.createImageData(wide, high);
  values.forEach((value, i) => {
    const bright = word.largest > 0 ? Math.min(1, value / word.largest) * word.share : 0;
    pixels.data.set([...VEIL, Math.round(255 * DARKEST * (1 - bright))], 4 * i);
  });
  pen.putImageData(pixels, 0, 0);
}

// Weights at the points of a finer grid, by cubic convolution; at the centre of a cell it is the weight of the cell.
function smoothed(weights, image, high, wide) {
  const [down, across] = [cubic(image.rows, high), cubic(image.columns, wide)];
  const values = new Float64Array(high * wide);
  const lines = new Float64Array(image.rows * wide);
  for (let row = 0; row < image.rows; row++) {
    across.forEach((taps, x) => {
      for (const [column, part] of taps) lines[row * wide + x] += part * weights[row * image.columns + column];
    });
  }
  down.forEach((taps, y) => {
    for (let x = 0; x < wide; x++) {
      let sum = 0;
      for (const [row, part] of taps) sum += part * lines[row * wide + x];
      values[y * wide + x] = Math.max(0, sum);
    }
  });
  return values;
}

// For each of some points, the cells that it is interpolated from, with their parts.
function cubic(cells, points) {
  return Array.from({ length: points }, (_, point) => {
    const at = ((point + 0.5) * cells) / points - 0.5;
    const first = Math.floor(at);
    return [-1, 0, 1, 2].map((step) => {
      const d = Math.abs(at - first - step);
      const part = d < 1 ? 1.5 * d ** 3 - 2.5 * d ** 2 + 1 : -0.5 * d ** 3 + 2.5 * d ** 2 - 4 * d + 2;
      return [Math.min(cells - 1, Math.max(0, first + step)), part];
    });
  });
}

// The box of a word in pixels, by the read-out; null if it has none.
function boxOf(panel, word) {
  return panel.choice === "read" && panel.unit === "words" ? panel.trace.boxes?.[word.t] ?? null : null;
}

function place(element, [x, y, width, height], image) {
  const sides = { left: x / image.width, top: y / image.height, width: width / image.width, height: height / image.height };
  for (const [side, share] of Object.entries(sides)) element.style[side] = `${100 * share}%`;
}

// "bicycle: row 5, column 5: 9 %; row 4, column 5: 8 %; other regions: 81 % · no region: 2 % · confidence: 90 %".
function wordStatus(panel, word) {
  const order = [...word.weights.keys()].sort((a, b) => word.weights[b] - word.weights[a]);
  const named = order.slice(0, SHOWN).filter((i) => word.weights[i] >= VISIBLE);
  const parts = named.map((i) => `${panel.units.source[i].text}: ${percent(word.weights[i])}`);
  const more = word.on - named.reduce((sum, i) => sum + word.weights[i], 0);
  if (more >= 0.005) parts.push(`${named.length ? "other regions" : "all regions together"}: ${percent(more)}`);
  const rest = [`${NO_REGION}: ${percent(word.none)}`, `confidence: ${percent(confidence(panel, word.t))}`];
  const text = [...(parts.length ? [parts.join("; ")] : []), ...rest].join(" \u00b7 ");
  return [make("bdi", {}, panel.units.target[word.t].text), ` \u2013 ${text}`];
}

// "row 5, column 5: bicycle 9 %, blue 7 %".
function regionStatus(panel, words, region) {
  const order = words.filter((word) => weightAt(word, region) >= VISIBLE && panel.units.target[word.t].text !== "</s>");
  order.sort((a, b) => weightAt(b, region) - weightAt(a, region));
  const parts = [make("bdi", {}, panel.units.source[region].text), ": "];
  order.slice(0, 3 * SHOWN).forEach((word, n) => {
    const weight = percent(weightAt(word, region));
    parts.push(n ? ", " : "", make("bdi", {}, panel.units.target[word.t].text), `\u00a0${weight}`);
  });
  if (!order.length) parts.push(`no word has ${percent(VISIBLE)} of its weight here`);
  return parts;
}

// All words as a table: what the pictures show, in numbers.
function table(panel, words) {
  const { image } = panel.trace;
  const heads = ["word", "largest weight", "row, column", NO_REGION, "confidence", "box: x, y, width, height"];
  const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)));
  const rows = words.map((word) => {
    const best = word.weights.indexOf(word.largest);
    const at = word.largest > 0 ? `${Math.floor(best / image.columns) + 1}, ${(best % image.columns) + 1}` : "";
    const box = boxOf(panel, word);
    const cells = [largestText(word), at, percent(word.none), percent(confidence(panel, word.t))];
    cells.push(box ? box.map(Math.round).join(", ") : "");
    const name = make("th", { scope: "row" }, make("bdi", {}, panel.units.target[word.t].text));
    return make("tr", {}, name, ...cells.map((text) => make("td", {}, text)));
  });
  const all = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
  const summary = make("summary", {}, "Table of the weights");
  const details = make("details", { className: "r-table", open: Boolean(panel.tableOpen) }, summary);
  details.append(make("div", { className: "r-scroll" }, all));
  details.addEventListener("toggle", () => { panel.tableOpen = details.open; });
  return details;
}
