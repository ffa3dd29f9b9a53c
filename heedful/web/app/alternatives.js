// Other translations of the same text, best first, requested when the list is opened.

import { make, percent } from "./dom.js";

const WORDS = new Intl.Segmenter(undefined, { granularity: "word" }); // also without spaces
const COUNT = 5; // alternatives, and the width of the beam that finds them

export class Alternatives {
  // `find(body)` requests them; `choose(item)` shows one of them.
  constructor(find, choose) {
    this.find = find;
    this.choose = choose;
    this.items = null;
    this.button = make("button", { type: "button", className: "p-secondary", ariaExpanded: "false" }, "Alternatives");
    this.list = make("ol", { className: "t-alternatives", hidden: true, ariaLabel: "alternatives" });
    this.button.addEventListener("click", () => this.open(this.list.hidden));
  }

  open(expanded) {
    this.list.hidden = !expanded;
    this.button.ariaExpanded = String(expanded);
    if (expanded && !this.items) this.#request();
  }

  // After another translation: the items are those of the last one.
  reset() {
    this.items = null;
    this.request = null;
    this.list.style.minHeight = `${this.list.offsetHeight}px`; // what is below does not move until there are others
    this.list.replaceChildren();
    if (!this.list.hidden) this.#request();
  }

  async #request() {
    const request = (this.request = {});
    this.list.replaceChildren(make("li", { className: "t-wait" }, "Searching …"));
    try {
      const items = await this.find({ beam: COUNT, n_best: COUNT });
      if (request === this.request) this.#show(items);
    } catch (error) {
      if (request !== this.request || error.name === "AbortError") return;
      this.list.style.minHeight = "";
      this.list.replaceChildren(make("li", { className: "t-wait" }, error.message));
    }
  }

  #show(items) {
    this.items = items;
    const rows = items.map((item) => {
      const pieces = splitByDifference(item.text, items[0].text);
      const text = make("span", { dir: "auto" }, ...pieces.map(([piece, other]) => (other ? make("b", {}, piece) : piece)));
      const button = make("button", { type: "button" }, text, make("small", {}, percent(item.confidence)));
      button.addEventListener("click", () => { this.choose(item); this.press(item.text); });
      return make("li", {}, button);
    });
    this.list.replaceChildren(...rows);
    this.list.style.minHeight = "";
    this.press(this.shown);
  }

  // Mark the one that is shown.
  press(text) {
    this.shown = text;
    this.items?.forEach((item, i) => {
      this.list.children[i].firstChild.setAttribute("aria-pressed", String(item.text === text));
    });
  }
}

// A text as [part, differs]: a word differs if it is not in the longest common subsequence; white space never does.
function splitByDifference(text, other) {
  const [own, others] = [text, other].map((one) => Array.from(WORDS.segment(one), ({ segment }) => segment));
  const numbers = new Map(); // words are compared as numbers
  const numberOf = (word) => numbers.get(word) ?? numbers.set(word, numbers.size).get(word);
  const differs = new Set(withoutPartner(own.filter(visible).map(numberOf), others.filter(visible).map(numberOf)));
  let number = -1;
  return own.map((part) => {
    number += visible(part);
    return [part, visible(part) && differs.has(number)];
  });
}

const visible = (part) => Boolean(part.trim());

// The indices of words of `own` outside of the longest common subsequence.
function withoutPartner(own, others) {
  let first = 0;
  while (first < own.length && first < others.length && own[first] === others[first]) first += 1;
  let [m, n] = [own.length, others.length];
  while (m > first && n > first && own[m - 1] === others[n - 1]) [m, n] = [m - 1, n - 1];
  // long[i][j]: the length of that of own from i on and others from j on.
  const long = Array.from({ length: m - first + 1 }, () => new Uint16Array(n - first + 1));
  for (let i = m - 1; i >= first; i -= 1) {
    const [row, below] = [long[i - first], long[i - first + 1]];
    for (let j = n - 1; j >= first; j -= 1) {
      row[j - first] = own[i] === others[j] ? 1 + below[j - first + 1] : Math.max(below[j - first], row[j - first + 1]);
    }
  }
  const indices = [];
  let j = first;
  for (let i = first; i < m; i += 1) {
    while (j < n && own[i] !== others[j] && long[i - first][j - first + 1] === long[i - first][j - first]) j += 1;
    if (j < n && own[i] === others[j]) j += 1;
    else indices.push(i);
  }
  return indices;
}
