// The translation of a text, or the caption of a picture, by one model: its stream, its text, its alternatives, and its panel of the figure.

import { Alternatives } from "./alternatives.js";
import { copyText, make, percent } from "./dom.js";
import { request, streamEvents } from "./service.js";
import { PartialTranslation, TokenPlayback } from "./streaming.js";
import { Words, editWord } from "./words.js";

const LEAST = 5; // per cent: words with less attention to a source word are highlighted in the figure only
const SHOWN = 2000; // milliseconds that the button says what it did

export class Translation {
  // `page` has draw(translation, trace), finished(), announce(text), failed(translation, error) and panel(translation).
  // Its `source` has a `text` or a `picture`.
  constructor(model, name, page) {
    Object.assign(this, { model, name, page, source: { text: "" }, prefix: "", edited: new Map(), item: null, places: [] });
    this.what = model.reads_images ? "caption" : "translation";
    this.words = new Words({
      point: (i) => this.#point(i, "pointed"), focus: (i) => this.#point(i, "focused"), edit: (i) => this.#edit(i),
    }, this.what);
    this.playback = new TokenPlayback((items) => this.#showEvents(items));
    this.others = new Alternatives((how) => this.#alternatives(how), (item) => this.#show(item));
    this.confidence = make("span", { className: "t-confidence" });
    this.undo = make("button", { type: "button", className: "p-secondary", hidden: true }, "Undo");
    this.undo.addEventListener("click", () => { this.words.focus(this.words.at); this.run(this.source); });
    this.copy = make("button", { type: "button", className: "p-secondary t-copy" }, "Copy");
    this.copy.addEventListener("click", () => this.#copy());
    this.problem = make("p", { className: "p-problem", dir: "auto" });
    this.notes = make("ul", { className: "t-notes" });
    this.bar = make("div", { className: "t-meta", hidden: true }, this.confidence, this.copy, this.undo, this.others.button);
    const rest = [this.problem, this.bar, this.others.list, this.notes];
    this.element = make("div", { className: "t-translation" }, this.words.element, ...rest);
  }

  // The body of a request; `how` has the options.
  #body(how) {
    const options = { model: this.model.name, trace: true, ...(this.prefix && { prefix: this.prefix }), ...how };
    const { text, picture } = this.source;
    if (!picture) return { text, ...options };
    const form = new FormData();
    form.append("image", picture.file, "image");
    for (const [name, value] of Object.entries({ ...options, name: picture.name.slice(-200) })) form.append(name, value);
    return form;
  }

  #stream(signal) {
    if (!this.source.picture) return streamEvents("v1/stream", this.#body({ beam: 1 }), signal);
    return streamEvents("v1/caption", this.#body({ stream: true }), signal);
  }

  stop() {
    this.control?.abort();
    this.playback.stop();
    this.words.close?.();
    this.#finish();
  }

  #finish() {
    this.element.classList.remove("t-streaming");
    this.element.setAttribute("aria-busy", "false");
    this.page.panel(this)?.status.removeAttribute("aria-live");
  }

  // Translate or caption a source; with a prefix, continue from there. `edited` has the words that the reader wrote, by their numbers.
  async run(source, prefix = "", edited = new Map()) {
    this.stop();
    this.words.fixHeight(); // so that the figure below does not move
    const before = { prefix: this.prefix, edited: this.edited };
    const another = source.picture && source.picture !== this.source.picture;
    Object.assign(this, { source, prefix, edited, failed: false });
    if (another) this.#clear();
    const control = (this.control = new AbortController());
    this.element.setAttribute("aria-busy", "true");
    this.problem.textContent = "";
    try {
      for await (const event of this.#stream(control.signal)) this.playback.push(event);
    } catch (error) {
      if (control.signal.aborted) return;
      this.playback.stop();
      this.#finish();
      this.words.releaseHeight();
      this.failed = true;
      if (error.field === "prefix") Object.assign(this, before); // the last translation is still shown
      this.page.failed(this, error);
    }
  }

  // Show another picture, at once and without a caption.
  #clear() {
    this.item = null;
    this.words.show("", [], { alarms: new Set(), edited: new Map(), copied: new Set() });
    this.words.releaseHeight();
    this.others.open(false);
    this.bar.hidden = true;
    this.notes.replaceChildren();
    this.page.draw(this, this.blank());
  }

  // The trace of a picture before the first word is written.
  blank() {
    const [rows, columns] = this.model.grid;
    const { name = "", width = 4, height = 3, url = null } = this.source.picture ?? {};
    const image = { name, width, height, rows, columns, picture: url };
    return new PartialTranslation(this.model, this.name, { readout: "\u2026", image }).trace();
  }

  // Repeat a failed request.
  retry() {
    this.run(this.source, this.prefix, this.edited);
  }

  // Show events of the stream; only the last of them is drawn.
  #showEvents(items) {
    for (const [name, data] of items) {
      if (name === "start") this.partial = new PartialTranslation(this.model, this.name, this.#pictured(data));
      else if (name === "token") this.partial.add(data);
      else if (name === "done") { this.#done(data.translation ?? data.caption); return; }
    }
    const trace = this.partial.trace();
    this.element.classList.add("t-streaming");
    this.bar.hidden = true;
    this.#write({ text: this.partial.text(), words: this.partial.words() }, trace, new Set());
    this.page.draw(this, trace);
  }

  // A record whose image has the picture that is on the page.
  #pictured(record) {
    if (!record?.image) return record;
    return { ...record, image: { ...record.image, picture: this.source.picture?.url || null } };
  }

  #done(item) {
    this.#finish();
    this.#show(item);
    this.others.press(item.text);
    this.others.reset();
    this.page.finished();
  }

  // Show a complete translation: the streamed one or an alternative.
  #show(item) {
    const messages = (item.alarms ?? []).map((alarm) => ({ ...alarm, message: alarm.text }));
    const trace = heedful.nameUnknown({ ...this.#pictured(item.figure), name: this.name, alarms: messages, gold: [], chosen: null });
    const alarmed = new Set(messages.flatMap((alarm) => alarm.target));
    const alarms = new Set(wordPlaces(trace).flatMap((place, i) => (alarmed.has(place) ? [i] : [])));
    this.item = { ...item, ...this.#write(item, trace, alarms) };
    this.words.releaseHeight();
    this.confidence.textContent = `confidence ${percent(item.confidence)}`;
    this.undo.hidden = !this.prefix;
    this.bar.hidden = false;
    const notes = (item.notes ?? []).map((note) => make("li", { dir: "auto" }, note));
    this.notes.replaceChildren(...notes, ...unknownNote(trace.source));
    this.page.draw(this, trace);
  }

  // Show a text, and return it as it is shown, with names for unknown words.
  #write(written, trace, alarms) {
    const named = heedful.nameUnknown(trace);
    this.places = wordPlaces(named);
    const shown = replaceUnknown(written, this.places, named.target, this.edited);
    this.words.show(shown.text, shown.words, { alarms, edited: this.edited, copied: shown.copied });
    return shown;
  }

  async #copy() {
    const done = await copyText(this.item.text);
    this.page.announce(done ? `The ${this.what} is copied.` : "It could not be copied: select the text and copy it.");
    this.copy.textContent = done ? "Copied" : "Not copied";
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { this.copy.textContent = "Copy"; }, SHOWN);
  }

  async #alternatives(how) {
    const path = this.source.picture ? "v1/caption" : "v1/translate";
    const answer = await request(path, this.#body(how), this.control?.signal);
    const item = answer.caption ?? answer.translations[0];
    const all = item.alternatives?.length ? item.alternatives : [item];
    return all.map((one) => {
      if (!one.figure) return one;
      const figure = heedful.nameUnknown(one.figure);
      return { ...one, ...replaceUnknown(one, wordPlaces(figure), figure.target, this.edited), figure };
    });
  }

  async #edit(i) {
    if (this.element.classList.contains("t-streaming") || !this.item) return;
    const { item, words } = this;
    this.words.close?.();
    const word = words.words[i];
    const before = [...item.text].slice(0, word.start).join("");
    const text = await editWord(words, i);
    if (text === null || text === word.text) return;
    const edited = new Map([...this.edited].filter(([n]) => n < i));
    if (text) edited.set(i, text);
    this.run(this.source, before + text, edited);
  }

  // While a caption is written, mark the last word with weights in its panel.
  light() {
    const panel = this.page.panel(this);
    if (!this.source.picture || !this.element.classList.contains("t-streaming") || !panel?.units) return;
    const written = ({ text }, i) => text !== "</s>" && panel.rows[i].total > 0;
    const last = panel.units.target.findLastIndex(written);
    if (last < 0) return;
    const active = { panel, side: "target", i: last };
    panel.status.setAttribute("aria-live", "off"); // the whole caption is announced at its end
    panel.mark(active);
    this.mark(panel, active);
  }

  // Mark the word that is pointed at or focused in the figure too.
  #point(i, how) {
    const panel = this.page.panel(this);
    if (!panel?.units) return;
    const place = i === null ? undefined : this.places[i];
    const unit = panel.unit === "words" ? place : panel.trace.target.words[place]?.[1];
    panel.view[how] = panel.units.target[unit] ? { panel, side: "target", i: unit } : null;
    panel.view.mark();
  }

  // Mark the words that are marked in the figure.
  mark(panel, active) {
    const number = (unit) => this.places.findIndex((place) => {
      const [, first, last] = panel.trace.target.words[place] ?? [];
      return panel.unit === "words" ? place === unit : unit >= first && unit < last;
    });
    const enough = (item) => parseInt(item.dataset.share, 10) >= LEAST;
    const partners = panel.items.target.flatMap((item, i) => (enough(item) ? [number(i)] : []));
    this.words.mark(active?.side === "target" ? number(active.i) : -1, active?.side === "source" ? partners : []);
  }

  showProblem(error) {
    this.problem.textContent = error.message;
  }
}

// A text with the names that the figure has for unknown words, or with what the reader typed instead.
function replaceUnknown({ text, words }, places, { words: named, copied = [] }, edited) {
  if (!copied.length) return { text, words, copied: new Set() };
  const letters = [...text];
  const unknown = new Set(copied);
  const result = { text: "", words: [], copied: new Set() };
  let [at, length] = [0, 0];
  const add = (part) => { result.text += part; length += [...part].length; };
  words.forEach((word, i) => {
    add(letters.slice(at, word.start).join(""));
    const start = length;
    const typed = edited.get(i);
    const whole = typed && !/\s/u.test(typed);
    if (unknown.has(places[i])) add(whole ? typed : named[places[i]][0]);
    else add(letters.slice(word.start, word.end).join(""));
    if (unknown.has(places[i]) && !whole) result.copied.add(i);
    result.words.push({ ...word, start, end: length });
    at = word.end;
  });
  add(letters.slice(at).join(""));
  return result;
}

// A note about unknown source words, if there are any besides punctuation.
function unknownNote({ tokens, unknown: places = [] }) {
  const names = [...new Set(places.map((i) => tokens[i]))].filter((name) => !/^\p{P}*$/u.test(name));
  if (!names.length) return [];
  const list = names.flatMap((name, i) => [i ? ", " : "", make("bdi", {}, name)]);
  return [make("li", {}, "Not in this model\u2019s vocabulary: ", ...list)];
}

// The indices of the words of the text among those of the trace, which has </s> too.
function wordPlaces({ target: { words, tokens } }) {
  const end = ([text, first, last]) => text === "</s>" && last - first === 1 && tokens[first] === "</s>";
  return words.flatMap((word, i) => (word[0] && !end(word) ? [i] : []));
}
