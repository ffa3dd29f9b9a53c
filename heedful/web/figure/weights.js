// Weights: decoded from JSON, summed from tokens to words, limited to the largest. No document in here.

const VISIBLE = 0.01; // the least weight that is drawn
const VISIBLE_OF_MANY = 0.03; // and between many words, where thousands of thin ribbons would hide the others
const FULL = 65535; // the weight 1

// `text` is base64 of little-endian numbers of 16 bits.
function numbers(text) {
  const raw = atob(text);
  const values = new Uint16Array(raw.length / 2);
  for (let i = 0; i < values.length; i++) values[i] = raw.charCodeAt(2 * i) | (raw.charCodeAt(2 * i + 1) << 8);
  return values;
}

// Sparse maps: row t of map m is from starts[m * T + t] to the next start.
function decodeMaps(sparse, T) {
  if (!sparse) return null;
  const counts = numbers(sparse.counts);
  const starts = new Uint32Array(counts.length + 1);
  counts.forEach((count, i) => { starts[i + 1] = starts[i] + count; });
  const [rest, columns, weights] = [sparse.rest, sparse.columns, sparse.weights].map(numbers);
  return { floor: sparse.floor, lost: sparse.lost, T, starts, rest, columns, weights };
}

// One side by words or by tokens: the texts, each with its tokens first:last.
function units(side, unit) {
  if (unit === "tokens") return side.tokens.map((text, i) => ({ text, first: i, last: i + 1 }));
  return side.words.map(([text, first, last]) => ({ text, first, last }));
}

// The units of the source; those of an image are its regions, named by row and column.
function sourceUnits({ source, image }, unit) {
  if (!image) return units(source, unit);
  const name = (i) => `row\u00a0${Math.floor(i / image.columns) + 1}, column\u00a0${(i % image.columns) + 1}`;
  const count = image.rows * image.columns;
  return units(source, unit).map((one, i) => ({ ...one, text: i < count ? name(i) : "no region" }));
}

const UNKNOWN = "<unk>"; // the token of unknown words

// A trace whose unknown target words have the name of the source word with the largest weight; `target.copied` has their
// numbers. Without weights, and in captions of images, they are [unknown].
function nameUnknown(trace) {
  const { source, target } = trace;
  const unknown = target.unknown ?? target.tokens.flatMap((token, i) => (token === UNKNOWN ? [i] : []));
  const some = ([text, first, last]) => text.includes(UNKNOWN) && unknown.some((i) => i >= first && i < last);
  if (!target.words.some(some)) return trace;
  const sides = [source, target].map((side) => units(side, "words"));
  const sparse = decodeMaps(trace.read, target.tokens.length);
  const rows = sparse ? wordRows(sparse, [0], ...sides) : [];
  const copied = [];
  const words = target.words.map((word, t) => {
    if (!some(word)) return word;
    copied.push(t);
    const best = !trace.image && rows[t]?.links.find(({ s }) => source.words[s][0] !== "</s>");
    const name = best && source.words[best.s][0].replace(/^\p{P}+(?=.)|(?<=.)\p{P}+$/gu, "");
    return [word[0].replace(/(<unk>)+/gu, () => name || "[unknown]"), ...word.slice(1)];
  });
  return { ...trace, target: { ...target, words, copied } };
}

// The mean of some maps between units, row by row: `visit` gets the number of a target unit, the source units with weight,
// the weights of all source units, valid during the call only, and the sum of the row, with weights too small to be
// encoded; both have to be multiplied by the last argument. Source units sum over their tokens, target units average.
function visitRows(sparse, maps, source, target, visit) {
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
        const row = map * sparse.T + token;
        total += sparse.rest[row];
        for (let i = sparse.starts[row]; i < sparse.starts[row + 1]; i++) {
          total += sparse.weights[i];
          const s = owner[sparse.columns[i]] ?? -1;
          if (s < 0) continue;
          if (!sums[s]) touched.push(s);
          sums[s] += sparse.weights[i];
        }
      }
    }
    visit(t, touched, sums, total, scale);
    for (const s of touched) sums[s] = 0;
  });
}

// The rows themselves: for each target unit its source units, the largest weight first, and the sum of the row.
function wordRows(sparse, maps, source, target) {
  const rows = [];
  visitRows(sparse, maps, source, target, (t, touched, sums, total, scale) => {
    const links = touched.map((s) => ({ s, w: sums[s] * scale })).sort((a, b) => b.w - a.w);
    rows.push({ links, total: total * scale });
  });
  return rows;
}

// The largest links of each row, up to the share `keep` of it, and the share of all weight that they have.
function largestLinks(rows, keep, least = rows.length > 80 ? VISIBLE_OF_MANY : VISIBLE) {
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

// The attention that each source unit receives, in rows.
function coverage(rows, count) {
  const sums = new Float64Array(count);
  for (const row of rows) for (const { s, w } of row.links) sums[s] += w;
  return sums;
}

// A share in per cent; one above 0 is never shown as 0.
function percent(share) {
  const value = Math.round(100 * share);
  return share > 0 && value === 0 ? "under 1\u00a0%" : `${value}\u00a0%`;
}
