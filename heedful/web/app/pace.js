// A small model writes a sentence faster than an eye can follow. What it decides is shown one token after the other, in
// the order it was decided, and never far behind.

const BEAT = 45; // milliseconds from one token to the next
const BEHIND = 1200; // milliseconds from when a token comes until it is shown, at most

export class Pace {
  constructor(show) {
    this.show = show;
    this.stop();
  }

  push(item) {
    this.waiting.push({ item, until: performance.now() + BEHIND });
    if (!this.timer) this.#next();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.wait = BEAT;
    this.waiting = [];
  }

  // As many as have to be shown now that all of them come in time.
  #count() {
    if (document.hidden || matchMedia("(prefers-reduced-motion: reduce)").matches) return this.waiting.length;
    const beats = Math.max(1, Math.floor((this.waiting[0].until - performance.now()) / this.wait));
    return Math.ceil(this.waiting.length / beats);
  }

  #next() {
    const items = this.waiting.splice(0, this.#count()).map(({ item }) => item);
    const begun = performance.now();
    this.timer = -1; // what comes while this is drawn waits
    this.show(items);
    if (this.timer !== -1) return; // it was stopped meanwhile
    // Long texts take longer to draw; most of the time is left to the reader, who may type, point and scroll.
    this.wait = Math.max(BEAT, 2 * (performance.now() - begun));
    this.timer = setTimeout(() => { this.timer = 0; if (this.waiting.length) this.#next(); }, this.wait);
  }
}
