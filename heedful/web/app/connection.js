// While the service is unavailable, show that, and try again until it answers.

import { request } from "./service.js";

const WAITS = [1, 2, 4, 8, 10]; // seconds; the last one repeats

export class Connection {
  // `back` is called when the service answers again.
  constructor(element, back) {
    this.element = element;
    this.back = back;
    this.tries = 0;
    element.querySelector("button").addEventListener("click", () => this.#try());
    addEventListener("online", () => { if (!element.hidden) this.#try(); });
  }

  lost(error) {
    const kept = "What you typed is kept; the page tries again by itself.";
    this.element.querySelector("p").textContent = `${error.message} ${kept}`;
    if (!this.element.hidden) return; // already trying
    this.element.hidden = false;
    this.#wait();
  }

  // Start with short waits again.
  reset() {
    this.tries = 0;
  }

  #wait() {
    clearTimeout(this.timer);
    const wait = WAITS[Math.min(this.tries++, WAITS.length - 1)];
    this.timer = setTimeout(() => this.#try(), 1000 * wait);
  }

  async #try() {
    clearTimeout(this.timer);
    try {
      await request("ready");
    } catch {
      this.#wait();
      return;
    }
    this.element.hidden = true;
    this.back();
  }
}
