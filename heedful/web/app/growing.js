// A translation while it is written: the events of a stream put together to a trace, as the figure draws it.

const FULL = 65535; // the weight 1, as in the drawing code
const FINEST = 0.0005;
const LEFTWARDS = /(?=\p{L})[\p{sc=Arab}\p{sc=Hebr}\p{sc=Syrc}\p{sc=Thaa}\p{sc=Nkoo}\p{sc=Adlm}]/gu;

export class Growing {
  constructor(model, name, start) {
    this.model = model;
    this.name = name;
    this.readout = start.readout ?? "";
    const { text, tokens, unknown, words } = start.source;
    const places = words.map((word) => [word.text, word.first, word.last]);
    this.source = { tokens, unknown, words: places, turned: turned(text) };
    this.sentences = []; // of each: what stands before it, its text and its words, as the last token left them
    this.tokens = []; // of each: its text, in which sentence, how far the text reaches with it, and whether it is an end
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

  // What is written, with the spaces and line breaks between sentences that the source has.
  text() {
    return this.sentences.map(({ gap, text }) => gap + text).join("");
  }

  // Words with their places and confidence.
  written() {
    return this.sentences.flatMap(({ words }) => words);
  }

  // The words of the figure are those that are written, and the end of every sentence.
  #words() {
    const found = [];
    let at = 0;
    const ends = () => {
      for (; this.tokens[at]?.end; at += 1) found.push(["</s>", at, at + 1]);
    };
    for (const { text, end } of this.written()) {
      ends();
      const first = at;
      while (at < this.tokens.length && !this.tokens[at].end && this.tokens[at].reach <= end) at += 1;
      found.push([text, first, at]);
    }
    ends();
    return found;
  }

  trace() {
    const tokens = this.tokens.map(({ text }) => text);
    return {
      name: this.name, source: this.source, logs: this.logs,
      target: { tokens, words: this.#words(), turned: turned(tokens.join("")) },
      readout: `read-out: ${this.readout}`, self: false, growing: true, alarms: [], gold: [], chosen: null, heads: null,
      read: this.model.attention ? packed(this.rows) : null, layers: [], each: [],
      soon: this.model.attention && this.model.layers * this.model.heads > 1, // there will be heads to choose from
    };
  }
}

// Whether a text is written from right to left: as most of its letters are.
function turned(text) {
  const count = (pattern) => (text.replaceAll("</s>", "").match(pattern) ?? []).length;
  return 2 * count(LEFTWARDS) > count(/\p{L}/gu);
}

// Rows of weights as the drawing code takes them.
function packed(rows) {
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
