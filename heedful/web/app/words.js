// A translation as text whose words can be pointed at, walked through with the arrows, and chosen to be changed.

import { make, percent } from "./make.js";

const UNSURE = 0.5; // below this confidence a word is marked, as in the figure

export class Words {
  // `on` is told where the attention of the reader is: point(i), focus(i), null for nowhere, and edit(i).
  constructor(on) {
    this.on = on;
    this.words = [];
    this.spans = [];
    this.gaps = [new Text()];
    this.at = 0;
    this.lost = null;
    this.element = make("p", { className: "t-text", dir: "auto", role: "group" }, this.gaps[0]);
    this.element.setAttribute("aria-label", "translation: arrows move from word to word, Enter changes one");
    this.#listen();
  }

  // `words` are { text, start, end, confidence }, counted in code points; `marks` has sets of their numbers.
  show(text, words, marks) {
    const letters = [...text];
    const cut = (start, end) => letters.slice(start, end).join("");
    this.words = words;
    const focused = this.spans.indexOf(document.activeElement);
    if (focused >= words.length) this.lost = focused;
    while (this.spans.length > words.length) { this.spans.pop().remove(); this.gaps.pop().remove(); }
    while (this.spans.length < words.length) this.#append();
    this.at = Math.min(this.at, Math.max(0, words.length - 1));
    let at = 0;
    words.forEach((word, i) => {
      set(this.gaps[i], cut(at, word.start));
      const span = this.spans[i];
      set(span.firstChild, cut(word.start, word.end));
      span.tabIndex = i === this.at ? 0 : -1;
      const [unsure, alarm, given] = [word.confidence < UNSURE, marks.alarms.has(i), marks.given.has(i)];
      const copied = marks.copied.has(i);
      span.classList.toggle("t-unsure", unsure);
      span.classList.toggle("t-alarm", alarm);
      span.classList.toggle("t-given", given);
      span.classList.toggle("t-copied", copied);
      const told = [unsure ? "the model was not sure" : "", alarm ? "look again" : "", given ? "yours" : "",
        copied ? "copied from the source, since the model has no word for it" : ""];
      const said = [`confidence ${percent(word.confidence)}`, ...told.filter(Boolean)].join(", ");
      span.title = said;
      span.setAttribute("aria-label", `${cut(word.start, word.end)}, ${said}`);
      at = word.end;
    });
    set(this.gaps[words.length], cut(at, letters.length));
    this.#recover();
  }

  // A word that had the focus has it again when it is written anew, unless the focus went elsewhere meanwhile.
  #recover() {
    if (this.lost === null) return;
    if (document.activeElement !== document.body) this.lost = null;
    else if (this.lost < this.spans.length) this.spans[this.lost].focus({ preventScroll: true });
  }

  #append() {
    const span = make("span", { className: "t-word", role: "button", tabIndex: -1 }, new Text());
    span.dataset.i = this.spans.length;
    this.spans.push(span);
    this.gaps.push(new Text());
    this.element.append(span, this.gaps.at(-1));
  }

  // Keep its height, until it is released.
  hold() {
    this.element.style.minHeight = `${this.element.offsetHeight}px`;
  }

  release() {
    this.element.style.minHeight = "";
  }

  // Light up one word, and those that look where it looks.
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
    let focused = null; // when a word has just been tapped for the first time, it is shown, not changed
    element.addEventListener("pointerover", (event) => { if (event.pointerType === "mouse") on.point(number(event)); });
    element.addEventListener("pointerleave", () => on.point(null));
    element.addEventListener("pointerdown", () => { focused = element.querySelector(".t-word:focus"); });
    element.addEventListener("focusin", (event) => {
      const i = number(event);
      if (i === null) return;
      this.spans[this.at]?.setAttribute("tabindex", "-1");
      this.at = i;
      this.lost = null;
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
