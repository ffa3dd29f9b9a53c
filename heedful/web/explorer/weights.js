// What selected tokens attend to, or are attended to by: one number for every word or token of the other side. No
// document in here.

const LEAST_SCALED = 1e-6; // weight of a row that can be scaled to 1

// `side` is that of the selected tokens: "target" are queries, whose rows are read; "source" are keys, whose columns are.
// Rows of several units are summed and divided by their number; columns are summed. With `apart`, weight on sinks is left
// out and the rest scaled to 1. `blocks` tells that only the block summary was there. `sinkWeights` has the weight on each sink.
function relate(group, pick, unit, side, tokens, apart) {
  const selected = ownersOf(group[side].units(unit), tokens);
  const without = apart && group.sinkTokens.length && !(side === "source" && tokens.some((t) => group.sinkTokens.includes(t)));
  const sinks = new Set(group.sinkTokens);
  const reading = readingOf(group, pick, side, side === "target" ? selected.flatMap((i) => tokensOf(group.target.units(unit), i)) : []);
  if (side === "target") {
    const row = meanRow(group, reading, group.target.units(unit), selected);
    const sinkWeights = group.sinkParts.map(({ name, tokens: own }) => [name, own.reduce((sum, token) => sum + row.values[token], 0)]);
    const onSinks = sinkWeights.reduce((sum, [, weight]) => sum + weight, 0);
    const others = row.rest + row.values.reduce((sum, x) => sum + x, 0) - onSinks;
    if (without && !reading.means) scaleWithout(row.values, sinks, others);
    const values = sumByUnit(row.values, group.source.units(unit));
    const rest = without ? row.rest / Math.max(1e-9, others) : row.rest;
    return { side: "source", values, rest, sinkWeights, blocks: Boolean(reading.means), selected };
  }
  const keys = new Set(selected.flatMap((i) => tokensOf(group.source.units(unit), i)));
  const units = group.target.units(unit);
  const values = meanByUnit(reading.means ? blockColumn(group, reading.means, keys) : columnOf(group, reading.rows, keys), units);
  if (without && !reading.means) {
    // The row of a word is the mean of those of its tokens, and then it is scaled.
    const others = meanByUnit(totalsWithout(reading.rows, sinks), units);
    for (let i = 0; i < values.length; i++) values[i] = others[i] > LEAST_SCALED ? values[i] / others[i] : 0;
  }
  return { side: "target", values, rest: 0, sinkWeights: [], blocks: Boolean(reading.means), selected };
}

// The share of all weight that each unit of the source receives.
function receivedShares(group, pick, unit, apart) {
  const rows = group.rows(pick);
  const received = rows ? Float32Array.from(rows.received) : blockReceived(group, group.blockMeans(pick));
  const total = received.reduce((sum, x) => sum + x, 0) || 1;
  for (let s = 0; s < received.length; s++) received[s] /= total;
  const onSinks = group.sinkTokens.reduce((sum, token) => sum + received[token], 0);
  const without = apart && rows && group.sinkTokens.length > 0;
  if (without) scaleWithout(received, new Set(group.sinkTokens), 1 - onSinks);
  return { side: "source", values: sumByUnit(received, group.source.units(unit)), rest: 0, sinkWeights: [], blocks: !rows, selected: [], received: true };
}

const tokensOf = (units, i) => Array.from({ length: units.last[i] - units.first[i] }, (_, n) => units.first[i] + n);

// The units that have some of these tokens, in order.
function ownersOf(units, tokens) {
  return [...new Set(tokens.map((token) => units.owner[token]).filter((i) => i >= 0))].sort((a, b) => a - b);
}

// Where weights come from: the rows of the head, single rows that are held of all heads, or means of blocks.
function readingOf(group, pick, side, tokens) {
  const rows = group.rows(pick);
  if (rows && !rows.summary) return { rows };
  if (side === "target" && tokens.length && tokens.every((token) => group.single.includes(token)) && pick !== "rollout") {
    return { single: (token) => group.singleRow(pick, token) };
  }
  return { means: group.blockMeans(pick) };
}

// The mean over units of the mean over their tokens: weights of all keys, and what is not held of them.
function meanRow(group, reading, units, selected) {
  const values = new Float32Array(group.S);
  let rest = 0;
  const add = (rows, number, scale) => {
    rest += (rows.rest[number] * scale) / FULL;
    for (let i = rows.starts[number]; i < rows.starts[number + 1]; i++) values[rows.columns[i]] += (rows.weights[i] * scale) / FULL;
  };
  for (const unit of selected) {
    const tokens = tokensOf(units, unit);
    const scale = 1 / (selected.length * tokens.length);
    for (const token of tokens) {
      if (reading.means) addBlockRow(group, reading.means, token, scale, values);
      else if (reading.rows) add(reading.rows, token, scale);
      else {
        const { rows, numbers } = reading.single(token);
        for (const number of numbers) add(rows, number, scale / numbers.length);
      }
    }
  }
  return { values, rest };
}

// The weight of every query on some keys together.
function columnOf(group, rows, keys) {
  const column = new Float32Array(group.T);
  for (let t = 0; t < group.T; t++) {
    let sum = 0;
    for (let i = rows.starts[t]; i < rows.starts[t + 1]; i++) if (keys.has(rows.columns[i])) sum += rows.weights[i];
    column[t] = sum / FULL;
  }
  return column;
}

// The weight of every query on all keys but some, with weights that are not held.
function totalsWithout(rows, keys) {
  return Float32Array.from(rows.rest, (rest, t) => {
    let sum = rest;
    for (let i = rows.starts[t]; i < rows.starts[t + 1]; i++) if (!keys.has(rows.columns[i])) sum += rows.weights[i];
    return sum / FULL;
  });
}

// Values without those of sinks, divided by the weight of all others.
function scaleWithout(values, sinks, others) {
  const scale = others > LEAST_SCALED ? 1 / others : 0;
  for (let i = 0; i < values.length; i++) values[i] = sinks.has(i) ? 0 : values[i] * scale;
}

function sumByUnit(values, units) {
  const sums = new Float32Array(units.count);
  for (let i = 0; i < units.count; i++) for (let token = units.first[i]; token < units.last[i]; token++) sums[i] += values[token];
  return sums;
}

function meanByUnit(values, units) {
  const means = sumByUnit(values, units);
  for (let i = 0; i < units.count; i++) means[i] /= Math.max(1, units.last[i] - units.first[i]);
  return means;
}

// The block that has a token.
function blockOf(edges, token) {
  let block = Math.min(edges.length - 2, Math.floor((token * (edges.length - 1)) / edges.at(-1)));
  while (edges[block + 1] <= token) block++;
  while (edges[block] > token) block--;
  return block;
}

function addBlockRow(group, means, token, scale, values) {
  const { target, source } = group.edges;
  const [, c] = group.blocks;
  const row = blockOf(target, token);
  for (let j = 0; j < c; j++) {
    const each = (means[row * c + j] * scale) / (source[j + 1] - source[j]);
    const end = group.causal ? Math.min(source[j + 1], token + 1) : source[j + 1]; // nothing after the token
    for (let s = source[j]; s < end; s++) values[s] += each;
  }
}

function blockColumn(group, means, keys) {
  const { target, source } = group.edges;
  const [b, c] = group.blocks;
  const column = new Float32Array(group.T);
  for (const key of keys) {
    const j = blockOf(source, key);
    for (let i = 0; i < b; i++) {
      const each = means[i * c + j] / (source[j + 1] - source[j]);
      const begin = group.causal ? Math.max(target[i], key) : target[i]; // nothing before the key
      for (let t = begin; t < target[i + 1]; t++) column[t] += each;
    }
  }
  return column;
}

function blockReceived(group, means) {
  const { target, source } = group.edges;
  const [b, c] = group.blocks;
  const received = new Float32Array(group.S);
  for (let j = 0; j < c; j++) {
    let sum = 0;
    for (let i = 0; i < b; i++) sum += means[i * c + j] * (target[i + 1] - target[i]);
    received.fill(sum / (source[j + 1] - source[j]), source[j], source[j + 1]);
  }
  return received;
}

// The largest values, as [unit, value], without some units.
function largestUnits(values, most, without = new Set()) {
  const found = [];
  for (let i = 0; i < values.length; i++) {
    if (values[i] <= 0 || without.has(i) || (found.length === most && values[i] <= found.at(-1)[1])) continue;
    let at = found.length;
    while (at > 0 && found[at - 1][1] < values[i]) at--;
    found.splice(at, 0, [i, values[i]]);
    if (found.length > most) found.pop();
  }
  return found;
}
