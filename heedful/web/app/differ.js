// In which words a text differs from another one: those that are in no longest sequence that both have in common.

const WORDS = new Intl.Segmenter(undefined, { granularity: "word" }); // also where no space is between them

// A text cut into [piece, differs]: words, marks, and the space between them, which never differs.
export function differing(text, other) {
  const [mine, its] = [text, other].map((one) => Array.from(WORDS.segment(one), ({ segment }) => segment));
  const numbers = new Map(); // of words: they are compared often
  const known = (word) => numbers.get(word) ?? numbers.set(word, numbers.size).get(word);
  const differs = new Set(alone(mine.filter(seen).map(known), its.filter(seen).map(known)));
  let number = -1;
  return mine.map((piece) => {
    number += seen(piece);
    return [piece, seen(piece) && differs.has(number)];
  });
}

const seen = (piece) => Boolean(piece.trim());

// The numbers of the words of `mine` that have no partner among `its`.
function alone(mine, its) {
  let first = 0;
  while (first < mine.length && first < its.length && mine[first] === its[first]) first += 1;
  let [m, n] = [mine.length, its.length];
  while (m > first && n > first && mine[m - 1] === its[n - 1]) [m, n] = [m - 1, n - 1];
  // long[i][j]: how many words mine from i and its from j have in common, in their order.
  const long = Array.from({ length: m - first + 1 }, () => new Uint16Array(n - first + 1));
  for (let i = m - 1; i >= first; i -= 1) {
    const [row, below] = [long[i - first], long[i - first + 1]];
    for (let j = n - 1; j >= first; j -= 1) {
      row[j - first] = mine[i] === its[j] ? 1 + below[j - first + 1] : Math.max(below[j - first], row[j - first + 1]);
    }
  }
  const found = [];
  let j = first;
  for (let i = first; i < m; i += 1) {
    while (j < n && mine[i] !== its[j] && long[i - first][j - first + 1] === long[i - first][j - first]) j += 1;
    if (j < n && mine[i] === its[j]) j += 1;
    else found.push(i);
  }
  return found;
}
