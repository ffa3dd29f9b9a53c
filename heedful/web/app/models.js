// The choice of models: by default all of a few, or the first of many.

import { make } from "./dom.js";
import { remember, remembered } from "./service.js";

const FEW = 3;

export class Models {
  constructor(element, changed) {
    this.element = element;
    this.changed = changed;
    this.all = [];
  }

  show(all) {
    const before = this.all.length ? this.names() : remembered("models").split("\n");
    const known = all.filter((model) => before.includes(model.name));
    const first = all.length <= FEW ? all : [all.find((model) => model.default) ?? all[0]];
    const chosen = known.length ? known : first;
    this.all = all;
    this.inputs = all.map((model) => {
      const input = make("input", { type: "checkbox", checked: chosen.includes(model) });
      input.addEventListener("change", () => this.#change(input));
      return input;
    });
    const labels = all.map((model, i) => make("label", {}, this.inputs[i], make("span", { dir: "auto" }, model.name)));
    this.element.replaceChildren(this.element.querySelector("legend"), ...labels);
    this.element.hidden = all.length < 2;
  }

  // At least one model stays selected.
  #change(input) {
    if (!this.chosen().length) { input.checked = true; return; }
    remember("models", this.names().join("\n"));
    this.changed();
  }

  chosen() {
    return this.all.filter((_, i) => this.inputs[i].checked);
  }

  names() {
    return this.chosen().map((model) => model.name);
  }
}
