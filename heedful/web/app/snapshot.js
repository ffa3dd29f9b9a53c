// The figure as a list of shapes: paths, rectangles, circles, texts and small images, in pixels from its corner. The
// figure itself is HTML and SVG together; files for other programs are painted from this list.

import { colour } from "./dom.js";

const TEXTS = `h2, .t-text, .v-label, .v-side li > span, .v-confidence > span, .v-confidence-head, .v-thumb > span, .v-note,
  .v-alarms > li, .r-thumb bdi, .r-thumb span`;
const IMAGES = ".v-thumb canvas, .r-stage img, .r-stage canvas:not([hidden]), .r-small img, .r-small canvas";
const SHARP = 2; // pixels of a photo to a CSS pixel
const MARGIN = 16;
const ROUND = 4; // pixels, corners of the background of a word

export function snapshot(figure) {
  const { root, frame, panels } = figure;
  root.classList.add("p-picture"); // without controls
  const scrolled = [...root.querySelectorAll(".v-scroll, .v-grid")].map((box) => [box, box.scrollTop, box.scrollLeft]);
  for (const [box] of scrolled) box.scrollTo(0, 0);
  for (const panel of panels) panel.drawing.fill?.(true);
  try {
    return shapes(root, frame);
  } finally {
    root.classList.remove("p-picture");
    for (const [box, top, left] of scrolled) box.scrollTo(left, top);
    for (const panel of panels) panel.drawing.fill?.();
  }
}

function shapes(root, frame) {
  const corner = frame.getBoundingClientRect();
  const origin = [corner.left - MARGIN, corner.top - MARGIN];
  const items = [];
  for (const svg of root.querySelectorAll(".v-box svg")) items.push(...svgShapes(svg, origin));
  for (const image of root.querySelectorAll(IMAGES)) {
    const at = place(image, origin);
    const smooth = image.tagName === "IMG" || image.classList.contains("r-smooth");
    items.push({ kind: "image", canvas: smooth ? scaled(image, at) : image, smooth, photo: image.tagName === "IMG", ...at });
  }
  for (const box of root.querySelectorAll(".r-box:not([hidden])")) {
    const { x, y, width, height } = place(box, origin);
    const look = { ...background([x, y, width, height], null), strokeWidth: 2 };
    items.push({ ...look, stroke: colour(getComputedStyle(box).borderTopColor) });
  }
  const add = (some, shapesOf) => {
    for (const element of root.querySelectorAll(some)) items.push(...shapesOf(element, origin));
  };
  add(".v-side li > span, .t-word", backgrounds);
  add(TEXTS, textRuns);
  add(".v-unsure > span, .t-unsure", dottedLines);
  add("[data-share]", shareLabels);
  // Words are placed by their middle and baseline.
  const right = ({ x, width: wide = 0, kind }) => x + (kind === "words" ? wide / 2 : wide) + MARGIN || 0;
  const bottom = ({ y, height: high = 0 }) => y + high + MARGIN || 0;
  const width = Math.max(corner.width + 2 * MARGIN, ...items.map(right));
  const height = Math.max(corner.height + 2 * MARGIN, ...items.map(bottom));
  const paper = colour(getComputedStyle(root.querySelector(".v-panel")).backgroundColor);
  return { width: Math.ceil(width), height: Math.ceil(height), background: paper, items };
}

function place(element, [left, top]) {
  const box = element.getBoundingClientRect();
  return { x: box.left - left, y: box.top - top, width: box.width, height: box.height };
}

// An image at the size at which it is seen.
function scaled(image, { width, height }) {
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: Math.ceil(SHARP * width), height: Math.ceil(SHARP * height) });
  const pen = canvas.getContext("2d");
  pen.imageSmoothingQuality = "high";
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}

// The shapes of an SVG element at its place, with their current colours.
function svgShapes(svg, origin) {
  const { x, y } = place(svg, origin);
  return [...svg.querySelectorAll("path, rect, circle, text")].flatMap((shape) => {
    const style = getComputedStyle(shape);
    const number = (name) => Number(shape.getAttribute(name)) || 0;
    const common = {
      kind: shape.tagName, fill: colour(style.fill), fillOpacity: Number(style.fillOpacity), moved: [x, y],
      stroke: colour(style.stroke), strokeOpacity: Number(style.strokeOpacity),
      strokeWidth: parseFloat(style.strokeWidth),
    };
    if (shape.tagName === "path") return [{ ...common, d: shape.getAttribute("d") }];
    if (shape.tagName === "circle") return [{ ...common, cx: number("cx"), cy: number("cy"), r: number("r") }];
    if (shape.tagName === "rect") {
      return [{ ...common, at: ["x", "y", "width", "height"].map(number), round: number("rx") }];
    }
    // Texts are placed by their middle.
    const half = style.textAnchor === "middle" ? 0 : shape.getComputedTextLength() / 2;
    const at = { x: x + number("x") + half, y: y + number("y") };
    return [{ ...fontOf(style), text: shape.textContent, ...at, fill: common.fill }];
  });
}

// The runs of an element's text, each placed by its middle, which holds in any script and font; a run is on one line of
// one element.
function textRuns(element, origin) {
  if (getComputedStyle(element).transform !== "none") return slanted(element, origin);
  const runs = lines(element);
  const words = runs.map(({ parent, text, box }) => {
    const look = fontOf(getComputedStyle(parent));
    return { ...look, text, width: box.width, ...middle(box, origin, look.size) };
  });
  const whole = [element, ...element.querySelectorAll(".t-word")];
  const marks = whole.flatMap((one) => generatedContent(one, runs.filter(({ parent }) => parent === one), origin));
  return [...words, ...marks];
}

// The backgrounds of highlighted words.
function backgrounds(element, origin) {
  const fill = colour(getComputedStyle(element).backgroundColor);
  if (!fill) return [];
  if (getComputedStyle(element).transform !== "none") {
    const { left, bottom, wide, high, turn } = slantedBox(element, origin);
    return [background([left, bottom - high, wide, high], fill, turn)];
  }
  return [...element.getClientRects()].map((box) => {
    return background([box.left - origin[0], box.top - origin[1], box.width, box.height], fill);
  });
}

// The dotted lines below words of low confidence.
function dottedLines(element, origin) {
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

// The shares beside highlighted words.
function shareLabels(item, origin) {
  const style = getComputedStyle(item, "::after");
  if (style.content === "none" || style.position !== "absolute") return [];
  const number = (name) => parseFloat(style[name]) || 0;
  const wide = number("width") + number("paddingLeft") + number("paddingRight");
  const high = number("height") + number("paddingTop") + number("paddingBottom");
  const box = item.getBoundingClientRect();
  const left = box.left - origin[0] + number("left") - (style.transform === "none" ? 0 : wide / 2);
  const top = box.top - origin[1] + number("top");
  const look = fontOf(style);
  const placed = { x: left + wide / 2, y: top + high / 2 + 0.35 * look.size };
  const behind = background([left, top, wide, high], colour(style.backgroundColor));
  return [behind, { ...look, text: item.dataset.share, ...placed }];
}

function fontOf(style) {
  const { fontSize, fontWeight, fontStyle, fontFamily: family } = style;
  return { kind: "words", fill: colour(style.color), size: parseFloat(fontSize), weight: fontWeight, slant: fontStyle, family };
}

function background(at, fill, turn = null) {
  return { kind: "rect", at, round: ROUND, fill, fillOpacity: 1, stroke: null, strokeOpacity: 1, moved: [0, 0], turn };
}

// The middle of a box, and its baseline for a font size.
function middle(box, origin, size) {
  return { x: box.left - origin[0] + box.width / 2, y: box.top - origin[1] + box.height / 2 + 0.35 * size };
}

// Generated content before and after a text (✎, ⚠): it fills what the text leaves of its box.
function generatedContent(element, runs, origin) {
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
    return [{ ...fontOf(style), text, x, y: middle(box, origin, size).y - raised }];
  });
}

// Words over the columns of a heat map are slanted, rotated about their beginning.
function slanted(span, origin) {
  const look = fontOf(getComputedStyle(span));
  const { left, bottom, wide, high, turn } = slantedBox(span, origin);
  return [{ ...look, text: span.textContent, x: left + wide / 2, y: bottom - high / 2 + 0.35 * look.size, turn }];
}

function slantedBox(span, origin) {
  const box = span.parentElement.getBoundingClientRect();
  const { offsetHeight: high, offsetWidth: wide } = span;
  const [left, bottom] = [box.left - origin[0] + box.width / 2, box.bottom - origin[1] - 8];
  return { left, bottom, wide, high, turn: [-45, left, bottom - 0.3 * high] };
}

// A text in runs: parts at one height in one element.
function lines(element) {
  const range = document.createRange();
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const runs = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    for (const { index, 0: word } of node.data.matchAll(/\S+\s*/gu)) {
      range.setStart(node, index);
      range.setEnd(node, index + word.trimEnd().length);
      const box = range.getBoundingClientRect();
      const last = runs.at(-1);
      if (last?.parent === parent && Math.abs(last.box.top - box.top) < 3) {
        Object.assign(last, { text: last.text + word, box: joined(last.box, box) });
      } else if (box.width) runs.push({ parent, text: word, box });
    }
  }
  return runs.map((run) => ({ ...run, text: run.text.trim() }));
}

function joined(a, b) {
  const [left, right] = [Math.min(a.left, b.left), Math.max(a.right, b.right)];
  return new DOMRect(left, a.top, right - left, a.height);
}
