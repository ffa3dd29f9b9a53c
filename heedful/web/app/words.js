// A translation as text whose words can be pointed at, moved through with the arrow keys, and edited.

import { make, percent } from "./dom.js";

const UNSURE = 0.5; // below this confidence a word is marked, as in the figure
let editors = 0;

export class Words {
  // `on` has the callbacks point(i), focus(i), with null for no word, and edit(i); `what` is a translation or a caption.
  constructor(on, what) {
    this.on = on;
    this.what = what;
    this.words = [];
    this.spans = [];
    this.gaps = [new Text()];
    this.at = 0;
    this.unfocused = null;
    this.element = make("p", { className: "t-text", dir: "auto", role: "group" }, this.gaps[0]);
    this.element.setAttribute("aria-label", `${what}: arrows move from word to word, Enter changes one`);
    this.#listen();
  }

  // `words` are { text, start, end, confidence }, counted in code points; `marks` has sets of their numbers.
  show(text, words, marks) {
    const letters = [...text];
    const cut = (start, end) => letters.slice(start, end).join("");
    this.words = words;
    const focused = this.spans.indexOf(document.activeElement);
    if (focused >= words.length) this.unfocused = focused;
    while (this.spans.length > words.length) { this.spans.pop().remove(); this.gaps.pop().remove(); }
    while (this.spans.length < words.length) this.#append();
    this.at = Math.min(this.at, Math.max(0, words.length - 1));
    let at = 0;
    words.forEach((word, i) => {
      set(this.gaps[i], cut(at, word.start));
      const span = this.spans[i];
      set(span.firstChild, cut(word.start, word.end));
      span.tabIndex = i === this.at ? 0 : -1;
      const [unsure, alarm, edited] = [word.confidence < UNSURE, marks.alarms.has(i), marks.edited.has(i)];
      const copied = marks.copied.has(i);
      span.classList.toggle("t-unsure", unsure);
      span.classList.toggle("t-alarm", alarm);
      span.classList.toggle("t-edited", edited);
      span.classList.toggle("t-copied", copied);
      const notes = [unsure && "low confidence", alarm && "alarm", edited && "edited", copied && (this.what === "caption" ? "unknown" : "copied from the source")];
      const title = [`confidence ${percent(word.confidence)}`, ...notes.filter(Boolean)].join(", ");
      span.title = title;
      span.setAttribute("aria-label", `${cut(word.start, word.end)}, ${title}`);
      at = word.end;
    });
    set(this.gaps[words.length], cut(at, letters.length));
    this.#recover();
  }

  // A word that had the focus gets it back when it is decoded again, unless the focus has moved.
  #recover() {
    if (this.unfocused === null) return;
    if (document.activeElement !== document.body) this.unfocused = null;
    else if (this.unfocused < this.spans.length) this.spans[this.unfocused].focus({ preventScroll: true });
  }

  #append() {
    const span = make("span", { className: "t-word", role: "button", tabIndex: -1 }, new Text());
    span.dataset.i = this.spans.length;
    this.spans.push(span);
    this.gaps.push(new Text());
    this.element.append(span, this.gaps.at(-1));
  }

  // Keep the height until releaseHeight().
  fixHeight() {
    this.element.style.minHeight = `${this.element.offsetHeight}px`;
  }

  releaseHeight() {
    this.element.style.minHeight = "";
  }

  // Highlight one word, and its partners.
  mark(active, partners = []) {
    this.spans.forEach((span, i) => {
      span.classList.toggle("t-active", i === active);
      span.classList.toggle("t-partner", partners.includes(i));
    });
  }

  focus(i) {
    this.spans[Math.min(i, this.spans.length - 1)]?.focus();
  }

  #listen() {
    const number = (event) => {
      const span = event.target.closest?.(".t-word");
      return span ? Number(span.dataset.i) : null;
    };
    const { element, on } = this;
    let focused = null; // the first tap on a word shows it, the second edits it
    element.addEventListener("pointerover", (event) => { if (event.pointerType === "mouse") on.point(number(event)); });
    element.addEventListener("pointerleave", () => on.point(null));
    element.addEventListener("pointerdown", () => { focused = element.querySelector(".t-word:focus"); });
    element.addEventListener("focusin", (event) => {
      const i = number(event);
      if (i === null) return;
      this.spans[this.at]?.setAttribute("tabindex", "-1");
      this.at = i;
      this.unfocused = null;
      this.spans[i].tabIndex = 0;
      on.focus(i);
    });
    element.addEventListener("focusout", () => on.focus(null));
    element.addEventListener("click", (event) => {
      const i = number(event);
      if (i === null) return;
      if (event.pointerType === "touch" && focused !== this.spans[i]) this.spans[i].focus();
      else on.edit(i);
    });
    element.addEventListener("keydown", (event) => this.#key(event, number(event)));
  }

  #key(event, i) {
    if (i === null || event.altKey || event.ctrlKey || event.metaKey) return;
    const right = getComputedStyle(this.element).direction === "rtl" ? -1 : 1;
    const moves = { ArrowRight: i + right, ArrowLeft: i - right, Home: 0, End: this.spans.length - 1 };
    if (["Enter", " ", "F2"].includes(event.key)) this.on.edit(i);
    else if (event.key in moves) this.spans[moves[event.key]]?.focus();
    else return;
    event.preventDefault();
  }
}

function set(node, text) {
  if (node.data !== text) node.data = text;
}

// Replace a word by a text field; resolves to the new text of word i, or to null if it is not changed.
export function editWord(words, i) {
  const span = words.spans[i];
  const old = span.textContent;
  const hint = `word-${++editors}`;
  const plain = { value: old, dir: "auto", spellcheck: false, autocapitalize: "off" };
  const input = make("input", { className: "t-field", ...plain });
  input.setAttribute("aria-label", `instead of ${old}`);
  input.setAttribute("aria-describedby", hint);
  const go = make("button", { type: "button", className: "p-main" }, "Go on from here");
  const leave = make("button", { type: "button", className: "p-secondary" }, "Leave it");
  const note = make("span", { id: hint, className: "p-hidden" }, "The words after it are written again.");
  const bar = make("div", { className: "t-bar" }, note, go, leave);
  const wide = span.offsetWidth;
  const fit = () => {
    const own = input.value === old ? 0 : [...input.value].length + 1;
    input.style.width = `max(${wide + 4}px, ${own}ch)`;
  };
  fit();
  words.fixHeight();
  span.hidden = true;
  span.before(input);
  words.element.after(bar);
  words.spans.forEach((other, j) => other.classList.toggle("t-discarded", j > i));
  input.focus();
  input.select();
  return new Promise((resolve) => {
    let open = true;
    const end = (value, stay = true) => {
      if (!open) return;
      open = false;
      words.releaseHeight();
      span.hidden = false;
      input.remove();
      bar.remove();
      words.spans.forEach((other) => other.classList.remove("t-discarded"));
      if (stay) words.focus(i);
      resolve(value);
    };
    input.addEventListener("input", fit);
    input.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter") end(input.value.trim());
      else if (event.key === "Escape") end(null);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    go.addEventListener("click", () => end(input.value.trim()));
    leave.addEventListener("click", () => end(null));
    words.close = () => end(null, false); // without moving the focus
  });
}
