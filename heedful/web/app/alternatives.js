// Other translations of the same text, best first: asked for when somebody wants to see them.

import { differing } from "./differ.js";
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
    this.list.style.minHeight = `${this.list.offsetHeight}px`; // what is below stays where it is until others are there
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
      this.list.style.minHeight = "";
      this.list.replaceChildren(make("li", { className: "t-wait" }, error.message));
    }
  }

  #show(items) {
    this.items = items;
    const rows = items.map((item) => {
      const pieces = differing(item.text, items[0].text);
      const text = make("span", { dir: "auto" }, ...pieces.map(([piece, other]) => (other ? make("b", {}, piece) : piece)));
      const button = make("button", { type: "button" }, text, make("small", {}, percent(item.confidence)));
      button.addEventListener("click", () => { this.choose(item); this.press(item.text); });
      return make("li", {}, button);
    });
    this.list.replaceChildren(...rows);
    this.list.style.minHeight = "";
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
