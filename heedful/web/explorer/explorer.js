// The page: what is known of the runs, controls, all heads, and a panel for each head that is shown. What is shown is in
// the address, and comes back with it.

const KIND_LABELS = { self: "Self", encoder: "Encoder", decoder: "Decoder", cross: "Cross" };
const CHOICES = {
  view: { text: "Text", heatmap: "Heat map", braid: "Braid" },
  unit: { words: "Words", tokens: "Tokens" },
  direction: { to: "Attends to", by: "Is attended to by" },
  sinks: { apart: "Apart", keep: "Keep" },
  order: { layer: "By layer", rank: "Ranked" },
};
const TITLES = { kind: "Attention", view: "View", unit: "By", direction: "A selected word", sinks: "Sinks", order: "Order" };
const IN_ADDRESS = { kind: "kind", view: "view", unit: "by", direction: "direction", order: "order", measure: "measure", sinks: "sinks" };

class Explorer {
  constructor(root, record, data) {
    this.root = root;
    this.data = record;
    this.runs = record.runs.map((run, m) => {
      const texts = run.texts.map((text) => new TextData(text));
      return { ...run, texts, groups: run.groups.map((group, g) => new Group(group, texts, `${m}.${g}`, data)) };
    });
    this.first = record.state;
    this.state = structuredClone(record.state);
    this.search = { phrase: "", places: [], at: -1 };
    this.panels = [];
    this.active = 0;
    this.written = null;
    // In a frame of a notebook the address is that of the notebook: it stays as it is.
    this.addressed = location.protocol !== "about:" && self === top;
    document.body.classList.toggle("x-framed", self !== top);
    if (this.addressed) this.state = this.readAddress(location.hash);
    this.build();
    this.render();
    this.revealSelection();
    addEventListener("hashchange", () => {
      if (!this.addressed || location.hash.slice(1) === this.written) return;
      this.written = location.hash.slice(1);
      this.state = this.readAddress(location.hash);
      this.render();
      this.revealSelection();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.grid.paint(); this.render(); });
    addEventListener("beforeprint", () => this.eachText((view) => view.fillAll()));
    root.addEventListener("keydown", (event) => this.key(event));
    let width = root.clientWidth;
    new ResizeObserver(() => {
      if (root.clientWidth === width) return;
      width = root.clientWidth;
      if (this.state.view !== "text") onNextFrame(this, () => this.render());
    }).observe(root);
  }

  kinds() {
    return [...new Set(this.runs.flatMap((run) => run.groups.map((group) => group.kind)))];
  }

  group(run) {
    return this.runs[run].groups.find((group) => group.kind === this.state.kind) ?? null;
  }

  labelOf(run) {
    const { name } = this.runs[run];
    return !name || this.runs.filter((one) => one.name === name).length > 1 ? `Text ${run + 1}` : name;
  }

  // What is selected in a run, if the shown group has that text: the side, and the tokens.
  selection(run, group) {
    const [text, tokens] = this.state.tokens[run];
    if (!tokens.length) return null;
    const data = this.runs[run].texts[text];
    if (group.self) return group.target === data ? { side: this.state.direction === "by" ? "source" : "target", tokens } : null;
    if (data === group.target) return { side: "target", tokens };
    return data === group.source ? { side: "source", tokens } : null;
  }

  apart(group) {
    return this.state.sinks === "apart" && group.sinks.length > 0;
  }

  sinkUnits(group) {
    const units = group.source.units(this.state.unit);
    return new Set(ownersOf(units, group.sinkTokens));
  }

  sinkNames(group) {
    return group.sinks.map(([, name]) => name).join(" ");
  }

  small(group) {
    const { unit } = this.state;
    return Math.max(group.source.units(unit).count, group.target.units(unit).count) <= DRAWN;
  }

  viewOf(group) {
    return this.state.view === "braid" ? (this.small(group) ? "braid" : "text") : this.state.view;
  }

  shareOf(group) {
    return this.state.share ?? (group.self ? 0.5 : 0.9);
  }

  // The page, once; `render` changes what is in it.
  build() {
    this.about = make("div", { className: "x-about" });
    this.controls = make("div", { className: "v-controls x-controls", role: "group", "aria-label": "What is shown" });
    this.grid = new HeadGrid(this.state, (...how) => this.choose(...how), (change) => this.change(change));
    this.frame = make("div", { className: "v-panels x-panels" });
    this.findBox = this.buildFind();
    const many = this.runs.some((run) => run.groups.some((group) => group.H > 16));
    const main = make("div", { className: `x-main${many ? " x-many" : ""}` }, this.grid.element, make("div", { className: "x-right" }, this.controls, this.frame));
    this.root.replaceChildren(this.about, main);
  }

  render() {
    const { state } = this;
    state.picks = state.picks.map(([run, pick]) => [run, this.group(run)?.has(pick) ? pick : this.fallback(run)]);
    this.active = Math.min(this.active, state.picks.length - 1);
    const [run] = state.picks[this.active];
    const group = this.group(run) ?? this.runs.flatMap((one) => one.groups).find((one) => one.kind === state.kind);
    this.writeAbout();
    this.updateControls();
    this.grid.state = state;
    this.grid.show(group, this.choices("order", ["layer", "rank"]));
    this.grid.mark(this.shownIn(run));
    this.showPanels();
    this.measureSelection();
    this.refreshFind();
    this.writeAddress();
  }

  // The picks of a run, those that are shown first.
  shownIn(run) {
    return this.state.picks.filter(([one]) => one === run).map(([, pick]) => pick);
  }

  fallback(run) {
    const group = this.group(run);
    if (!group) return "mean";
    const at = group.rank.sharpness[0];
    return `${Math.floor(at / group.H) + 1}.${(at % group.H) + 1}`;
  }

  showPanels() {
    const { picks } = this.state;
    const reused = new Map();
    const panels = picks.map(([run], n) => {
      const found = this.panels.find((panel) => panel.run === run && !reused.has(panel)) ?? new HeadPanel(this, run);
      reused.set(found, n);
      return found;
    });
    for (const panel of this.panels) if (!reused.has(panel)) panel.close();
    this.panels = panels;
    const elements = panels.map((panel) => panel.element);
    if (elements.length !== this.frame.children.length || elements.some((one, i) => one !== this.frame.children[i])) this.frame.replaceChildren(...elements);
    panels.forEach((panel, n) => panel.show(picks[n][1], n, panels.length));
    this.markActive();
  }

  markActive() {
    this.panels.forEach((panel, n) => panel.element.classList.toggle("x-active", n === this.active && this.panels.length > 1));
  }

  activate(panel) {
    const before = this.panels[this.active];
    this.active = this.panels.indexOf(panel);
    this.markActive();
    if (before && before.run !== panel.run && this.group(panel.run)) {
      this.grid.show(this.group(panel.run), this.grid.top.lastChild);
      this.grid.mark(this.shownIn(panel.run));
      this.measureSelection();
    }
  }

  // What is known of each run: layers and heads, texts, how weights were read, sinks, and what the file holds.
  writeAbout() {
    const key = `${this.state.kind}`;
    if (this.aboutOf === key) return;
    this.aboutOf = key;
    this.about.replaceChildren(...this.runs.map((run, m) => this.describeRun(run, m)).filter(Boolean));
  }

  describeRun(run, m) {
    const group = this.group(m);
    if (!group) return null;
    const facts = make("p", { className: "x-facts" });
    const number = (n) => n.toLocaleString("en");
    const length = (text) => `${number(text.units("words").count)} words, ${number(text.count)} tokens`;
    const lengths = group.self ? length(group.target) : `source ${length(group.source)}; target ${length(group.target)}`;
    const size = `${number(group.L)} layer${group.L > 1 ? "s" : ""} × ${number(group.H)} head${group.H > 1 ? "s" : ""}`;
    const parts = [size, lengths, group.reading];
    if (this.runs.length > 1 || run.name !== this.data.title) facts.append(make("b", {}, this.runs.length > 1 ? this.labelOf(m) : run.name || "model"), " · ");
    facts.append(parts.join(" · "));
    const more = make("p", { className: "x-facts x-soft" });
    if (group.sinks.length) {
      more.append("Sinks: ", ...group.sinks.slice(0, 6).flatMap(([, name, share], n) => [n ? ", " : "", make("bdi", {}, name), `\u00a0${percent(share)}`]));
      more.append(" of all weight. ");
    }
    more.append(this.holdings(group));
    return make("div", { className: "x-run" }, facts, more);
  }

  holdings(group) {
    const heads = group.L * group.H;
    if (group.complete && group.lost < 0.0005) return "This file has the weights of all heads.";
    const most = Math.ceil(1e4 * group.floor) / 100;
    const reduced = group.lost >= 0.0005 && !group.top ? ` without small ones, none over ${most}\u00a0%, together ${percent(group.lost)} of the weight` : "";
    if (group.complete) return `This file has the weights of all heads,${reduced}.`;
    const held = group.held.length ? `of ${group.held.length} heads ${group.top ? `the ${group.top} largest weights of every token, ${percent(1 - group.lost)} of their weight` : `the weights${reduced}`}` : "no single weights";
    const single = group.single.length ? `, and the rows of ${group.single.length} tokens in every head` : "";
    return `This file has means of blocks of all ${heads.toLocaleString("en")} heads, ${held}${single}. Other weights are not in it.`;
  }

  updateControls() {
    const groups = this.panels.length ? this.panels.map((panel) => panel.group).filter(Boolean) : this.runs.map((_, m) => this.group(m)).filter(Boolean);
    const small = groups.some((group) => this.small(group));
    const kinds = this.kinds();
    const shown = String([kinds, small, groups.some((group) => group.self), groups.some((group) => group.sinks.length)]);
    if (this.shownControls !== shown) {
      this.shownControls = shown;
      const parts = [];
      if (kinds.length > 1) parts.push(this.choices("kind", kinds));
      parts.push(this.choices("view", small ? ["text", "heatmap", "braid"] : ["text", "heatmap"]));
      parts.push(this.choices("unit", ["words", "tokens"]));
      if (groups.some((group) => group.self)) parts.push(this.choices("direction", ["to", "by"]));
      if (groups.some((group) => group.sinks.length)) parts.push(this.choices("sinks", ["apart", "keep"]));
      this.slider = this.buildSlider();
      parts.push(this.slider, this.buildSeveral(), this.findBox);
      const focused = document.activeElement;
      this.controls.replaceChildren(...parts);
      if (this.controls.contains(focused)) focused.focus();
    }
    for (const input of this.controls.querySelectorAll("input[type=radio]")) input.checked = this.state[input.dataset.key] === input.value;
    this.slider.hidden = this.state.view !== "braid";
  }

  choices(key, values) {
    this.made ??= {};
    const known = this.made[key];
    if (known && known.values === String(values)) {
      for (const input of known.group.querySelectorAll("input")) input.checked = this.state[key] === input.value;
      return known.group;
    }
    const group = make("fieldset", { className: "v-choices" }, make("legend", {}, TITLES[key]));
    for (const value of values) {
      const input = make("input", { type: "radio", name: `x-${key}`, value });
      input.dataset.key = key;
      input.checked = this.state[key] === value;
      input.addEventListener("change", () => this.change({ [key]: value }));
      group.append(make("label", {}, input, make("span", {}, (CHOICES[key] ?? KIND_LABELS)[value])));
    }
    this.made[key] = { values: String(values), group };
    return group;
  }

  buildSlider() {
    const share = this.shareOf(this.panels[0]?.group ?? { self: true });
    const output = make("output", {}, percent(share));
    const input = make("input", { type: "range", min: 1, max: 100, step: 1, value: 100 * share });
    input.addEventListener("input", () => {
      this.state.share = input.value / 100;
      output.textContent = percent(this.state.share);
      this.showPanels();
    });
    return make("label", { className: "v-slider" }, make("span", {}, "Draw the largest"), input, output, make("span", {}, "of each word\u2019s weight"));
  }

  // For touch: every tap adds a word, or takes one away.
  buildSeveral() {
    const button = make("button", { type: "button", className: "x-button x-several" }, "Several words");
    button.title = "Add words to the selection by a click; or hold Ctrl or Shift, or drag";
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      this.several = !this.several;
      button.setAttribute("aria-pressed", String(this.several));
    });
    return button;
  }

  change(change, quiet = false) {
    Object.assign(this.state, change);
    this.quiet = quiet;
    this.render();
    this.quiet = false;
  }

  // A head was chosen among all of them: for the active panel, and for panels of other runs that show the same head.
  choose(pick, beside, quiet) {
    const picks = this.state.picks.map((one) => [...one]);
    const [run, before] = picks[this.active];
    if (beside) {
      const second = picks.findIndex(([one], n) => one === run && n > picks.findIndex(([other]) => other === run));
      if (second >= 0) picks[second] = [run, pick];
      else picks.splice(this.active + 1, 0, [run, pick]);
      this.active = second >= 0 ? second : this.active + 1;
    } else {
      picks.forEach((one, n) => {
        if (n === this.active || (one[0] !== run && one[1] === before && this.group(one[0])?.has(pick))) one[1] = pick;
      });
    }
    this.change({ picks }, quiet);
  }

  choosePick(panel, pick) {
    const at = this.panels.indexOf(panel);
    this.change({ picks: this.state.picks.map(([run, one], n) => [run, n === at ? pick : one]) });
  }

  // A second head: the next one by the measure.
  addPanel(panel) {
    const { group, run } = panel;
    if (!group) return;
    const at = this.panels.indexOf(panel);
    const order = (group.rank[this.state.measure] ?? group.rank.sharpness).map((i) => `${Math.floor(i / group.H) + 1}.${(i % group.H) + 1}`);
    const next = order.find((pick) => pick !== panel.pick && (group.complete || group.heldHeads.has(pick))) ?? "mean";
    this.active = at + 1;
    this.change({ picks: this.state.picks.toSpliced(at + 1, 0, [run, next]) });
  }

  closePanel(panel) {
    const at = this.panels.indexOf(panel);
    this.panels.splice(at, 1);
    panel.close();
    panel.element.remove();
    this.active = 0;
    this.change({ picks: this.state.picks.toSpliced(at, 1) });
    this.panels[0].select.focus();
  }

  // A unit was clicked, reached by keys, or dragged to: `how` is "one", "add", "range" or "drag".
  pickUnit(panel, side, i, how, from, direction) {
    const { group, run } = panel;
    const units = group[side].units(this.state.unit);
    const text = this.runs[run].texts.indexOf(group[side]);
    const [before, chosen] = this.state.tokens[run];
    const old = before === text ? chosen : [];
    const own = tokensOf(units, i);
    const turned = direction && group.self && direction !== this.state.direction;
    let tokens;
    const known = own.every((token) => old.includes(token)) && !turned;
    if (how === "range" || how === "drag") {
      const anchor = how === "drag" || (from !== undefined && !old.length) ? from : ownersOf(units, [this.anchor?.[run] ?? old[0] ?? own[0]])[0];
      const [low, high] = [Math.min(anchor, i), Math.max(anchor, i)];
      tokens = Array.from({ length: high - low + 1 }, (_, n) => tokensOf(units, low + n)).flat();
      this.anchor = { ...this.anchor, [run]: units.first[anchor] };
    } else {
      if (how === "add" || this.several) tokens = known ? old.filter((token) => !own.includes(token)) : [...old, ...own].sort((a, b) => a - b);
      else tokens = known && ownersOf(units, old).length === 1 ? [] : own;
      this.anchor = { ...this.anchor, [run]: own[0] };
    }
    this.select(run, text, tokens, group.self && direction ? direction : this.state.direction);
  }

  select(run, text, tokens, direction = this.state.direction) {
    const turned = direction !== this.state.direction;
    this.state.tokens = this.state.tokens.map((one, m) => (m === run ? [text, tokens] : one));
    this.state.direction = direction;
    if (turned) this.updateControls();
    for (const panel of this.panels) if (panel.run === run || turned) panel.mark();
    this.measureSelection();
    this.writeAddress();
  }

  // For every head, the largest weight between what is selected and another unit, in slices of time.
  measureSelection() {
    const [run] = this.state.picks[this.active];
    const group = this.group(run);
    if (this.state.measure !== "selected" || !group) return;
    const selection = this.selection(run, group);
    const { unit } = this.state;
    const key = `${unit} ${this.state.sinks} ${selection?.side} ${selection?.tokens}`;
    if (group.measuredBy === key) return;
    group.measuredBy = key;
    if (!selection) {
      delete group.measures.selected;
      delete group.rank.selected;
      this.grid.arrange();
      return;
    }
    const [values, partners] = [[], []];
    const without = this.sinkUnits(group);
    const slice = () => {
      const end = performance.now() + SLICE;
      while (group.measuredBy === key && values.length < group.L * group.H && performance.now() < end) {
        const told = relate(group, this.grid.pickOf(values.length), unit, selection.side, selection.tokens, this.apart(group));
        const skip = new Set(told.side === "source" ? without : []);
        if (group.self) for (const i of told.selected) skip.add(i);
        const [[other, weight] = [-1, 0]] = told.blocks ? [[-1, -1]] : largestUnits(told.values, 1, skip);
        values.push(Number(weight.toFixed(4)));
        partners.push(other < 0 ? "" : group[told.side].units(unit).name(other));
      }
      if (group.measuredBy !== key) return;
      if (values.length < group.L * group.H) { setTimeout(slice); return; }
      Object.assign(group, { partners });
      group.measures.selected = values;
      group.rank.selected = values.map((_, i) => i).sort((a, b) => values[b] - values[a] || a - b);
      if (this.grid.group === group) this.grid.arrange();
    };
    slice();
  }

  key(event) {
    if (event.key !== "Escape") return;
    if (event.target === this.findInput && this.findInput.value) {
      this.findInput.value = "";
      this.find("");
      return;
    }
    if (!this.state.tokens.some(([, tokens]) => tokens.length)) return;
    this.state.tokens = this.state.tokens.map(([text]) => [text, []]);
    for (const panel of this.panels) { panel.pointed = null; panel.mark(); }
    this.measureSelection();
    this.writeAddress();
  }

  // In long texts, scroll to what is selected.
  revealSelection() {
    this.eachText((view, panel) => {
      const [text, tokens] = this.state.tokens[panel.run];
      if (view.long && tokens.length && this.runs[panel.run].texts[text] === view.text) view.reveal(view.units.owner[tokens[0]]);
    });
  }

  eachText(visit) {
    for (const panel of this.panels) for (const view of Object.values(panel.texts)) visit(view, panel);
  }

  // Finding: a field, how many places there are, the next and the one before, and to select the one that was found.
  buildFind() {
    this.findInput = make("input", { type: "search", placeholder: "Find a word", "aria-label": "find a word or token", spellcheck: false, autocomplete: "off" });
    this.findCount = make("output", { className: "x-count" });
    const button = (label, text, act) => {
      const made = make("button", { type: "button", className: "x-button", title: label, "aria-label": label }, text);
      made.addEventListener("click", act);
      return made;
    };
    this.findInput.addEventListener("input", () => this.find(this.findInput.value));
    this.findInput.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) this.selectFound();
      else this.nextFound(event.shiftKey ? -1 : 1);
    });
    this.findButtons = [
      button("previous place", "‹", () => this.nextFound(-1)),
      button("next place", "›", () => this.nextFound(1)),
      button("select the found word", "Select", () => this.selectFound()),
    ];
    const form = make("div", { className: "x-find", role: "search" }, this.findInput, this.findCount, ...this.findButtons);
    for (const one of this.findButtons) one.hidden = true;
    return form;
  }

  find(phrase) {
    this.search = { phrase, places: [], at: -1 };
    this.locate();
    if (this.search.places.length) this.search.at = 0;
    this.showFound(true);
  }

  // The places of the phrase in all texts that are shown.
  locate() {
    const seen = new Set();
    for (const panel of this.panels) {
      if (!panel.group) continue;
      for (const side of panel.sides()) {
        const text = panel.group[side];
        if (seen.has(text)) continue;
        seen.add(text);
        for (const [first, last] of text.find(this.search.phrase)) this.search.places.push({ run: panel.run, text, first, last });
      }
    }
  }

  refreshFind() {
    if (!this.search.phrase) return;
    const { at } = this.search;
    this.search.places = [];
    this.locate();
    this.search.at = Math.min(at, this.search.places.length - 1);
    this.showFound(false);
  }

  nextFound(step) {
    const { places, at } = this.search;
    if (!places.length) return;
    this.search.at = (at + step + places.length) % places.length;
    this.showFound(true);
  }

  showFound(scroll) {
    const { phrase, places, at } = this.search;
    for (const one of this.findButtons) one.hidden = !places.length;
    this.findCount.textContent = !phrase.trim() ? "" : places.length ? `${at + 1} of ${places.length.toLocaleString("en")}` : "not found";
    const place = places[at];
    if (place && scroll && this.state.view !== "text" && !this.panels.some((panel) => panel.drawn === "text")) this.change({ view: "text" });
    for (const panel of this.panels) {
      panel.mark();
      if (place && scroll && panel.run === place.run) {
        for (const [side, view] of Object.entries(panel.texts)) {
          if (panel.group[side] === place.text) view.reveal(view.units.owner[place.first]);
        }
      }
    }
  }

  // The units of the place that was found last, in a text.
  found(run, text) {
    const place = this.search.places[this.search.at];
    if (!place || place.run !== run || place.text !== text) return null;
    const tokens = Array.from({ length: place.last - place.first }, (_, i) => place.first + i);
    return new Set(ownersOf(text.units(this.state.unit), tokens));
  }

  selectFound() {
    const place = this.search.places[this.search.at];
    if (!place) return;
    const text = this.runs[place.run].texts.indexOf(place.text);
    const units = place.text.units(this.state.unit);
    const tokens = ownersOf(units, Array.from({ length: place.last - place.first }, (_, i) => place.first + i)).flatMap((i) => tokensOf(units, i));
    this.select(place.run, text, tokens);
  }

  // The address: what differs from what the page shows first.
  address() {
    const { state, first } = this;
    const parts = [];
    for (const [key, name] of Object.entries(IN_ADDRESS)) if (state[key] !== first[key]) parts.push(`${name}=${state[key]}`);
    const heads = (picks) => picks.map(([run, pick]) => (run ? `${run + 1}:${pick}` : pick)).join(",");
    if (heads(state.picks) !== heads(first.picks)) parts.push(`heads=${heads(state.picks)}`);
    if (state.share !== first.share) parts.push(`share=${Math.round(100 * state.share)}`);
    state.tokens.forEach(([text, tokens], run) => {
      const told = writeTokens(text, tokens);
      if (told !== writeTokens(...first.tokens[run])) parts.push(`tokens${run ? run + 1 : ""}=${told}`);
    });
    return parts.join("&");
  }

  writeAddress() {
    if (!this.addressed) return;
    const told = this.address();
    if (told === (this.written ?? location.hash.slice(1))) { this.written = told; return; }
    const initial = this.written === null;
    this.written = told;
    if (this.quiet || initial) location.replace(`#${told}`);
    else location.hash = told;
  }

  // The state of an address; what cannot be is left out.
  readAddress(hash) {
    const state = structuredClone(this.first);
    const given = new Map(hash.replace(/^#/u, "").split("&").map((part) => part.split("=")).filter((pair) => pair.length === 2));
    const allowed = { ...Object.fromEntries(Object.entries(CHOICES).map(([key, values]) => [key, Object.keys(values)])), kind: this.kinds(), measure: Object.keys(MEASURES) };
    for (const [key, name] of Object.entries(IN_ADDRESS)) if (allowed[key].includes(given.get(name))) state[key] = given.get(name);
    const picks = (given.get("heads") ?? "").split(",").map((part) => {
      const [run, pick] = part.includes(":") ? part.split(":") : ["1", part];
      return [Number(run) - 1, pick];
    }).filter(([run, pick]) => this.runs[run]?.groups.some((group) => group.has(pick)));
    if (picks.length) state.picks = picks.slice(0, 8);
    const share = Number(given.get("share"));
    if (share >= 1 && share <= 100) state.share = share / 100;
    this.runs.forEach((run, m) => {
      const told = readTokens(given.get(`tokens${m ? m + 1 : ""}`), run.texts);
      if (told) state.tokens[m] = told;
    });
    return state;
  }
}

// Tokens as "5-7,9", counted from 1; of another text than the first with its number: "2:5-7,9". "none" if there are none.
function writeTokens(text, tokens) {
  if (!tokens.length) return "none";
  const ranges = [];
  for (const token of tokens) {
    const last = ranges.at(-1);
    if (last && last[1] === token - 1) last[1] = token;
    else ranges.push([token, token]);
  }
  const told = ranges.map(([a, b]) => (a === b ? `${a + 1}` : `${a + 1}-${b + 1}`)).join(",");
  return text ? `${text + 1}:${told}` : told;
}

function readTokens(told, texts) {
  if (!told) return null;
  if (told === "none") return [0, []];
  const [number, ranges] = told.includes(":") ? told.split(":") : ["1", told];
  const text = Number(number) - 1;
  if (!texts[text]) return null;
  const tokens = new Set();
  for (const range of ranges.split(",")) {
    const [a, b] = range.split("-").map(Number);
    const [first, last] = [a, b ?? a];
    if (!(first >= 1 && last >= first && last <= texts[text].count)) return null;
    for (let token = first; token <= last; token++) tokens.add(token - 1);
  }
  return [text, [...tokens].sort((a, b) => a - b)];
}

const recordElement = document.getElementById("x-record");
if (recordElement) {
  const blocks = new Map();
  for (const element of document.querySelectorAll("script[data-key]")) blocks.set(element.dataset.key, element);
  new Explorer(document.querySelector(".x-root"), JSON.parse(recordElement.textContent), blocks);
}
