// All heads at a glance: a small map of each, a row for each layer or ranked by a measure. One head is chosen, and a
// second one beside it.

const MEASURES = {
  sharpness: ["Sharpness", "mean over words of the largest weight, apart from special tokens, the first token and punctuation"],
  entropy: ["Entropy", "mean over words, in nats: small if a word attends to few others"],
  distance: ["Distance", "mean distance between a word and what it attends to"],
  sink: ["Weight on sinks", "share of the weight on sinks"],
  received: ["Received", "largest share of the weight that a single word receives, apart from sinks"],
  selected: ["Selected word", "largest weight between the selected word and another one, apart from sinks"],
};
const SLICE = 6; // milliseconds of drawing before the page may do something else
const TILE = 512; // height of a canvas, in pixels
const CELL = { least: 15, touched: 22, most: 84, ranked: 58, numbered: 46 }; // pixels: sides of small maps; of one with numbers

// The value of a measure as it is written.
function measured(group, measure, value) {
  if (value < 0) return "–"; // not in this file
  if (measure === "entropy") return `${value.toFixed(2)}`;
  if (measure === "distance") return group.self ? value.toFixed(value < 10 ? 1 : 0) : percent(value);
  return percent(value);
}

// The colours of a variable of the style sheet.
function shadeOf(element, name) {
  const shade = getComputedStyle(element).getPropertyValue(name).trim();
  return [1, 3, 5].map((i) => parseInt(shade.slice(i, i + 2), 16));
}

// Draw the levels of blocks at a place, a pixel for each; a level is the square root of a weight. Relative to the largest
// level, so that maps of long texts are seen, too.
function paintLevels(pen, [x, y], levels, [rows, columns], [red, green, blue], turned) {
  const image = pen.createImageData(columns, rows);
  let most = 1;
  for (const level of levels) most = Math.max(most, level);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      const level = levels[i * columns + (turned ? columns - 1 - j : j)] / most;
      image.data.set([red, green, blue, Math.round(255 * level ** 1.4)], 4 * (i * columns + j));
    }
  }
  pen.putImageData(image, x, y);
}

class HeadGrid {
  // `choose(pick, beside, quiet)` is called with the chosen head; `beside`: as the second one; `quiet`: by arrow keys.
  constructor(state, choose, change) {
    Object.assign(this, { state, choose, change });
    this.cells = [];
    this.at = 0;
    this.list = make("div", { className: "x-cells", role: "listbox" });
    this.scroll = make("div", { className: "x-cells-scroll" }, this.list);
    this.measure = make("select", { "aria-label": "measure of heads" });
    for (const [name, [label]] of Object.entries(MEASURES)) this.measure.append(new Option(label, name));
    this.measure.addEventListener("change", () => this.change({ measure: this.measure.value }));
    this.legend = make("p", { className: "x-legend" });
    this.top = make("div", { className: "x-heads-top" });
    this.element = make("section", { className: "x-heads", "aria-label": "All heads" }, this.top, this.scroll, this.legend);
    this.listen();
    new ResizeObserver(() => this.size()).observe(this.scroll);
  }

  show(group, order) {
    if (this.top.lastChild !== order) this.top.replaceChildren(make("h2", {}, "Heads"), this.measure, order);
    if (group !== this.group) this.build(group);
    this.arrange();
  }

  build(group) {
    this.group = group;
    this.cells = [];
    this.at = 0;
    for (let layer = 1; layer <= group.L; layer++) {
      for (let head = 1; head <= group.H; head++) {
        const cell = make("div", { className: "x-cell", role: "option", tabIndex: this.cells.length ? -1 : 0 });
        cell.dataset.i = this.cells.length;
        cell.setAttribute("aria-selected", "false");
        cell.classList.toggle("x-held", group.heldHeads.has(`${layer}.${head}`));
        const name = make("span", { className: "x-name" }, `${layer}.${head}`);
        cell.append(make("span", { className: "x-map" }), make("p", { ariaHidden: "true" }, name, make("span", { className: "x-value" })));
        cell.append(make("bdi", { className: "x-word", ariaHidden: "true" }));
        this.cells.push(cell);
      }
    }
    this.list.classList.toggle("x-partly", !group.complete);
    this.labels = [];
    for (let head = 1; head <= group.H; head++) this.labels.push(this.label(head, `1 / ${head + 1}`));
    for (let layer = 1; layer <= group.L; layer++) this.labels.push(this.label(layer, `${layer + 1} / 1`));
    this.labels.push(make("span", { className: "x-corner", ariaHidden: "true" }, "layer"));
    this.list.replaceChildren(...this.labels, ...this.cells);
    [this.tiles, this.places] = [[], null];
    this.arranged = null;
    this.paint();
  }

  label(number, area) {
    const label = make("span", { className: "x-number", ariaHidden: "true" }, String(number));
    label.style.gridArea = area;
    return label;
  }

  // All small maps are painted into one picture, a pixel for each block, in slices of time, so that the page answers
  // while there are many; from there they are drawn behind their cells. A canvas for each cell would be a burden in every
  // frame.
  paint() {
    const { group } = this;
    const [rows, columns] = group.blocks;
    const shade = shadeOf(this.element, "--v-shade");
    const atlas = make("canvas", { width: group.H * columns, height: group.L * rows });
    const pen = atlas.getContext("2d", { willReadFrequently: true });
    [this.atlas, this.painted] = [atlas, 0];
    const slice = () => {
      const [from, end] = [this.painted, performance.now() + SLICE];
      while (atlas === this.atlas && this.painted < this.cells.length && performance.now() < end) {
        const [l, h] = [Math.floor(this.painted / group.H), this.painted % group.H];
        paintLevels(pen, [h * columns, l * rows], group.levels(l + 1)(h + 1), group.blocks, shade, group.source.rtl);
        this.painted++;
      }
      if (atlas !== this.atlas) return;
      if (this.places) for (let i = from; i < this.painted; i++) this.drawMap(i);
      if (this.painted < this.cells.length) requestAnimationFrame(slice);
      else this.element.dataset.drawn = "true";
    };
    delete this.element.dataset.drawn;
    slice();
  }

  // Canvases behind the cells, one below the other, and what is painted of the maps.
  drawMaps() {
    const { list, cells } = this;
    this.places = cells.map((cell) => [cell.offsetLeft, cell.offsetTop]);
    this.scale = Math.min(2, devicePixelRatio || 1);
    const [width, height] = [list.offsetWidth, list.offsetHeight];
    const count = Math.max(1, Math.ceil(height / TILE));
    for (const tile of this.tiles.splice(count)) tile.remove();
    while (this.tiles.length < count) {
      const tile = make("canvas", { className: "x-tile", ariaHidden: "true" });
      tile.style.top = `${this.tiles.length * TILE}px`;
      this.tiles.push(tile);
      list.append(tile);
    }
    for (const tile of this.tiles) {
      [tile.width, tile.height] = [width * this.scale, (TILE + this.side) * this.scale];
      [tile.style.width, tile.style.height] = [`${width}px`, `${TILE + this.side}px`];
    }
    for (let i = 0; i < this.painted; i++) this.drawMap(i);
  }

  drawMap(i) {
    const { group, atlas, scale, side } = this;
    const [rows, columns] = group.blocks;
    const [x, y] = this.places[i];
    const pen = this.tiles[Math.floor(y / TILE)]?.getContext("2d");
    if (!pen) return;
    const size = Math.round(side * scale);
    const at = [Math.round(x * scale), Math.round((y % TILE) * scale)];
    pen.clearRect(...at, size, size);
    pen.imageSmoothingEnabled = size < Math.max(rows, columns);
    pen.imageSmoothingQuality = "medium";
    pen.drawImage(atlas, (i % group.H) * columns, Math.floor(i / group.H) * rows, columns, rows, ...at, size, size);
  }

  // The order of heads, and the value of the measure in every cell.
  arrange() {
    const { group, state: { measure, order } } = this;
    this.measure.value = measure;
    const shown = [group.key, measure, order, group.measures[measure]];
    if (this.arranged && shown.every((one, i) => one === this.arranged[i])) return;
    this.arranged = shown;
    const values = group.measures[measure] ?? new Array(group.L * group.H).fill(-1);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const ranked = order === "rank";
    this.order = (ranked && group.rank[measure]) || values.map((_, i) => i);
    this.list.classList.toggle("x-ranked", ranked);
    this.order.forEach((i, place) => {
      const cell = this.cells[i];
      const value = measured(group, measure, values[i]);
      cell.style.setProperty("--m", high > low ? ((values[i] - low) / (high - low)).toFixed(3) : 0);
      const other = (measure === "selected" && group.partners?.[i]) || ""; // the word that the weight is on, or of
      cell.querySelector(".x-value").textContent = value;
      cell.lastChild.textContent = other;
      const [layer, head] = [Math.floor(i / group.H) + 1, (i % group.H) + 1];
      cell.style.gridArea = ranked ? "auto" : `${layer + 1} / ${head + 1}`;
      cell.style.order = ranked ? place : 0;
      cell.setAttribute("aria-label", `layer ${layer}, head ${head}, ${MEASURES[measure][0].toLowerCase()} ${value} ${other}`.trim());
      cell.title = `Layer ${layer}, head ${head}\n${MEASURES[measure][0]} ${value} ${other}`;
    });
    const held = group.complete ? "" : " Outlined: heads whose single weights this file has; of the others it has means of blocks.";
    const select = measure === "selected" && !group.measures.selected ? " Select a word." : "";
    const sorted = { entropy: "the smallest first" }[measure] ?? "the largest first";
    const hint = " A click shows a head, one with Shift a second head beside it.";
    this.legend.textContent = `${MEASURES[measure][0]}: ${MEASURES[measure][1]}${ranked ? `; ${sorted}` : ""}.${select}${held}${hint}`;
    this.list.setAttribute("aria-label", `${group.L} layers of ${group.H} heads`);
    this.size();
  }

  size() {
    if (!this.group) return;
    const room = this.scroll.clientWidth;
    const ranked = this.state.order === "rank";
    const fitting = Math.floor((room - 24) / this.group.H) - 2;
    const least = matchMedia("(pointer: coarse)").matches ? CELL.touched : CELL.least;
    const side = ranked ? CELL.ranked : Math.min(CELL.most, Math.max(least, fitting));
    this.columns = ranked ? Math.max(1, Math.floor((room + 6) / (CELL.ranked + 12))) : this.group.H;
    this.list.style.setProperty("--side", `${side}px`);
    this.list.style.setProperty("--columns", this.columns);
    this.list.classList.toggle("x-numbered", ranked || side >= CELL.numbered);
    this.side = side;
    this.drawMaps();
  }

  // Outline the picks that are shown.
  mark(picks) {
    if (!this.group) return;
    for (const cell of this.list.querySelectorAll("[data-shown]")) {
      delete cell.dataset.shown;
      cell.setAttribute("aria-selected", "false");
    }
    picks.forEach((pick, n) => {
      const heads = this.group.headsOf(pick);
      const whole = pick.split(".");
      for (const [l, h] of heads) {
        const cell = this.cells[(l - 1) * this.group.H + h - 1];
        if (!cell) continue;
        const single = heads.length === 1;
        if (single || whole.includes("*")) cell.dataset.shown = single ? "AB"[n] ?? "B" : "mean";
        if (single) cell.setAttribute("aria-selected", "true");
        if (single && n === 0) this.focusable(Number(cell.dataset.i));
      }
    });
  }

  focusable(i) {
    if (this.cells[this.at]) this.cells[this.at].tabIndex = -1;
    this.at = i;
    this.cells[i].tabIndex = 0;
  }

  pickOf(i) {
    return `${Math.floor(i / this.group.H) + 1}.${(i % this.group.H) + 1}`;
  }

  listen() {
    const cellOf = (event) => event.target.closest?.(".x-cell");
    this.list.addEventListener("click", (event) => {
      const cell = cellOf(event);
      if (!cell) return;
      cell.focus();
      this.choose(this.pickOf(Number(cell.dataset.i)), event.shiftKey, false);
    });
    this.list.addEventListener("keydown", (event) => {
      const cell = cellOf(event);
      if (!cell || event.altKey || event.ctrlKey || event.metaKey) return;
      const i = Number(cell.dataset.i);
      if (event.key === "Enter" || event.key === " ") this.choose(this.pickOf(i), event.shiftKey, false);
      else {
        const next = this.neighbour(event.key, i);
        if (next === undefined) return;
        this.focusable(next);
        this.cells[next].focus();
        if (!event.shiftKey) this.choose(this.pickOf(next), false, true);
      }
      event.preventDefault();
    });
  }

  // The head that a key moves to, in the order in which heads are shown.
  neighbour(key, i) {
    const place = this.order.indexOf(i);
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns };
    if (key === "Home") return this.order[0];
    if (key === "End") return this.order.at(-1);
    return key in moves ? this.order[place + moves[key]] : undefined;
  }
}
