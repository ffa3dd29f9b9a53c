// Texts of the page as shapes of a picture: each run of words where the browser has put it, with what is marked on it.

import { colour } from "./colour.js";

const ROUND = 4; // pixels, at the corners of what is behind a word

// The runs of an element's text, each at its middle: that holds in any script, and in another font. What stands apart in
// the page, in another element or on another line, is placed for itself.
export function written(element, origin) {
  if (getComputedStyle(element).transform !== "none") return slanted(element, origin);
  const runs = lines(element);
  const words = runs.map(({ parent, text, box }) => {
    const look = letters(getComputedStyle(parent));
    return { ...look, text, width: box.width, ...middle(box, origin, look.size) };
  });
  const whole = [element, ...element.querySelectorAll(".t-word")];
  const marks = whole.flatMap((one) => marked(one, runs.filter(({ parent }) => parent === one), origin));
  return [...words, ...marks];
}

// What is behind the words that are pointed at, and behind those that they look at.
export function grounds(element, origin) {
  const fill = colour(getComputedStyle(element).backgroundColor);
  if (!fill) return [];
  if (getComputedStyle(element).transform !== "none") {
    const { left, bottom, wide, high, turn } = stand(element, origin);
    return [ground([left, bottom - high, wide, high], fill, turn)];
  }
  return [...element.getClientRects()].map((box) => {
    return ground([box.left - origin[0], box.top - origin[1], box.width, box.height], fill);
  });
}

// The dots below a word that the model was not sure of.
export function dotted(element, origin) {
  const style = getComputedStyle(element);
  if (style.transform !== "none") return [];
  const look = { kind: "path", dash: "2 3", fill: null, fillOpacity: 1, strokeOpacity: 1, strokeWidth: 2, moved: [0, 0] };
  const [first, last, size] = [style.paddingLeft, style.paddingRight, style.fontSize].map(parseFloat);
  return [...element.getClientRects()].map((box) => {
    const y = middle(box, origin, size).y + parseFloat(style.textUnderlineOffset || 0) + 1;
    const [from, to] = [box.left - origin[0] + first, box.right - origin[0] - last];
    return { ...look, stroke: colour(style.color), d: `M${from.toFixed(1)} ${y.toFixed(1)}H${to.toFixed(1)}` };
  });
}

// The share of a word that is looked at, beside it.
export function shared(item, origin) {
  const style = getComputedStyle(item, "::after");
  if (style.content === "none" || style.position !== "absolute") return [];
  const number = (name) => parseFloat(style[name]) || 0;
  const wide = number("width") + number("paddingLeft") + number("paddingRight");
  const high = number("height") + number("paddingTop") + number("paddingBottom");
  const box = item.getBoundingClientRect();
  const left = box.left - origin[0] + number("left") - (style.transform === "none" ? 0 : wide / 2);
  const top = box.top - origin[1] + number("top");
  const look = letters(style);
  const placed = { x: left + wide / 2, y: top + high / 2 + 0.35 * look.size };
  const behind = ground([left, top, wide, high], colour(style.backgroundColor));
  return [behind, { ...look, text: item.dataset.share, ...placed }];
}

export function letters(style) {
  const { fontSize, fontWeight, fontStyle, fontFamily: family } = style;
  return { kind: "words", fill: colour(style.color), size: parseFloat(fontSize), weight: fontWeight, slant: fontStyle, family };
}

function ground(at, fill, turn = null) {
  return { kind: "rect", at, round: ROUND, fill, fillOpacity: 1, stroke: null, strokeOpacity: 1, moved: [0, 0], turn };
}

// The middle of a box, and the line that letters of some size stand on in it.
function middle(box, origin, size) {
  return { x: box.left - origin[0] + box.width / 2, y: box.top - origin[1] + box.height / 2 + 0.35 * size };
}

// Signs before and after a text that stand in no document (✎, ⚠): theirs is what the text leaves of its box.
function marked(element, runs, origin) {
  return ["::before", "::after"].flatMap((which) => {
    const style = getComputedStyle(element, which);
    const text = /^"([^"]*)"/u.exec(style.content)?.[1].trim();
    if (!text || style.position === "absolute" || !runs.length) return [];
    const at = which === "::before" ? 0 : -1;
    const [{ box }, whole] = [runs.at(at), [...element.getClientRects()].at(at)];
    const [left, right] = [box.left - whole.left, whole.right - box.right];
    const turned = getComputedStyle(element).direction === "rtl";
    const before = which === "::before" ? !turned : left > right;
    const x = (before ? whole.left + box.left : whole.right + box.right) / 2 - origin[0];
    const size = parseFloat(getComputedStyle(element).fontSize);
    const raised = style.verticalAlign === "super" ? size / 3 : 0;
    return [{ ...letters(style), text, x, y: middle(box, origin, size).y - raised }];
  });
}

// Words over the columns of a heat map stand aslant, turned about a point at their beginning.
function slanted(span, origin) {
  const look = letters(getComputedStyle(span));
  const { left, bottom, wide, high, turn } = stand(span, origin);
  return [{ ...look, text: span.textContent, x: left + wide / 2, y: bottom - high / 2 + 0.35 * look.size, turn }];
}

function stand(span, origin) {
  const box = span.parentElement.getBoundingClientRect();
  const { offsetHeight: high, offsetWidth: wide } = span;
  const [left, bottom] = [box.left - origin[0] + box.width / 2, box.bottom - origin[1] - 8];
  return { left, bottom, wide, high, turn: [-45, left, bottom - 0.3 * high] };
}

// A text as the browser has broken it: what stands at one height in one element is a run.
function lines(element) {
  const range = document.createRange();
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    for (const { index, 0: word } of node.data.matchAll(/\S+\s*/gu)) {
      range.setStart(node, index);
      range.setEnd(node, index + word.trimEnd().length);
      const box = range.getBoundingClientRect();
      const last = found.at(-1);
      if (last?.parent === parent && Math.abs(last.box.top - box.top) < 3) {
        Object.assign(last, { text: last.text + word, box: joined(last.box, box) });
      } else if (box.width) found.push({ parent, text: word, box });
    }
  }
  return found.map((run) => ({ ...run, text: run.text.trim() }));
}

function joined(a, b) {
  const [left, right] = [Math.min(a.left, b.left), Math.max(a.right, b.right)];
  return new DOMRect(left, a.top, right - left, a.height);
}
