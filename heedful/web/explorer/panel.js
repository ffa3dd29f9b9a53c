// A panel: one head, or a mean of heads, of one run: as running text, heat map, braid or map of blocks; and the status
// line about what is selected or pointed at.

const DRAWN = 400; // units of a side of the largest heat map and braid
const VERBS = { to: ["attends to", "attend to"], by: ["is attended to by", "are attended to by"] };

// A heat map or a braid, drawn by the code of figures. Units of the source may be fewer than those of the text: sinks
// that are set apart.
class HeadFigure extends Panel {
  constructor(owner) {
    super({ state: { view: "heatmap", unit: "words", keep: 0.5 }, mark() {} }, { name: "", alarms: [] }, "read");
    this.owner = owner;
    this.view.mark = () => this.showMarks();
  }

  setTrace(trace) {
    Object.assign(this, { trace, read: trace.rows ?? null, heads: null, choice: "read" });
  }

  writeNote() {}

  show(group, rows, unit, view, share, sinks) {
    const units = { source: group.source.units(unit), target: group.target.units(unit) };
    const words = (side, kept) => kept.map((i) => [units[side].name(i), units[side].first[i], units[side].last[i]]);
    const all = (side) => Array.from({ length: units[side].count }, (_, i) => i);
    this.numbers = { source: all("source").filter((i) => !sinks.units.has(i)), target: all("target") };
    const side = (name) => ({ tokens: [], words: words(name, this.numbers[name]), turned: group[name].rtl });
    const logs = new Array(group.T).fill(0);
    const { generated } = group; // of self-attention: cross-attention has none
    const trace = { name: "", self: true, generated, source: side("source"), target: side("target"), logs, alarms: [], gold: [], layers: [], each: [] };
    this.setTrace({ ...trace, rows: withoutKeys(rows, sinks.tokens, units.target) });
    Object.assign(this.view.state, { view, keep: share });
    Object.assign(this.view, { pinned: null, pointed: null, focused: null });
    this.at = { source: 0, target: 0 };
    this.drawing = null;
    this.draw();
  }

  showMarks() {
    if (!this.drawing) return;
    const now = this.view.pinned ?? this.view.pointed ?? this.view.focused ?? null;
    this.mark(now, this.view.pinned);
    const pointed = this.view.pointed ?? this.view.focused;
    this.owner.point(pointed ? pointed.side : null, pointed ? this.numbers[pointed.side][pointed.i] : null);
  }

  pin(side, i) {
    if (this.units[side][i]) this.owner.pickInFigure(side, this.numbers[side][i]);
  }
}

// Rows without the weights of some keys, scaled so that the mean of the rows of each unit sums to 1. A single row of a
// unit may sum to more.
function withoutKeys(rows, tokens, units) {
  if (!tokens.size) return rows;
  const totals = totalsWithout(rows, tokens);
  const others = meanByUnit(totals, units);
  const [starts, rest, columns, weights] = [new Uint32Array(rows.T + 1), new Float32Array(rows.T), [], []];
  for (let t = 0; t < rows.T; t++) {
    const total = units.owner[t] >= 0 ? others[units.owner[t]] : totals[t];
    const scale = total > LEAST_SCALED ? 1 / total : 0;
    for (let i = rows.starts[t]; i < rows.starts[t + 1]; i++) {
      if (tokens.has(rows.columns[i])) continue;
      columns.push(rows.columns[i]);
      weights.push(rows.weights[i] * scale);
    }
    rest[t] = rows.rest[t] * scale;
    starts[t + 1] = columns.length;
  }
  return { T: rows.T, starts, rest, columns: Uint16Array.from(columns), weights: Float32Array.from(weights) };
}

class HeadPanel {
  constructor(app, run) {
    Object.assign(this, { app, run, pointed: null, texts: {} });
    this.head = make("div", { className: "v-head" });
    this.facts = make("p", { className: "x-measures" });
    this.box = make("div", { className: "x-box" });
    this.status = make("p", { className: "v-status", role: "status" });
    this.under = make("p", { className: "x-pointed", ariaHidden: "true" });
    this.note = make("p", { className: "v-note" });
    this.element = make("section", { className: "v-panel x-panel" });
    this.element.append(this.head, this.facts, this.box, this.status, this.under, this.note);
    this.element.addEventListener("pointerdown", () => app.activate(this));
    this.element.addEventListener("focusin", () => app.activate(this));
  }

  get group() {
    return this.app.group(this.run);
  }

  // Draw a pick; `number` is that of the panel, `count` how many there are.
  show(pick, number, count) {
    const { app, group } = this;
    this.pick = pick;
    this.buildHead(number, count);
    if (!group) {
      this.box.replaceChildren(make("p", {}, "This run has no attention of this kind."));
      return;
    }
    this.writeFacts();
    const rows = group.rows(pick);
    this.blocksOnly = !rows || Boolean(rows.summary);
    const view = app.viewOf(group);
    this.drawn = view === "text" ? "text" : this.blocksOnly || !app.small(group) ? "blocks" : view;
    this.box.dataset.view = this.drawn;
    if (this.drawn === "text") this.showTexts();
    else if (this.drawn === "blocks") this.showBlocks();
    else this.showFigure(rows, view);
    this.mark();
  }

  buildHead(number, count) {
    const { app, group } = this;
    const name = app.data.runs[this.run].name;
    if (this.headOf !== group) {
      this.headOf = group;
      this.select = group ? pickList(group) : make("select");
      this.select.addEventListener("change", () => app.choosePick(this, this.select.value));
    }
    this.select.value = this.pick;
    if (this.select.value !== this.pick) this.select.add(new Option(group?.describe(this.pick) ?? "", this.pick, true, true));
    const extra = app.state.picks.filter(([run]) => run === this.run).length > 1;
    const key = `${group?.key} ${number} ${count} ${extra}`;
    if (this.headKey !== key) {
      this.headKey = key; // only then, so that the list of heads keeps the focus
      this.printed = make("span", { className: "x-printed", ariaHidden: "true" });
      this.button = make("button", { type: "button", className: "x-button" }, extra ? "Close" : "Compare");
      this.button.addEventListener("click", () => (extra ? app.closePanel(this) : app.addPanel(this)));
      const badge = make("span", { className: `x-badge x-badge-${number}`, ariaHidden: "true" }, "ABCDEFGH"[number] ?? "");
      const parts = count > 1 ? [badge] : [];
      if (app.data.runs.length > 1) parts.push(make("h2", { dir: "auto" }, app.labelOf(this.run)));
      this.head.replaceChildren(make("div", { className: "x-title" }, ...parts, this.select, this.printed), this.button);
    }
    const shown = group?.describe(this.pick) ?? "";
    this.printed.textContent = shown;
    this.button.setAttribute("aria-label", extra ? `close ${shown}` : `show another head beside ${shown}`);
    this.element.setAttribute("aria-label", [name, group?.describe(this.pick)].filter(Boolean).join(": "));
  }

  // The measures of the shown head.
  writeFacts() {
    const { group, pick } = this;
    const heads = group.headsOf(pick);
    const parts = [];
    if (heads.length === 1) {
      const [[l, h]] = heads;
      const at = (l - 1) * group.H + h - 1;
      for (const [name, [label]] of Object.entries(MEASURES)) {
        if (name === "selected" || (name === "sink" && !group.sinks.length)) continue;
        const unit = name === "entropy" ? " nats" : name === "distance" && group.self ? " tokens" : "";
        parts.push(make("span", {}, `${label.toLowerCase()} `, make("b", {}, `${measured(group, name, group.measures[name][at])}${unit}`)));
      }
    } else if (pick === "rollout") parts.push("the product of all layers, each half mean of its heads, half identity");
    else parts.push(`mean of ${heads.length.toLocaleString("en")} heads`);
    this.facts.replaceChildren(...parts);
  }

  sides() {
    return this.group.self ? ["target"] : ["target", "source"];
  }

  // The text, or both texts of cross-attention. They are kept while only the head changes.
  showTexts() {
    const { app, group } = this;
    const key = `${group.key} ${app.state.unit}`;
    if (this.textKey !== key) {
      for (const view of Object.values(this.texts)) view.close();
      this.texts = {};
      this.textKey = key;
      for (const side of this.sides()) {
        const name = group.self ? "text" : { target: "target text", source: "source text" }[side];
        const sinks = group.self || side === "source" ? app.sinkUnits(group) : new Set();
        const generated = side === "target" || group.self ? group.generated : null;
        this.texts[side] = new TextView(group[side], app.state.unit, {
          name, sinks, generated,
          point: (i) => this.point(i === null ? null : side, i),
          pick: (i, how, from) => this.pickUnit(side, i, how, from),
        });
      }
    }
    const labelled = Object.entries(this.texts).map(([side, view]) => {
      const label = make("p", { className: "v-label", ariaHidden: "true" }, { target: "target: attends to the source", source: "source: is attended to" }[side]);
      return group.self ? [view.element] : [label, view.element];
    });
    const nodes = labelled.flat();
    if (this.box.firstChild !== nodes[0] || this.box.childNodes.length !== nodes.length) this.box.replaceChildren(...nodes);
  }

  showFigure(rows, view) {
    const { app, group } = this;
    this.figure ??= new HeadFigure(this);
    this.box.replaceChildren(this.figure.box);
    const apart = app.apart(group);
    const sinks = { units: apart ? app.sinkUnits(group) : new Set(), tokens: new Set(apart ? group.sinkTokens : []) };
    this.figure.show(group, rows, app.state.unit, view, app.shareOf(group), sinks);
  }

  // The map of blocks: a block of queries in every row.
  showBlocks() {
    const { group, pick } = this;
    const means = group.blockMeans(pick);
    const [b, c] = group.blocks;
    const canvas = make("canvas", { className: "x-blocks" });
    const levels = Float32Array.from(means, (mean) => Math.sqrt(mean));
    [canvas.width, canvas.height] = [c, b];
    paintLevels(canvas.getContext("2d"), [0, 0], levels.map((level) => 255 * level), group.blocks, shadeOf(this.element, "--v-shade"), group.source.rtl);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${group.describe(pick)}: mean weights of ${b} by ${c} blocks`);
    const cellOf = (event) => {
      const box = canvas.getBoundingClientRect();
      const [x, y] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
      const j = Math.min(c - 1, Math.max(0, Math.floor((group.source.rtl ? 1 - x : x) * c)));
      return [Math.min(b - 1, Math.max(0, Math.floor(y * b))), j];
    };
    const range = (edges, i) => {
      const [first, last] = [edges[i] + 1, edges[i + 1]];
      return first === last ? `token ${first.toLocaleString("en")}` : `tokens ${first.toLocaleString("en")} to ${last.toLocaleString("en")}`;
    };
    canvas.addEventListener("pointermove", (event) => {
      const [i, j] = cellOf(event);
      const rows = range(group.edges.target, i);
      this.under.textContent = `${rows} ${rows.startsWith("tokens") ? "attend" : "attends"} to ${range(group.edges.source, j)} with ${percent(means[i * c + j])}`;
    });
    canvas.addEventListener("pointerleave", () => { this.under.textContent = ""; });
    canvas.addEventListener("click", (event) => {
      const [i] = cellOf(event);
      this.app.change({ view: "text" });
      this.texts.target?.reveal(group.target.units(this.app.state.unit).owner[group.edges.target[i]] ?? 0);
    });
    const down = make("span", { className: "v-label x-down" }, `${group.T.toLocaleString("en")} tokens attend`);
    const across = make("span", { className: "v-label x-across" }, `to ${group.S.toLocaleString("en")} tokens`);
    this.box.replaceChildren(make("div", { className: "x-blocks-frame" }, across, down, canvas));
  }

  point(side, i) {
    const now = side === null || i === null || i === undefined ? null : { side, i };
    if (now?.side === this.pointed?.side && now?.i === this.pointed?.i) return;
    this.pointed = now;
    this.mark();
  }

  pickUnit(side, i, how, from) {
    this.app.pickUnit(this, side, i, how, from);
  }

  // A click in a figure of self-attention also says the direction.
  pickInFigure(side, i) {
    this.app.pickUnit(this, side, i, "one", undefined, side === "source" ? "by" : "to");
  }

  // What is told: of the selection, or else of the unit that is pointed at, or else of all.
  relation() {
    const { app, group } = this;
    const apart = app.apart(group);
    const selection = app.selection(this.run, group);
    if (selection) return relate(group, this.pick, app.state.unit, selection.side, selection.tokens, apart);
    if (this.pointed) {
      const direction = this.drawn === "text" && group.self ? app.state.direction : null;
      const side = direction === "by" ? "source" : direction === "to" ? "target" : this.pointed.side;
      const units = group[side].units(app.state.unit);
      return relate(group, this.pick, app.state.unit, side, tokensOf(units, this.pointed.i), apart);
    }
    return receivedShares(group, this.pick, app.state.unit, apart);
  }

  mark() {
    const { app, group } = this;
    if (!group) return;
    const selection = app.selection(this.run, group);
    const told = this.relation();
    this.element.dataset.direction = told.received ? "received" : told.side === "source" ? "to" : "by";
    if (this.drawn === "text") this.shade(told, selection);
    else if (this.drawn !== "blocks") this.markFigure(selection);
    if (this.drawn !== "blocks") this.under.replaceChildren(...this.pointedText(told, selection));
    this.writeStatus(told, selection);
    this.writeNote(told);
  }

  markFigure(selection) {
    const side = selection?.side ?? "target";
    const selected = selection ? ownersOf(this.group[side].units(this.app.state.unit), selection.tokens) : [];
    const { view } = this.figure;
    const i = selected.length === 1 ? this.figure.numbers[side].indexOf(selected[0]) : -1;
    const now = i < 0 ? null : { panel: this.figure, side, i };
    if (now?.side === view.pinned?.side && now?.i === view.pinned?.i) return;
    view.pinned = now;
    this.figure.mark(now ?? view.pointed ?? view.focused ?? null, now);
  }

  shade(told, selection) {
    const { app, group } = this;
    const apart = app.apart(group);
    for (const [side, view] of Object.entries(this.texts)) {
      const lit = group.self || told.side === side;
      const own = group.self || told.side !== side;
      const skip = app.sinkUnits(group);
      const sinksHere = apart && told.side === "source";
      const labels = lit && !told.blocks ? largestUnits(told.values, SHOWN, sinksHere ? skip : new Set()).filter(([, w]) => w >= LEAST[app.state.unit]) : [];
      view.paint({
        values: lit ? told.values : null,
        most: lit ? this.darkest(told) : 0,
        selected: own && selection ? told.selected : [],
        labels: told.received ? [] : labels,
        found: app.found(this.run, group[side]),
        apart,
      });
    }
  }

  // The value of the full shade. What all words receive is shaded less, and never by sinks.
  darkest(told) {
    const skip = told.received ? this.app.sinkUnits(this.group) : new Set();
    const [[, most] = [0, 0]] = largestUnits(told.values, 1, skip);
    return told.received ? 2.5 * most : most;
  }

  // "it attends to: animal 69 %, it 12 % · set apart: [CLS] 8 %".
  writeStatus(told, selection) {
    const { app, group } = this;
    const { unit } = app.state;
    const units = group[told.side].units(unit);
    const without = told.side === "source" && app.apart(group) ? app.sinkUnits(group) : new Set();
    const top = told.blocks ? [] : largestUnits(told.values, 6, without).filter(([, w]) => w >= 0.005);
    const list = top.flatMap(([i, w], n) => [n ? ", " : "", this.reference(told.side, units, i), `\u00a0${percent(w)}`]);
    if (this.drawn === "blocks") {
      this.status.replaceChildren("Mean weights between blocks of tokens; a click on a block goes to its text.");
      return;
    }
    if (!selection && !this.pointed) {
      const hint = matchMedia("(pointer: coarse)").matches ? "Tap a word" : "Select a word";
      this.status.replaceChildren(make("span", { className: "x-hint" }, `${hint} to see what it attends to. `), ...this.receivedText(list, told));
      return;
    }
    const side = told.side === "source" ? "target" : "source";
    const names = group[side].units(unit);
    const [one, many] = VERBS[side === "target" ? "to" : "by"];
    const parts = [];
    told.selected.slice(0, 4).forEach((i, n) => parts.push(n ? ", " : "", make("bdi", { className: "x-chosen" }, names.name(i))));
    if (told.selected.length > 4) parts.push(` and ${told.selected.length - 4} more`);
    const several = told.selected.length > 1;
    parts.push(` ${several ? many : one} `, ...(list.length ? list : [told.blocks ? "the shaded blocks" : "nothing above 1\u00a0%"]));
    if (several && side === "target") parts.push(` · rows of ${told.selected.length} ${unit} summed and divided by ${told.selected.length}`);
    else if (several) parts.push(` · columns of ${told.selected.length} ${unit} summed`);
    if (side === "target" && group.sinks.length && !told.blocks) {
      const sinks = told.sinkWeights.map(([name, w], n) => [n ? ", " : "", make("bdi", {}, name), `\u00a0${percent(w)}`]).flat();
      if (app.apart(group)) parts.push(" · set apart: ", ...sinks, "; the rest is scaled to 100\u00a0%");
    }
    if (told.rest >= 0.005) parts.push(` · not in this file ${percent(told.rest)}`);
    this.status.replaceChildren(...parts);
  }

  // The name of a unit in the status; in a long text it is a button that scrolls to it.
  reference(side, units, i) {
    const name = make("bdi", {}, units.name(i));
    const view = this.drawn === "text" ? this.texts[side] ?? this.texts.target : null;
    if (!view?.long) return name;
    const button = make("button", { type: "button", className: "x-go", title: "go there" }, name);
    button.addEventListener("click", () => view.reveal(i));
    return button;
  }

  receivedText(list, told) {
    if (told.blocks || !list.length) return ["Shaded: the share of the weight that a block receives."];
    return ["Shaded: the share of all weight that a word receives: ", ...list, "."];
  }

  // Of a unit that is pointed at while others are selected: its own number.
  pointedText(told, selection) {
    if (!selection || !this.pointed || told.blocks) return [];
    const { app, group } = this;
    const side = group.self ? told.side : this.pointed.side;
    if (side !== told.side) return [];
    const units = group[side].units(app.state.unit);
    const value = told.values[this.pointed.i];
    return [make("bdi", {}, units.name(this.pointed.i)), ` ${value > 0 ? percent(value) : "0\u00a0%"}`];
  }

  writeNote(told) {
    const { app, group } = this;
    const parts = [];
    if (told.blocks) {
      const size = Math.round(group.S / group.blocks[1]);
      parts.push(`This file has no single weights of ${group.describe(this.pick).toLowerCase()}, only means of blocks of about ${size.toLocaleString("en")} tokens.`);
    } else if (group.top) parts.push(`Of every token the ${group.top} largest weights are in this file.`);
    if (this.drawn === "text" && !told.blocks && !told.received) parts.push(`The darkest shade is ${percent(this.darkest(told))}.`);
    if (this.drawn === "blocks" && !told.blocks) parts.push("This text is too long for a heat map of single words: these are means of blocks.");
    if (this.drawn === "braid" || this.drawn === "self") {
      parts.push(`Ribbons: the largest weights of each word that hold ${percent(app.shareOf(group))} of its weight.`);
    }
    if (app.apart(group) && this.drawn !== "blocks") parts.push(`Sinks are set apart: ${app.sinkNames(group)}.`);
    this.note.textContent = parts.join(" ");
    this.note.hidden = !parts.length;
  }

  close() {
    for (const view of Object.values(this.texts)) view.close();
  }
}

// Everything that can be shown of a group, as a list.
function pickList(group) {
  const select = make("select", { className: "x-pick", "aria-label": "layer and head" });
  select.append(new Option(group.describe("mean"), "mean"));
  if (group.has("rollout")) select.append(new Option(group.describe("rollout"), "rollout"));
  for (let l = 1; l <= group.L; l++) {
    const list = make("optgroup", { label: `Layer ${l}` });
    list.append(new Option(group.describe(`${l}.*`), `${l}.*`));
    for (let h = 1; h <= group.H; h++) list.append(new Option(group.describe(`${l}.${h}`), `${l}.${h}`));
    select.append(list);
  }
  return select;
}
