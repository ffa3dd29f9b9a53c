// One model's way through the page: its stream, its translation as text, its alternatives, and its panel of the figure.

import { Alternatives } from "./alternatives.js";
import { copied } from "./copy.js";
import { change } from "./editor.js";
import { Growing } from "./growing.js";
import { make, percent } from "./make.js";
import { Pace } from "./pace.js";
import { ask, events } from "./service.js";
import { Words } from "./words.js";

const LITTLE = 5; // per cent: words that look less at one of the source are lit in the figure alone, with their numbers
const NOTHING = { alarms: new Set(), copied: new Set() };
const AGAIN = 2000; // milliseconds that the button says what it did

export class Lane {
  // `page` has draw(lane, trace), said(lane), say(text), failed(lane, error) and panel(lane).
  constructor(model, name, page) {
    Object.assign(this, { model, name, page, text: "", prefix: "", given: new Map(), item: null, places: [] });
    this.words = new Words({
      point: (i) => this.#point(i, "pointed"), focus: (i) => this.#point(i, "focused"), edit: (i) => this.#edit(i),
    });
    this.pace = new Pace((items) => this.#grow(items));
    this.others = new Alternatives((how) => this.#alternatives(how), (item) => this.#show(item));
    this.sure = make("span", { className: "t-sure" });
    this.undo = make("button", { type: "button", className: "p-quiet", hidden: true }, "Undo");
    this.undo.addEventListener("click", () => { this.words.focus(this.words.at); this.run(this.text); });
    this.copy = make("button", { type: "button", className: "p-quiet t-copy" }, "Copy");
    this.copy.addEventListener("click", () => this.#copy());
    this.problem = make("p", { className: "p-problem", dir: "auto" });
    this.notes = make("ul", { className: "t-notes" });
    this.bar = make("div", { className: "t-meta", hidden: true }, this.sure, this.copy, this.undo, this.others.button);
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

  // Translate a text; with a prefix, go on from there. `given` has the words that a person wrote, by their numbers.
  async run(text, prefix = "", given = new Map()) {
    this.stop();
    this.words.hold(); // it does not get smaller while it grows, so that the figure below stays where it is
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
      this.words.release();
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
    this.#write({ text: this.growing.text(), words: this.growing.written() }, trace, NOTHING.alarms);
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
    const told = (item.alarms ?? []).map((alarm) => ({ ...alarm, message: alarm.text }));
    const trace = heedful.named({ ...item.figure, name: this.name, alarms: told, gold: [], chosen: null });
    const warned = new Set(told.flatMap((alarm) => alarm.target));
    const alarms = new Set(placed(trace).flatMap((place, i) => (warned.has(place) ? [i] : [])));
    this.item = { ...item, ...this.#write(item, trace, alarms) };
    this.words.release();
    this.sure.textContent = `confidence ${percent(item.confidence)}`;
    this.undo.hidden = !this.prefix;
    this.bar.hidden = false;
    const notes = (item.notes ?? []).map((note) => make("li", { dir: "auto" }, note));
    this.notes.replaceChildren(...notes, ...unknown(trace.source));
    this.page.draw(this, trace);
  }

  // Show a text; returns it as it is shown, with unknown words by their names.
  #write(written, trace, alarms) {
    const named = heedful.named(trace);
    this.places = placed(named);
    const shown = renamed(written, this.places, named.target, this.given);
    this.words.show(shown.text, shown.words, { alarms, given: this.given, copied: shown.copied });
    return shown;
  }

  async #copy() {
    const done = await copied(this.item.text);
    this.page.say(done ? "The translation is copied." : "It could not be copied: select the text and copy it.");
    this.copy.textContent = done ? "Copied" : "Not copied";
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { this.copy.textContent = "Copy"; }, AGAIN);
  }

  async #alternatives(how) {
    const found = await ask("v1/translate", this.#body(how), this.control?.signal);
    const [item] = found.translations;
    const all = item.alternatives?.length ? item.alternatives : [item];
    return all.map((one) => {
      if (!one.figure) return one;
      const figure = heedful.named(one.figure);
      return { ...one, ...renamed(one, placed(figure), figure.target, this.given), figure };
    });
  }

  async #edit(i) {
    if (this.element.classList.contains("t-growing") || !this.item) return;
    const { item, words } = this;
    this.words.close?.();
    const word = words.words[i];
    const before = [...item.text].slice(0, word.start).join("");
    const text = await change(words, i);
    if (text === null || text === word.text) return;
    const given = new Map([...this.given].filter(([n]) => n < i));
    if (text) given.set(i, text);
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

// A text whose unknown words are written by the names that the figure has for them, or as a person has typed them.
function renamed({ text, words }, places, { words: named, copied = [] }, given) {
  if (!copied.length) return { text, words, copied: new Set() };
  const letters = [...text];
  const unknown = new Set(copied);
  const found = { text: "", words: [], copied: new Set() };
  let [at, length] = [0, 0];
  const add = (part) => { found.text += part; length += [...part].length; };
  words.forEach((word, i) => {
    add(letters.slice(at, word.start).join(""));
    const start = length;
    const typed = given.get(i);
    const whole = typed && !/\s/u.test(typed);
    if (unknown.has(places[i])) add(whole ? typed : named[places[i]][0]);
    else add(letters.slice(word.start, word.end).join(""));
    if (unknown.has(places[i]) && !whole) found.copied.add(i);
    found.words.push({ ...word, start, end: length });
    at = word.end;
  });
  add(letters.slice(at).join(""));
  return found;
}

// A note of the source words that the model cannot read, if there are any; punctuation is not worth one.
function unknown({ tokens, unknown: places = [] }) {
  const names = [...new Set(places.map((i) => tokens[i]))].filter((name) => !/^\p{P}*$/u.test(name));
  if (!names.length) return [];
  const list = names.flatMap((name, i) => [i ? ", " : "", make("bdi", {}, name)]);
  return [make("li", {}, "Not in this model\u2019s vocabulary: ", ...list)];
}

// Where the words of the text stand among those of the trace, which has the ends of sentences, too.
function placed({ target: { words, tokens } }) {
  const end = ([text, first, last]) => text === "</s>" && last - first === 1 && tokens[first] === "</s>";
  return words.flatMap((word, i) => (word[0] && !end(word) ? [i] : []));
}
