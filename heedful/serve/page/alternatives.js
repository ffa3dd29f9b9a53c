// Other translations of the same text, best first: asked for when somebody wants to see them.

import { make, percent } from "./make.js";

const COUNT = 5; // alternatives, and the width of the beam that finds them

export class Alternatives {
  // `find(body)` asks the service; `choose(item)` shows one of them.
  constructor(find, choose) {
    this.find = find;
    this.choose = choose;
    this.items = null;
    this.button = make("button", { type: "button", className: "p-quiet", ariaExpanded: "false" }, "Alternatives");
    this.list = make("ol", { className: "t-others", hidden: true, ariaLabel: "alternatives" });
    this.button.addEventListener("click", () => this.open(this.list.hidden));
  }

  open(wide) {
    this.list.hidden = !wide;
    this.button.ariaExpanded = String(wide);
    if (wide && !this.items) this.#ask();
  }

  // Another translation is there: what was found is of the last one.
  renew() {
    this.items = null;
    this.asked = null;
    this.list.replaceChildren();
    if (!this.list.hidden) this.#ask();
  }

  async #ask() {
    const asked = (this.asked = {});
    this.list.replaceChildren(make("li", { className: "t-wait" }, "Looking for others …"));
    try {
      const items = await this.find({ beam: COUNT, n_best: COUNT });
      if (asked === this.asked) this.#show(items);
    } catch (error) {
      if (asked !== this.asked || error.name === "AbortError") return;
      this.list.replaceChildren(make("li", { className: "t-wait" }, error.message));
    }
  }

  #show(items) {
    this.items = items;
    const rows = items.map((item) => {
      const text = make("span", { dir: "auto" }, ...apart(item.text, items[0].text));
      const button = make("button", { type: "button" }, text, make("small", {}, percent(item.confidence)));
      button.addEventListener("click", () => { this.choose(item); this.press(item.text); });
      return make("li", {}, button);
    });
    this.list.replaceChildren(...rows);
    this.press(this.shown);
  }

  // Say which of them is the one that is shown.
  press(text) {
    this.shown = text;
    this.items?.forEach((item, i) => {
      this.list.children[i].firstChild.setAttribute("aria-pressed", String(item.text === text));
    });
  }
}

// A text with the words that the other one has not, in their order, set apart.
function apart(text, other) {
  const [mine, its] = [text, other].map((one) => one.split(/(\s+)/u));
  // long[i][j]: how many words mine from i and its from j have in common.
  const long = Array.from({ length: mine.length + 1 }, () => new Array(its.length + 1).fill(0));
  for (let i = mine.length - 1; i >= 0; i--) {
    for (let j = its.length - 1; j >= 0; j--) {
      long[i][j] = mine[i] === its[j] ? 1 + long[i + 1][j + 1] : Math.max(long[i + 1][j], long[i][j + 1]);
    }
  }
  let j = 0;
  return mine.map((word, i) => {
    while (j < its.length && its[j] !== word && long[i][j + 1] >= long[i + 1][j]) j += 1;
    if (its[j] !== word) return make("b", {}, word);
    j += 1;
    return word;
  });
}
