// One model's way through the page: its stream, its translation as text, its alternatives, and its panel of the figure.

import { Alternatives } from "./alternatives.js";
import { change } from "./editor.js";
import { Growing } from "./growing.js";
import { make, percent } from "./make.js";
import { Pace } from "./pace.js";
import { ask, events } from "./service.js";
import { Words } from "./words.js";

const LITTLE = 5; // per cent: words that look less at one of the source are lit in the figure alone, with their numbers
const NOTHING = { alarms: new Set(), given: new Set() };

export class Lane {
  // `page` has draw(lane, trace), said(lane), failed(lane, error) and panel(lane).
  constructor(model, name, page) {
    Object.assign(this, { model, name, page, text: "", prefix: "", given: new Set(), item: null, places: [] });
    this.words = new Words({
      point: (i) => this.#point(i, "pointed"), focus: (i) => this.#point(i, "focused"), edit: (i) => this.#edit(i),
    });
    this.pace = new Pace((items) => this.#grow(items));
    this.others = new Alternatives((how) => this.#alternatives(how), (item) => this.#show(item));
    this.sure = make("span", { className: "t-sure" });
    this.undo = make("button", { type: "button", className: "p-quiet", hidden: true }, "Undo");
    this.undo.addEventListener("click", () => { this.words.focus(this.words.at); this.run(this.text); });
    this.problem = make("p", { className: "p-problem", dir: "auto" });
    this.notes = make("ul", { className: "t-notes" });
    this.bar = make("div", { className: "t-meta", hidden: true }, this.sure, this.undo, this.others.button);
    const rest = [this.problem, this.bar, this.others.list, this.notes];
    this.element = make("div", { className: "t-lane" }, this.words.element, ...rest);
  }

  // What is asked of the service, whichever way.
  #body(how) {
    return { text: this.text, model: this.model.name, trace: true, ...(this.prefix && { prefix: this.prefix }), ...how };
  }

  stop() {
    this.control?.abort();
    this.pace.stop();
    this.words.close?.();
    this.#rest();
  }

  #rest() {
    this.element.classList.remove("t-growing");
    this.element.setAttribute("aria-busy", "false");
  }

  // Translate a text; with a prefix, go on from there. `given` are the numbers of the words that a person wrote.
  async run(text, prefix = "", given = new Set()) {
    this.stop();
    const before = { prefix: this.prefix, given: this.given };
    Object.assign(this, { text, prefix, given, failed: false });
    const control = (this.control = new AbortController());
    this.element.setAttribute("aria-busy", "true");
    this.problem.textContent = "";
    try {
      for await (const event of events("v1/stream", this.#body({ beam: 1 }), control.signal)) {
        this.pace.push(event);
      }
    } catch (error) {
      if (control.signal.aborted) return;
      this.pace.stop();
      this.#rest();
      this.failed = true;
      if (error.field === "prefix") Object.assign(this, before); // what is shown is still what it was
      this.page.failed(this, error);
    }
  }

  // Ask again for what could not be had.
  again() {
    this.run(this.text, this.prefix, this.given);
  }

  // Events of the stream, some at once: only the last of them is drawn.
  #grow(items) {
    for (const [name, data] of items) {
      if (name === "start") this.growing = new Growing(this.model, this.name, data);
      else if (name === "token") this.growing.add(data);
      else if (name === "done") { this.#done(data.translation); return; }
    }
    const trace = this.growing.trace();
    this.element.classList.add("t-growing");
    this.bar.hidden = true;
    this.#write(this.growing.text(), this.growing.written(), trace, { ...NOTHING, given: this.given });
    this.page.draw(this, trace);
  }

  #done(item) {
    this.#rest();
    this.#show(item);
    this.others.press(item.text);
    this.others.renew();
    this.page.said(this);
  }

  // Show a translation that is finished, the one that was streamed or an alternative.
  #show(item) {
    this.item = item;
    const told = (item.alarms ?? []).map((alarm) => ({ ...alarm, message: alarm.text }));
    const trace = { ...item.figure, name: this.name, alarms: told, gold: [], chosen: null };
    const warned = new Set(told.flatMap((alarm) => alarm.target));
    const alarms = new Set(placed(trace).flatMap((place, i) => (warned.has(place) ? [i] : [])));
    this.#write(item.text, item.words, trace, { alarms, given: this.given });
    this.sure.textContent = `confidence ${percent(item.confidence)}`;
    this.undo.hidden = !this.prefix;
    this.bar.hidden = false;
    this.notes.replaceChildren(...(item.notes ?? []).map((note) => make("li", { dir: "auto" }, note)));
    this.page.draw(this, trace);
  }

  #write(text, words, trace, marks) {
    this.places = placed(trace);
    this.words.show(text, words, marks);
  }

  async #alternatives(how) {
    const found = await ask("v1/translate", this.#body(how), this.control?.signal);
    const [item] = found.translations;
    return item.alternatives?.length ? item.alternatives : [item];
  }

  async #edit(i) {
    if (this.element.classList.contains("t-growing") || !this.item) return;
    const { item, words } = this;
    this.words.close?.();
    const word = words.words[i];
    const before = [...item.text].slice(0, word.start).join("");
    const text = await change(words, i);
    if (text === null || text === word.text) return;
    const given = new Set([...this.given].filter((n) => n < i));
    if (text) given.add(i);
    this.run(this.text, before + text, given);
  }

  // The word that is pointed at or has the focus is marked in the figure, too.
  #point(i, how) {
    const panel = this.page.panel(this);
    if (!panel?.units) return;
    const place = i === null ? undefined : this.places[i];
    const unit = panel.unit === "words" ? place : panel.trace.target.words[place]?.[1];
    panel.view[how] = panel.units.target[unit] ? { panel, side: "target", i: unit } : null;
    panel.view.mark();
  }

  // And what is marked in the figure, here.
  mark(panel, active) {
    const number = (unit) => this.places.findIndex((place) => {
      const [, first, last] = panel.trace.target.words[place] ?? [];
      return panel.unit === "words" ? place === unit : unit >= first && unit < last;
    });
    const enough = (item) => parseInt(item.dataset.share, 10) >= LITTLE;
    const lit = panel.items.target.flatMap((item, i) => (enough(item) ? [number(i)] : []));
    this.words.mark(active?.side === "target" ? number(active.i) : -1, active?.side === "source" ? lit : []);
  }

  refuse(error) {
    this.problem.textContent = error.message;
  }
}

// Where the words of the text stand among those of the trace, which has the ends of sentences, too.
function placed({ target: { words, tokens } }) {
  const end = ([text, first, last]) => text === "</s>" && last - first === 1 && tokens[first] === "</s>";
  return words.flatMap((word, i) => (word[0] && !end(word) ? [i] : []));
}
