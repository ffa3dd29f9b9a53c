// The choice of models: by default all of a few, or the first of many. All chosen ones translate text, or all caption
// images: choosing one of the other kind unchooses these.

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
    const main = known[0] ?? all.find((model) => model.default) ?? all[0];
    const like = (model) => model.reads_images === main.reads_images;
    const first = all.length <= FEW ? all : [main];
    const chosen = (known.length ? known : first).filter(like);
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
    const { reads_images: images } = this.all[this.inputs.indexOf(input)];
    this.#uncheck((model) => model.reads_images !== images);
    this.#changed();
  }

  #uncheck(which) {
    this.all.forEach((model, i) => { if (which(model)) this.inputs[i].checked = false; });
  }

  #changed() {
    remember("models", this.names().join("\n"));
    this.changed();
  }

  // Whether the chosen models caption images.
  get images() {
    return this.chosen()[0]?.reads_images ?? false;
  }

  // Choose a model that captions images, if none is chosen and there is one; returns whether one is chosen.
  chooseImages() {
    const first = this.all.findIndex((model) => model.reads_images);
    if (this.images || first < 0) return this.images;
    this.#uncheck(() => true);
    this.inputs[first].checked = true;
    this.#changed();
    return true;
  }

  chosen() {
    return this.all.filter((_, i) => this.inputs[i].checked);
  }

  names() {
    return this.chosen().map((model) => model.name);
  }
}
