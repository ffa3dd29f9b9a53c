// Numbers: weights unpacked, pieces put together to words, rows cut by kept mass. No document in here.

const SEEN = 0.01; // the least weight that is drawn: less cannot be seen
const SEEN_OF_MANY = 0.03; // and between many words: thousands of threads would hide what they lie over
const FULL = 65535; // the weight 1

// `text` is base64 of little-endian numbers of 16 bits.
function numbers(text) {
  const raw = atob(text);
  const found = new Uint16Array(raw.length / 2);
  for (let i = 0; i < found.length; i++) found[i] = raw.charCodeAt(2 * i) | (raw.charCodeAt(2 * i + 1) << 8);
  return found;
}

// Maps of rows: those of row t of map m lie from starts[m * T + t] to the next.
function unpack(packed, T) {
  if (!packed) return null;
  const counts = numbers(packed.counts);
  const starts = new Uint32Array(counts.length + 1);
  counts.forEach((count, i) => { starts[i + 1] = starts[i] + count; });
  const [rest, columns, weights] = [packed.rest, packed.columns, packed.weights].map(numbers);
  return { floor: packed.floor, lost: packed.lost, T, starts, rest, columns, weights };
}

// One side by words or by pieces: the texts, and from which token to which each of them goes.
function units(side, unit) {
  if (unit === "pieces") return side.tokens.map((text, i) => ({ text, first: i, last: i + 1 }));
  return side.words.map(([text, first, last]) => ({ text, first, last }));
}

const UNKNOWN = "<unk>"; // the token of a word that is not in a vocabulary

// A trace whose unknown target words are named by the source word that they look at most, as a person reads them;
// `target.copied` has their numbers. Without weights they are only said to be unknown.
function named(trace) {
  const { source, target } = trace;
  const unknown = target.unknown ?? target.tokens.flatMap((token, i) => (token === UNKNOWN ? [i] : []));
  const some = ([text, first, last]) => text.includes(UNKNOWN) && unknown.some((i) => i >= first && i < last);
  if (!target.words.some(some)) return trace;
  const sides = [source, target].map((side) => units(side, "words"));
  const packed = unpack(trace.read, target.tokens.length);
  const rows = packed ? gather(packed, [0], ...sides) : [];
  const copied = [];
  const words = target.words.map((word, t) => {
    if (!some(word)) return word;
    copied.push(t);
    const best = rows[t]?.links.find(({ s }) => source.words[s][0] !== "</s>");
    const name = best && source.words[best.s][0].replace(/^\p{P}+(?=.)|(?<=.)\p{P}+$/gu, "");
    return [word[0].replace(/(<unk>)+/gu, () => name || "[unknown]"), ...word.slice(1)];
  });
  return { ...trace, target: { ...target, words, copied } };
}

// The mean of some maps between units, row by row: `visit` is given the number of a target unit, the source units that
// it looks at, all source units' weights, which count after it no more, and the sum of the row, with what was too small
// to be packed; both are to be multiplied by the last argument. A source unit sums its tokens, a target unit averages.
function visitRows(packed, maps, source, target, visit) {
  const owner = new Int32Array(1 + Math.max(0, ...source.map((u) => u.last))).fill(-1);
  source.forEach((u, i) => owner.fill(i, u.first, u.last));
  const sums = new Float64Array(source.length);
  const touched = [];
  target.forEach(({ first, last }, t) => {
    const scale = 1 / (FULL * maps.length * Math.max(1, last - first));
    let total = 0;
    touched.length = 0;
    for (const map of maps) {
      for (let token = first; token < last; token++) {
        const row = map * packed.T + token;
        total += packed.rest[row];
        for (let i = packed.starts[row]; i < packed.starts[row + 1]; i++) {
          total += packed.weights[i];
          const s = owner[packed.columns[i]] ?? -1;
          if (s < 0) continue;
          if (!sums[s]) touched.push(s);
          sums[s] += packed.weights[i];
        }
      }
    }
    visit(t, touched, sums, total, scale);
    for (const s of touched) sums[s] = 0;
  });
}

// The same as rows: for each target unit the source units it looks at, the largest weight first, and the row's sum.
function gather(packed, maps, source, target) {
  const rows = [];
  visitRows(packed, maps, source, target, (t, touched, sums, total, scale) => {
    const links = touched.map((s) => ({ s, w: sums[s] * scale })).sort((a, b) => b.w - a.w);
    rows.push({ links, total: total * scale });
  });
  return rows;
}

// The largest links of each row until they hold the share `keep` of it; and what share of all weight they hold.
function cut(rows, keep, least = rows.length > 80 ? SEEN_OF_MANY : SEEN) {
  const links = [];
  let shown = 0;
  let all = 0;
  rows.forEach((row, t) => {
    let sum = 0;
    for (const { s, w } of row.links) {
      if (w < least || sum >= keep * row.total - 1e-3) break;
      sum += w;
      links.push({ s, t, w });
    }
    shown += sum;
    all += row.total;
  });
  return { links, least, shown: all ? Math.min(1, shown / all) : 1 };
}

// How much each source unit is looked at, in rows.
function coverage(rows, count) {
  const sums = new Float64Array(count);
  for (const row of rows) for (const { s, w } of row.links) sums[s] += w;
  return sums;
}

// A share as a person reads it; what is hidden is never said to be nothing.
function percent(share) {
  const value = Math.round(100 * share);
  return share > 0 && value === 0 ? "under 1\u00a0%" : `${value}\u00a0%`;
}
