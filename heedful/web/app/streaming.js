// A translation while it is streamed: its events as a trace that the figure draws, and the rate at which they are shown.

const FULL = 65535; // the weight 1, as in the drawing code
const FINEST = 0.0005;
const RIGHT_TO_LEFT = /(?=\p{L})[\p{sc=Arab}\p{sc=Hebr}\p{sc=Syrc}\p{sc=Thaa}\p{sc=Nkoo}\p{sc=Adlm}]/gu;
const INTERVAL = 45; // milliseconds from one token to the next
const MAX_DELAY = 1200; // milliseconds of delay of a token at most

export class PartialTranslation {
  constructor(model, name, start) {
    this.model = model;
    this.name = name;
    this.readout = start.readout ?? "";
    this.image = start.image ?? null;
    this.source = start.image ? regionsOf(start.image) : textSource(start.source);
    this.sentences = []; // of each: the white space before it, its text and its words so far
    this.tokens = []; // of each: its text, sentence, the end of the text so far, and whether it is </s>
    this.logs = [];
    this.rows = [];
  }

  add({ token, sentence, start, gap, text, words, weights, weights_of: row, source_first: column, confidence, end }) {
    this.sentences[sentence] = { gap, text, words };
    this.tokens.push({ text: token, sentence, reach: start + [...text].length, end });
    this.logs.push(Math.log(Math.max(confidence, 1e-40)));
    const blank = () => new Array(this.source.tokens.length).fill(0);
    this.rows.push(blank());
    if (weights && row >= 0) this.rows[row].splice(column, weights.length, ...weights);
  }

  // The text, with the spaces and line breaks of the source between sentences.
  text() {
    return this.sentences.map(({ gap, text }) => gap + text).join("");
  }

  // The words of the text, with their characters and confidence.
  words() {
    return this.sentences.flatMap(({ words }) => words);
  }

  // The words of the trace: those of the text, and </s> of every sentence.
  #traceWords() {
    const words = [];
    let at = 0;
    const ends = () => {
      for (; this.tokens[at]?.end; at += 1) words.push(["</s>", at, at + 1]);
    };
    for (const { text, end } of this.words()) {
      ends();
      const first = at;
      while (at < this.tokens.length && !this.tokens[at].end && this.tokens[at].reach <= end) at += 1;
      words.push([text, first, at]);
    }
    ends();
    return words;
  }

  trace() {
    const tokens = this.tokens.map(({ text }) => text);
    return {
      name: this.name, source: this.source, logs: this.logs, ...(this.image && { image: this.image }),
      target: { tokens, words: this.#traceWords(), turned: rightToLeft(tokens.join("")) },
      readout: `read-out: ${this.readout}`, self: false, growing: true, alarms: [], gold: [], chosen: null, heads: null,
      read: this.model.attention ? encodeRows(this.rows) : null, layers: [], each: [],
      soon: this.model.attention && this.model.layers * this.model.heads > 1, // heads follow with the complete translation
    };
  }
}

function textSource({ text, tokens, unknown, words }) {
  const places = words.map((word) => [word.text, word.first, word.last]);
  return { tokens, unknown, words: places, turned: rightToLeft(text) };
}

// The regions of an image as tokens and words, named by row and column, and </s>, which is no region.
function regionsOf({ rows, columns }) {
  const names = Array.from({ length: rows * columns }, (_, i) => `${Math.floor(i / columns) + 1},${(i % columns) + 1}`);
  const tokens = [...names, "</s>"];
  return { tokens, unknown: [], words: tokens.map((text, i) => [text, i, i + 1]), turned: false };
}

// Whether most letters of a text are written from right to left.
function rightToLeft(text) {
  const count = (pattern) => (text.replaceAll("</s>", "").match(pattern) ?? []).length;
  return 2 * count(RIGHT_TO_LEFT) > count(/\p{L}/gu);
}

// Rows of weights as the drawing code decodes them.
function encodeRows(rows) {
  const [counts, rest, columns, weights] = [[], [], [], []];
  for (const row of rows) {
    let [count, little] = [0, 0];
    row.forEach((weight, column) => {
      if (weight < FINEST) { little += weight; return; }
      columns.push(column);
      weights.push(Math.round(FULL * Math.min(1, weight)));
      count += 1;
    });
    counts.push(count);
    rest.push(Math.round(FULL * Math.min(1, little)));
  }
  const [a, b, c, d] = [counts, rest, columns, weights].map(base64);
  return { counts: a, rest: b, columns: c, weights: d, floor: FINEST, lost: 0 };
}

function base64(numbers) {
  return btoa(numbers.map((n) => String.fromCharCode(n & 255, n >> 8)).join(""));
}

// A small model decodes a sentence faster than a reader can follow. Its tokens are shown one after the other, in order,
// and with a bounded delay.
export class TokenPlayback {
  constructor(show) {
    this.show = show;
    this.stop();
  }

  push(item) {
    this.waiting.push({ item, until: performance.now() + MAX_DELAY });
    if (!this.timer) this.#next();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.wait = INTERVAL;
    this.waiting = [];
  }

  // As many as have to be shown now for all to be in time.
  #count() {
    if (document.hidden || matchMedia("(prefers-reduced-motion: reduce)").matches) return this.waiting.length;
    const steps = Math.max(1, Math.floor((this.waiting[0].until - performance.now()) / this.wait));
    return Math.ceil(this.waiting.length / steps);
  }

  #next() {
    const items = this.waiting.splice(0, this.#count()).map(({ item }) => item);
    const started = performance.now();
    this.timer = -1; // events that arrive while this is drawn wait
    this.show(items);
    if (this.timer !== -1) return; // stopped meanwhile
    // Long texts take longer to draw; most of the time is left for typing, pointing and scrolling.
    this.wait = Math.max(INTERVAL, 2 * (performance.now() - started));
    this.timer = setTimeout(() => { this.timer = 0; if (this.waiting.length) this.#next(); }, this.wait);
  }
}
