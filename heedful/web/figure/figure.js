// A figure: its controls, its panels (one for each model), and the word that is pointed at, focused or pinned.
// heedful.view(element, record) draws a record of heedful.draw.html into an element and returns the figure:
// update(record) draws another, replaceTrace(i, trace) one panel of it; onmark(panel, active) is called when a word is
// marked. heedful.nameUnknown(trace) names unknown words of a translation as figures do.

const DRAW = { braid, self: braid, heatmap, heads }; // and regions, in pages with images
const MARKS = ["pinned", "pointed", "focused"];
let figures = 0;

class Panel {
  constructor(view, trace, choice) {
    this.view = view;
    this.requested = choice; // the selected maps, whether or not this trace has them
    this.at = { source: 0, target: 0 };
    this.items = { source: [], target: [] };
    this.marked = [];
    this.top = make("div", { className: "v-head" });
    this.box = make("div", { className: "v-box" });
    this.status = make("p", { className: "v-status", role: "status" });
    this.note = make("p", { className: "v-note" });
    this.alarms = make("ul", { className: "v-alarms" });
    this.element = make("section", { className: "v-panel", "aria-label": trace.name || "figure" });
    this.element.append(this.top, this.box, this.status, this.note, this.alarms);
    this.setTrace(trace);
    this.listen();
  }

  setTrace(trace) {
    this.trace = nameUnknown(trace);
    this.read = decodeMaps(trace.read, trace.target.tokens.length);
    this.heads = decodeMaps(trace.heads, trace.target.tokens.length);
    const first = trace.chosen == null ? "read" : `head:${trace.chosen}`;
    this.choice = this.heads ? this.requested ?? first : "read";
    // While a translation is streamed it has no heads yet; the list of heads stays as it was.
    if (!trace.growing || !this.top.hasChildNodes()) this.top.replaceChildren(...this.head());
    this.alarms.replaceChildren(...trace.alarms.map((alarm) => make("li", {}, ...isolatedNodes(alarm.message))));
    this.alarms.hidden = !trace.alarms.length;
  }

  head() {
    const head = [];
    if (this.trace.name) head.push(make("h2", { dir: "auto" }, this.trace.name));
    if (!this.heads) return head;
    const { layers, each, readout } = this.trace;
    this.select = make("select", { "aria-label": "layer and head" }, new Option(capital(readout), "read"));
    layers.forEach((layer, l) => {
      const group = make("optgroup", { label: `Layer ${layer}` });
      group.append(new Option(`Layer ${layer}, mean of heads`, `layer:${l}`));
      each.forEach((one, h) => group.append(new Option(`Layer ${layer}, head ${one}`, `head:${l * each.length + h}`)));
      this.select.append(group);
    });
    this.select.value = this.choice;
    this.select.addEventListener("change", () => this.choose(this.select.value));
    return [...head, this.select];
  }

  // The maps whose mean is shown, and their numbers.
  maps() {
    const [kind, n] = this.choice.split(":");
    const H = this.trace.each.length;
    if (kind === "head") return [this.heads, [Number(n)]];
    if (kind === "layer") return [this.heads, this.trace.each.map((_, h) => Number(n) * H + h)];
    return [this.read, [0]];
  }

  // The name of the shown maps: the read-out, a layer or a head.
  shown() {
    if (this.choice === "read") return capital(this.trace.readout);
    const name = this.select.selectedOptions[0].textContent;
    return this.trace.reading ? `${name}; ${this.trace.reading}` : name;
  }

  choose(choice) {
    this.requested = choice;
    this.choice = this.heads ? choice : "read";
    if (this.select) this.select.value = choice;
    this.draw();
  }

  draw() {
    const { view, unit, keep } = this.view.state;
    if (unit !== this.unit) this.at = { source: 0, target: 0 };
    this.unit = unit;
    this.units = { source: sourceUnits(this.trace, unit), target: units(this.trace.target, unit) };
    const [sparse, maps] = this.maps();
    this.sparse = sparse;
    const { source, target } = this.units;
    this.rows = sparse ? wordRows(sparse, maps, source, target) : target.map(() => ({ links: [], total: 0 }));
    this.ribbons = view === "braid" || view === "self";
    this.kept = this.ribbons ? largestLinks(this.rows, keep) : largestLinks(this.rows, 1, VISIBLE);
    this.drawing = sparse ? DRAW[view === "heads" && !this.heads ? "heatmap" : view](this) : (this.trace.image ? DRAW.picture : bottleneck)(this);
    this.writeNote();
    this.view.mark();
  }

  // The caption: which weights are shown, how much of them, and what the file lacks.
  writeNote() {
    const { sparse, trace } = this;
    this.status.hidden = !sparse;
    if (!sparse) {
      const whole = trace.image ? "image" : "source";
      this.note.textContent = `This model has no attention: the decoder gets the whole ${whole} as one vector.`;
      return;
    }
    if (this.drawing.note) {
      this.note.textContent = [...this.drawing.note(), ...this.absent()].join(" ");
      return;
    }
    const hidden = Math.round(100 * (1 - this.kept.shown));
    const little = this.kept.shown < 0.9995 ? "hidden under 1\u00a0%" : "nothing is hidden";
    const rest = hidden ? `hidden ${hidden}\u00a0%` : little;
    const all = labelsOf(trace)[1];
    const parts = [`${this.shown()}.`, `Showing ${100 - hidden}\u00a0% of the ${all}; ${rest}.`];
    parts.push(...this.limits(), ...this.absent());
    if (this.box.querySelector(".v-gold")) parts.push("Outlined: gold links.");
    if (this.box.querySelector(".v-unsure")) parts.push("Dotted: confidence under 50\u00a0%.");
    if (this.box.querySelector(".v-missing")) parts.push("Dashed: not in the model\u2019s vocabulary.");
    this.note.replaceChildren(parts.join(" "));
    if (this.box.querySelector(".v-more")) {
      const side = this.trace.source.turned ? "left" : "right";
      this.note.append(make("span", { className: "v-on" }, ` Continues at the ${side}: scroll sideways.`));
    }
  }

  // What the file lacks.
  absent() {
    const { sparse, trace } = this;
    const [one, all] = labelsOf(trace);
    const parts = [];
    if (sparse.lost >= 0.005) {
      const most = Math.ceil(1e4 * sparse.floor) / 100;
      const lost = percent(sparse.lost);
      parts.push(`Reduced: this file lacks small ${one}s, none over ${most}\u00a0%, together ${lost} of all ${all}.`);
    }
    if (trace.layers.length && !this.heads) parts.push("Single heads are left out: they are too large for this file.");
    if (this.choice !== "read" && trace.alarms.length) parts.push("The alarms are those of the read-out.");
    return parts;
  }

  // Which part of the weight of each word is drawn.
  limits() {
    const { kept, ribbons, rows, trace } = this;
    const { keep } = this.view.state;
    const least = percent(kept.least);
    const [share, all] = labelsOf(trace);
    const [one, word] = [ribbons ? "link" : "cell", trace.self ? "word" : "target word"];
    if (rows.length && !kept.links.length) return [`No ${one} reaches ${least}: the ${share} is spread over many words.`];
    if (!ribbons) return kept.shown < 0.995 ? [`Cells under ${least} are left blank.`] : [];
    const parts = [];
    if (keep < 1) {
      parts.push(`Ribbons: the largest ${share}s of each ${word} that hold ${percent(keep)} of its ${all}.`);
    }
    if (kept.shown < keep - 0.005) parts.push(`Links under ${least} are too thin to draw.`);
    return parts;
  }

  listen() {
    const item = (event) => event.target.closest?.("[data-side]");
    const box = this.box;
    box.addEventListener("pointerover", (event) => {
      const word = item(event);
      if (word && event.pointerType === "mouse") this.point(word.dataset.side, Number(word.dataset.i));
    });
    box.addEventListener("pointerout", (event) => { if (item(event)) this.point(null); });
    box.addEventListener("focusin", (event) => {
      const word = item(event);
      if (word) this.focus(word.dataset.side, Number(word.dataset.i));
    });
    box.addEventListener("focusout", () => { this.view.focused = null; this.view.mark(); });
    box.addEventListener("click", (event) => {
      const word = item(event);
      if (word) this.pin(word.dataset.side, Number(word.dataset.i));
    });
    box.addEventListener("keydown", (event) => this.key(event, item(event)));
  }

  key(event, word) {
    if (!word || event.altKey || event.ctrlKey || event.metaKey) return;
    const { side } = word.dataset;
    const i = Number(word.dataset.i);
    const across = this.box.querySelector(side === "source" ? ".v-across, .v-grid" : ".v-across");
    const reverse = getComputedStyle(word.parentElement).direction === "rtl" && across;
    const next = this.drawing.step?.(event.key, side, i) ?? step(event.key, i, this.items[side].length, reverse);
    if (event.key === "Enter" || event.key === " ") this.pin(side, i);
    else if (next !== null) this.items[side][next].focus();
    else return;
    event.preventDefault();
  }

  point(side, i) {
    this.view.pointed = side === null || !this.units[side][i] ? null : { panel: this, side, i };
    this.view.mark();
  }

  focus(side, i) {
    this.items[side][this.at[side]]?.setAttribute("tabindex", "-1");
    this.at[side] = i;
    this.items[side][i].tabIndex = 0;
    this.view.focused = { panel: this, side, i };
    this.view.mark();
  }

  pin(side, i) {
    const { pinned } = this.view;
    const same = pinned && pinned.panel === this && pinned.side === side && pinned.i === i;
    this.view.pinned = same || !this.units[side][i] ? null : { panel: this, side, i };
    this.view.mark();
  }

  // Highlight the links of a word, { side, i }, or of none: null.
  mark(active, pinned) {
    for (const item of this.marked) {
      item.classList.remove("v-active", "v-partner");
      item.setAttribute("aria-selected", "false");
      delete item.dataset.share;
    }
    this.marked = [];
    const item = active && this.items[active.side][active.i]; // none if it is too long to be drawn
    if (item) {
      item.classList.add("v-active");
      item.setAttribute("aria-selected", String(Boolean(pinned)));
      this.marked.push(item);
      const others = this.items[active.side === "source" ? "target" : "source"];
      for (const [j, w] of linkedWords(this, active.side, active.i)) {
        others[j].classList.add("v-partner");
        others[j].dataset.share = percent(w);
        this.marked.push(others[j]);
      }
    }
    this.drawing.mark(active);
    const status = this.drawing.status ?? ((side, i) => statusText(this, side, i));
    this.status.replaceChildren(...(active ? status(active.side, active.i) : []));
  }
}

class View {
  constructor(root, data) {
    this.root = root;
    this.name = `v${++figures}`;
    this.state = { view: data.view, unit: "words", keep: data.keep ?? 0.9, weights: data.smooth ? "smooth" : "grid" };
    // Pictures are in the page once: in the static figure that this one takes the place of.
    this.pictures = new Map();
    for (const one of root.querySelectorAll(".v-static defs image")) {
      this.pictures.set(one.id, one.getAttribute("href"));
    }
    this.controls = make("div", { className: "v-controls", role: "group", "aria-label": "How it is drawn" });
    this.update(data);
    root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      this.pinned = this.pointed = null;
      this.mark();
    });
    let width = root.clientWidth;
    new ResizeObserver(() => {
      if (root.clientWidth === width) return;
      width = root.clientWidth;
      onNextFrame(this, () => this.draw());
    }).observe(root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    addEventListener("beforeprint", () => { for (const panel of this.panels) panel.drawing.fill?.(true); });
    addEventListener("afterprint", () => { for (const panel of this.panels) panel.drawing.fill?.(); });
  }

  // Draw another record; view, unit and share stay as they were chosen.
  update(data) {
    this.pinned = this.pointed = this.focused = null;
    const before = this.panels ?? [];
    this.panels = data.traces.map((trace, i) => new Panel(this, trace, before[i]?.requested));
    updateControls(this);
    this.frame = make("div", { className: "v-panels" }, ...this.panels.map((panel) => panel.element));
    this.root.replaceChildren(this.controls, this.frame);
    this.draw();
  }

  // Draw another trace in one panel, and leave all else: so a translation is drawn while it is streamed.
  replaceTrace(i, trace) {
    const panel = this.panels[i];
    if (trace.growing) fixHeight(panel);
    const same = isPrefix(panel.trace, trace);
    const kept = same ? MARKS.filter((how) => this[how]?.panel === panel).map((how) => [how, this[how]]) : [];
    const inside = panel.box.contains(document.activeElement);
    const select = panel.select && panel.select === document.activeElement;
    for (const how of MARKS) if (this[how]?.panel === panel) this[how] = null;
    if (!same) panel.at = { source: 0, target: 0 };
    panel.setTrace(trace);
    updateControls(this);
    panel.draw();
    if (!trace.growing) releaseHeight(panel);
    if (this.panels.length > 1 && panel.box.querySelector(".v-tight") && !this.frame.matches(".v-stacked")) this.draw();
    if (select) panel.select?.focus();
    for (const [how, { side, i: word }] of kept) {
      if (!panel.units[side][word]) continue;
      if (how === "focused" && inside) panel.items[side][word].focus({ preventScroll: true });
      else this[how] = { panel, side, i: word };
    }
    this.mark();
  }

  // Panels are side by side if nothing is cut off, otherwise one below the other.
  draw() {
    this.controls.lastChild.hidden = !["braid", "self"].includes(this.state.view);
    const weights = this.controls.querySelector("[data-key=weights]");
    if (weights) weights.hidden = this.state.view !== "regions";
    this.frame.classList.remove("v-stacked");
    for (const panel of this.panels) panel.draw();
    if (this.panels.length < 2 || !this.frame.querySelector(".v-tight")) return;
    this.frame.classList.add("v-stacked");
    for (const panel of this.panels) panel.draw();
  }

  // A pinned word comes before one that is pointed at, and that before a focused one. A source word that several models
  // read is marked in all of them.
  mark() {
    const now = this.pinned ?? this.pointed ?? this.focused ?? null;
    for (const panel of this.panels) {
      if (!panel.drawing) continue;
      const marked = now && (now.panel === panel || (now.side === "source" && sameSource(now.panel, panel)));
      panel.mark(marked ? now : null, this.pinned);
      this.onmark?.(panel, marked ? now : null);
    }
  }
}

// While a translation is streamed its figure does not get smaller, so that nothing around it moves.
function fixHeight({ box, element }) {
  for (const part of [box, element]) part.style.minHeight = `${part.offsetHeight}px`;
}

function releaseHeight({ box, element }) {
  for (const part of [box, element]) part.style.minHeight = "";
}

// Whether one trace is the beginning of another, so that its words keep their numbers.
function isPrefix(before, after) {
  const starts = (some, all) => some.length <= all.length && some.every((token, i) => token === all[i]);
  const [x, y] = [before.source.tokens, after.source.tokens];
  return x.length === y.length && starts(x, y) && starts(before.target.tokens, after.target.tokens);
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function sameSource(one, other) {
  const [a, b] = [one.units.source, other.units.source];
  return a.length === b.length && a.every((unit, i) => unit.text === b[i].text);
}

// Figures are drawn when they come into view: a page may have many.
function start(root) {
  const data = root.querySelector(":scope > script[type='application/json']");
  if (!data) return;
  const watch = new IntersectionObserver((entries) => {
    if (!entries.some((one) => one.isIntersecting)) return;
    watch.disconnect();
    new View(root, JSON.parse(data.textContent));
  }, { rootMargin: "400px" });
  watch.observe(root);
}

globalThis.heedful = { nameUnknown, view: (root, data) => { root.classList.add("heedful-view"); return new View(root, data); } };
document.querySelectorAll(".heedful-view").forEach(start);
