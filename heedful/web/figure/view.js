// A figure: its controls, its panels (one for each model), and what is pointed at, focused or pinned in them.
// heedful.view(element, record) draws a record of heedful.draw.html into an element and returns the figure:
// update(record) draws another, renew(i, trace) one panel of it; onmark(panel, active) is called when a word is marked.
// heedful.named(trace) gives unknown words of a translation the names that figures show.

const DRAW = { braid, self: braid, heatmap: grid, heads };
let figures = 0;

class Panel {
  constructor(view, trace, choice) {
    this.view = view;
    this.wish = choice; // the maps that were asked for, whether or not this trace has them
    this.at = { source: 0, target: 0 };
    this.items = { source: [], target: [] };
    this.marked = [];
    this.top = make("div", { className: "v-head" });
    this.box = make("div", { className: "v-box" });
    this.said = make("p", { className: "v-said", role: "status" });
    this.note = make("p", { className: "v-note" });
    this.alarms = make("ul", { className: "v-alarms" });
    this.element = make("section", { className: "v-panel", "aria-label": trace.name || "figure" });
    this.element.append(this.top, this.box, this.said, this.note, this.alarms);
    this.take(trace);
    this.listen();
  }

  take(trace) {
    this.trace = named(trace);
    this.read = unpack(trace.read, trace.target.tokens.length);
    this.heads = unpack(trace.heads, trace.target.tokens.length);
    const first = trace.chosen == null ? "read" : `head:${trace.chosen}`;
    this.choice = this.heads ? this.wish ?? first : "read";
    // What is still being written has no heads yet; its list of them stays as it was.
    if (!trace.growing || !this.top.hasChildNodes()) this.top.replaceChildren(...this.head());
    this.alarms.replaceChildren(...trace.alarms.map((alarm) => make("li", {}, ...isolated(alarm.message))));
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

  // The maps whose mean is shown, and where they are packed.
  maps() {
    const [kind, n] = this.choice.split(":");
    const H = this.trace.each.length;
    if (kind === "head") return [this.heads, [Number(n)]];
    if (kind === "layer") return [this.heads, this.trace.each.map((_, h) => Number(n) * H + h)];
    return [this.read, [0]];
  }

  // The name of what is shown: the read-out, a layer or a head.
  shown() {
    if (this.choice === "read") return capital(this.trace.readout);
    const name = this.select.selectedOptions[0].textContent;
    return this.trace.reading ? `${name}; ${this.trace.reading}` : name;
  }

  choose(choice) {
    this.wish = choice;
    this.choice = this.heads ? choice : "read";
    if (this.select) this.select.value = choice;
    this.draw();
  }

  draw() {
    const { view, unit, keep } = this.view.state;
    if (unit !== this.unit) this.at = { source: 0, target: 0 };
    this.unit = unit;
    this.units = { source: units(this.trace.source, unit), target: units(this.trace.target, unit) };
    const [packed, maps] = this.maps();
    this.packed = packed;
    const { source, target } = this.units;
    this.rows = packed ? gather(packed, maps, source, target) : target.map(() => ({ links: [], total: 0 }));
    this.ribbons = view === "braid" || view === "self";
    this.cut = this.ribbons ? cut(this.rows, keep) : cut(this.rows, 1, SEEN);
    this.drawn = packed ? DRAW[view === "heads" && !this.heads ? "heatmap" : view](this) : bottleneck(this);
    this.tell();
    this.view.mark();
  }

  // Which weights are shown, how much of them, and what the file lacks.
  tell() {
    const { packed, trace } = this;
    this.said.hidden = !packed;
    if (!packed) {
      this.note.textContent = "This model has no attention: all it knows of the source goes through one vector.";
      return;
    }
    const hidden = Math.round(100 * (1 - this.cut.shown));
    const little = this.cut.shown < 0.9995 ? "hidden under 1\u00a0%" : "nothing is hidden";
    const told = hidden ? `hidden ${hidden}\u00a0%` : little;
    const [one, all] = terms(trace);
    const parts = [`${this.shown()}.`, `Showing ${100 - hidden}\u00a0% of the ${all}; ${told}.`];
    parts.push(...this.limits());
    if (packed.lost >= 0.005) {
      const most = Math.ceil(1e4 * packed.floor) / 100;
      const lost = percent(packed.lost);
      parts.push(`Reduced: this file lacks small ${one}s, none over ${most}\u00a0%, together ${lost} of all ${all}.`);
    }
    if (trace.layers.length && !this.heads) parts.push("The single heads are too many for this file.");
    if (this.choice !== "read" && trace.alarms.length) parts.push("The alarms are those of the read-out.");
    if (this.box.querySelector(".v-gold")) parts.push("Outlined: gold links.");
    if (this.box.querySelector(".v-unsure")) parts.push("Dotted words: the model was not sure of them.");
    if (this.box.querySelector(".v-missing")) parts.push("Dashed words are not in the model\u2019s vocabulary.");
    this.note.replaceChildren(parts.join(" "));
    if (this.box.querySelector(".v-more")) {
      const side = this.trace.source.turned ? "left" : "right";
      this.note.append(make("span", { className: "v-on" }, ` It goes on at the ${side}: scroll sideways.`));
    }
  }

  // What is drawn of each word's weight, and what is not.
  limits() {
    const { cut, ribbons, rows, trace } = this;
    const { keep } = this.view.state;
    const least = percent(cut.least);
    const [share, all, looked] = terms(trace);
    const [one, word] = [ribbons ? "link" : "cell", trace.self ? "Every word" : "Every word of the translation"];
    if (rows.length && !cut.links.length) return [`The ${share} is spread so wide that no ${one} reaches ${least}.`];
    if (!ribbons) return cut.shown < 0.995 ? [`Cells under ${least} are left blank.`] : [];
    const parts = [];
    if (keep < 1) {
      parts.push(`${word} has ribbons to the words it ${looked} most, until they hold ${percent(keep)} of its ${all}.`);
    }
    if (cut.shown < keep - 0.005) parts.push(`Links under ${least} are too thin to draw.`);
    return parts;
  }

  listen() {
    const item = (event) => event.target.closest?.("[data-side]");
    const box = this.box;
    box.addEventListener("pointerover", (event) => {
      const found = item(event);
      if (found && event.pointerType === "mouse") this.point(found.dataset.side, Number(found.dataset.i));
    });
    box.addEventListener("pointerout", (event) => { if (item(event)) this.point(null); });
    box.addEventListener("focusin", (event) => {
      const found = item(event);
      if (found) this.focus(found.dataset.side, Number(found.dataset.i));
    });
    box.addEventListener("focusout", () => { this.view.focused = null; this.view.mark(); });
    box.addEventListener("click", (event) => {
      const found = item(event);
      if (found) this.pin(found.dataset.side, Number(found.dataset.i));
    });
    box.addEventListener("keydown", (event) => this.key(event, item(event)));
  }

  key(event, found) {
    if (!found || event.altKey || event.ctrlKey || event.metaKey) return;
    const { side } = found.dataset;
    const i = Number(found.dataset.i);
    const across = this.box.querySelector(side === "source" ? ".v-across, .v-grid" : ".v-across");
    const turned = getComputedStyle(found.parentElement).direction === "rtl" && across;
    const next = step(event.key, i, this.items[side].length, turned);
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

  // Show the links of a word, { side, i }, or of none: null.
  mark(active, pinned) {
    for (const item of this.marked) {
      item.classList.remove("v-active", "v-partner");
      item.setAttribute("aria-selected", "false");
      delete item.dataset.share;
    }
    this.marked = [];
    const item = active && this.items[active.side][active.i]; // of what is too long to be drawn there is none
    if (item) {
      item.classList.add("v-active");
      item.setAttribute("aria-selected", String(Boolean(pinned)));
      this.marked.push(item);
      const others = this.items[active.side === "source" ? "target" : "source"];
      for (const [j, w] of partners(this, active.side, active.i)) {
        others[j].classList.add("v-partner");
        others[j].dataset.share = percent(w);
        this.marked.push(others[j]);
      }
    }
    this.drawn.mark(active);
    this.said.replaceChildren(...(active ? sentence(this, active.side, active.i) : []));
  }
}

class View {
  constructor(root, data) {
    this.root = root;
    this.name = `v${++figures}`;
    this.state = { view: data.view, unit: "words", keep: data.keep ?? 0.9 };
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
      later(this, () => this.draw());
    }).observe(root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    addEventListener("beforeprint", () => { for (const panel of this.panels) panel.drawn.fill?.(true); });
    addEventListener("afterprint", () => { for (const panel of this.panels) panel.drawn.fill?.(); });
  }

  // Draw other data in the same way: the view, the unit and what is kept stay as they were chosen.
  update(data) {
    this.pinned = this.pointed = this.focused = null;
    const before = this.panels ?? [];
    this.panels = data.traces.map((trace, i) => new Panel(this, trace, before[i]?.wish));
    offer(this);
    this.frame = make("div", { className: "v-panels" }, ...this.panels.map((panel) => panel.element));
    this.root.replaceChildren(this.controls, this.frame);
    this.draw();
  }

  renew(i, trace) {
    renew(this, this.panels[i], trace);
  }

  // Panels stand side by side where that cuts nothing off, otherwise one below the other.
  draw() {
    this.controls.lastChild.hidden = !["braid", "self"].includes(this.state.view);
    this.frame.classList.remove("v-stacked");
    for (const panel of this.panels) panel.draw();
    if (this.panels.length < 2 || !this.frame.querySelector(".v-tight")) return;
    this.frame.classList.add("v-stacked");
    for (const panel of this.panels) panel.draw();
  }

  // What is pinned counts before what is pointed at, and that before what has the focus. A source word that several
  // models read is marked in all of them.
  mark() {
    const now = this.pinned ?? this.pointed ?? this.focused ?? null;
    for (const panel of this.panels) {
      if (!panel.drawn) continue;
      const mine = now && (now.panel === panel || (now.side === "source" && alike(now.panel, panel)));
      panel.mark(mine ? now : null, this.pinned);
      this.onmark?.(panel, mine ? now : null);
    }
  }
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function alike(one, other) {
  const [a, b] = [one.units.source, other.units.source];
  return a.length === b.length && a.every((unit, i) => unit.text === b[i].text);
}

// Figures are drawn when they come into sight: a page may have many.
function start(root) {
  const data = root.querySelector(":scope > script[type='application/json']");
  if (!data) return;
  const watch = new IntersectionObserver((seen) => {
    if (!seen.some((one) => one.isIntersecting)) return;
    watch.disconnect();
    new View(root, JSON.parse(data.textContent));
  }, { rootMargin: "400px" });
  watch.observe(root);
}

globalThis.heedful = { named, view: (root, data) => { root.classList.add("heedful-view"); return new View(root, data); } };
document.querySelectorAll(".heedful-view").forEach(start);
