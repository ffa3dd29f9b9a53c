// The data of the page: texts with their tokens and words, and groups of attention whose heads are decoded when needed.
// No drawing in here.

// base64 as bytes: by the browser if it can, otherwise in pieces, which need little memory.
function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const length = (text.length / 4) * 3 - (text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0);
  const bytes = new Uint8Array(length);
  for (let from = 0, at = 0; from < text.length; from += 65536) {
    const raw = atob(text.slice(from, from + 65536));
    for (let i = 0; i < raw.length; i++) bytes[at++] = raw.charCodeAt(i);
  }
  return bytes;
}

// Numbers from their differences.
function summed(differences) {
  let sum = 0;
  return Int32Array.from(differences, (difference) => (sum += difference));
}

// Where blocks of nearly equal size begin, as in heedful.trace.model_attention, and the end.
function blockEdges(count, blocks) {
  return Int32Array.from({ length: blocks + 1 }, (_, i) => Math.floor((i * count) / blocks));
}

// Words or tokens of a text: unit i has the tokens first[i] to last[i], and the characters start[i] to end[i].
class Units {
  constructor(text, first, last) {
    const { starts, ends } = text;
    Object.assign(this, { text, first, last, count: first.length });
    this.start = Int32Array.from(first, (token, i) => (token < last[i] ? starts[token] : 0));
    this.end = Int32Array.from(last, (token, i) => (first[i] < token ? ends[token - 1] : 0));
    // Tokens inside one character, and those that the text has in another order, keep to what is before them.
    for (let i = 1; i < this.count; i++) {
      this.start[i] = Math.max(this.start[i], this.end[i - 1]);
      this.end[i] = Math.max(this.end[i], this.start[i]);
    }
    this.owner = new Int32Array(text.count).fill(-1);
    for (let i = 0; i < this.count; i++) this.owner.fill(i, first[i], last[i]);
  }

  special(i) {
    return this.last[i] - this.first[i] === 1 && this.first[i] in this.text.names;
  }

  // The name of a unit, in lists and in the status.
  name(i) {
    if (this.special(i)) return this.text.names[this.first[i]];
    return visibleSpace(this.text.text.slice(this.start[i], this.end[i]).trim(), this.raw(i));
  }

  raw(i) {
    return this.text.text.slice(this.start[i], this.end[i]);
  }
}

// A unit of white space only is seen, too.
function visibleSpace(text, raw) {
  if (text) return text;
  if (!raw) return "·";
  return raw.replace(/\r\n?|\n/gu, "↵").replace(/\t/gu, "⇥").replace(/\s/gu, "␣");
}

class TextData {
  constructor(record) {
    this.text = record.text;
    this.names = record.names;
    this.rtl = record.rtl;
    this.starts = summed(record.starts);
    this.ends = summed(record.ends);
    this.count = this.starts.length;
    this.wordFirst = summed(record.first);
    this.wordLast = summed(record.last);
    this.made = {};
  }

  units(unit) {
    this.made[unit] ??= unit === "words"
      ? new Units(this, this.wordFirst, this.wordLast)
      : new Units(this, Int32Array.from({ length: this.count }, (_, i) => i), Int32Array.from({ length: this.count }, (_, i) => i + 1));
    return this.made[unit];
  }

  // The tokens of all places of a phrase, upper and lower case alike; special tokens by their names.
  find(phrase) {
    const wanted = phrase.trim().toLowerCase();
    if (!wanted) return [];
    const places = [];
    for (const [token, name] of Object.entries(this.names)) {
      if (name.toLowerCase().includes(wanted)) places.push([Number(token), Number(token) + 1]);
    }
    this.lower ??= this.text.toLowerCase().length === this.text.length ? this.text.toLowerCase() : this.text;
    for (let at = this.lower.indexOf(wanted); at >= 0; at = this.lower.indexOf(wanted, at + wanted.length)) {
      const [first, last] = [this.tokenAt(at), this.tokenAt(at + wanted.length - 1) + 1];
      if (first >= 0 && last > first) places.push([first, last]);
    }
    return places.sort((a, b) => a[0] - b[0]);
  }

  // The last token that begins at a character or before it.
  tokenAt(character) {
    let [low, high] = [0, this.count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.starts[middle] <= character) low = middle + 1;
      else high = middle;
    }
    let token = low - 1;
    while (token > 0 && this.ends[token] <= this.starts[token]) token--;
    return token;
  }
}

// All layers of one kind. A `pick` is what is shown of them: "3.4" is head 4 of layer 3, "3.*" the mean of the heads of
// layer 3, "*.4" that of head 4 of all layers, "mean" that of all heads, "rollout" attention rollout.
class Group {
  constructor(record, texts, key, data) {
    Object.assign(this, record);
    [this.L, this.H, this.T, this.S] = record.shape;
    [this.source, this.target] = [texts[record.source], texts[record.target]];
    this.self = record.kind !== "cross";
    this.key = key;
    this.data = data;
    this.heldHeads = new Set(record.held);
    this.complete = record.held.length === this.L * this.H;
    this.decoded = new Map();
    this.layerBlocks = [];
    const [b, c] = record.blocks;
    this.edges = { target: blockEdges(this.T, b), source: blockEdges(this.S, c) };
    const words = this.source.units("words");
    this.sinkParts = record.sinks.map(([word, name]) => ({ name, tokens: tokensOf(words, word) }));
    this.sinkTokens = this.sinkParts.flatMap(({ tokens }) => tokens);
  }

  bytes(name) {
    const element = this.data.get(`${this.key}.${name}`);
    return element ? bytesOf(element.textContent) : null;
  }

  has(pick) {
    const [layer, head, more] = pick.split(".");
    if (head === undefined) return pick === "mean" || (pick === "rollout" && this.data.has(`${this.key}.rollout`));
    const within = (text, most) => text === "*" || (/^\d+$/u.test(text) && Number(text) >= 1 && Number(text) <= most);
    return more === undefined && within(layer, this.L) && within(head, this.H) && pick !== "*.*";
  }

  // The heads that a pick is the mean of, as [layer, head] from 1; none for rollout.
  headsOf(pick) {
    if (pick === "rollout") return [];
    const [layer, head] = pick === "mean" ? ["*", "*"] : pick.split(".");
    const some = (text, most) => (text === "*" ? Array.from({ length: most }, (_, i) => i + 1) : [Number(text)]);
    return some(layer, this.L).flatMap((l) => some(head, this.H).map((h) => [l, h]));
  }

  describe(pick) {
    const [layer, head] = pick.split(".");
    if (pick === "mean") return "Mean of all heads";
    if (pick === "rollout") return "Attention rollout";
    if (head === "*") return `Layer ${layer}, mean of its heads`;
    if (layer === "*") return `Head ${head}, mean of all layers`;
    return `Layer ${layer}, head ${head}`;
  }

  // The rows of a pick, or null if this file has only its block summary. The last ones are kept.
  rows(pick) {
    if (!this.decoded.has(pick)) {
      this.decoded.set(pick, this.decode(pick));
      if (this.decoded.size > 12) this.decoded.delete(this.decoded.keys().next().value);
    }
    return this.decoded.get(pick);
  }

  decode(pick) {
    const bytes = this.bytes(pick);
    if (bytes) return decodeRows(bytes, this.T, this.S);
    const heads = this.headsOf(pick);
    if (heads.length < 2 || !heads.every(([l, h]) => this.heldHeads.has(`${l}.${h}`))) return null;
    return meanRows(heads.map(([l, h]) => decodeRows(this.bytes(`${l}.${h}`), this.T, this.S)), this.T, this.S);
  }

  // Row `token` of a head, if this file has it of all heads.
  singleRow(pick, token) {
    if (!this.single.includes(token)) return null;
    const name = `row.${token}`;
    if (!this.decoded.has(name)) this.decoded.set(name, decodeRows(this.bytes(name), this.L * this.H, 0));
    const rows = this.decoded.get(name);
    return { rows, numbers: this.headsOf(pick).map(([l, h]) => (l - 1) * this.H + h - 1) };
  }

  // The levels of all blocks of the heads of a layer, from 0 to 255: square roots of the mean weights.
  levels(layer) {
    this.layerBlocks[layer - 1] ??= this.bytes(`blocks.${layer - 1}`);
    const [b, c] = this.blocks;
    return (head) => this.layerBlocks[layer - 1].subarray((head - 1) * b * c, head * b * c);
  }

  // The mean weights of blocks, rows by columns.
  blockMeans(pick) {
    const [b, c] = this.blocks;
    const means = new Float32Array(b * c);
    const heads = this.headsOf(pick);
    for (const [l, h] of heads) this.levels(l)(h).forEach((level, i) => { means[i] += (level / 255) ** 2 / heads.length; });
    return means;
  }
}

// Rows as heedful.draw.explorer writes them: the weight that each key receives; then counts, rests, columns, weights.
function decodeRows(bytes, T, S) {
  const received = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + 4 * S));
  const sixteen = new Uint16Array(bytes.buffer.slice(bytes.byteOffset + 4 * S, bytes.byteOffset + bytes.length));
  if (!sixteen.length) return { received, summary: true }; // of a long text, the mean over all heads has no rows
  const starts = new Uint32Array(T + 1);
  for (let t = 0; t < T; t++) starts[t + 1] = starts[t] + sixteen[t];
  const n = starts[T];
  const columns = sixteen.subarray(2 * T, 2 * T + n);
  return { T, received, starts, rest: sixteen.subarray(T, 2 * T), columns, weights: sixteen.subarray(2 * T + n, 2 * T + 2 * n) };
}

// The mean of the rows of several heads.
function meanRows(heads, T, S) {
  const received = new Float32Array(S);
  for (const head of heads) head.received.forEach((sum, s) => { received[s] += sum / heads.length; });
  const [starts, rest, columns, weights] = [new Uint32Array(T + 1), new Uint16Array(T), [], []];
  const sums = new Float64Array(S);
  for (let t = 0; t < T; t++) {
    let left = 0;
    for (const head of heads) {
      left += head.rest[t];
      for (let i = head.starts[t]; i < head.starts[t + 1]; i++) sums[head.columns[i]] += head.weights[i];
    }
    for (let s = 0; s < S; s++) {
      const mean = Math.round(sums[s] / heads.length);
      if (mean > 0) { columns.push(s); weights.push(mean); }
      sums[s] = 0;
    }
    rest[t] = Math.min(FULL, Math.round(left / heads.length));
    starts[t + 1] = columns.length;
  }
  return { T, received, starts, rest, columns: Uint16Array.from(columns), weights: Uint16Array.from(weights) };
}
