// What the figure shows, as a list of shapes: paths, rectangles, circles, texts and small images, in pixels from its
// corner. The figure itself is HTML and SVG together; a picture that other programs open is painted from this list.

const TEXTS = `h2, .t-text, .v-label, .v-side li > span, .v-sure > span, .v-sure-head, .v-thumb > span, .v-note,
  .v-alarms > li`;
const MARGIN = 16;

export function picture(figure) {
  const { root, frame, panels } = figure;
  root.classList.add("p-picture"); // without what only serves to choose
  const scrolled = [...root.querySelectorAll(".v-scroll, .v-grid")].map((box) => [box, box.scrollTop, box.scrollLeft]);
  for (const [box] of scrolled) box.scrollTo(0, 0);
  for (const panel of panels) panel.drawn.fill?.(true);
  try {
    return shapes(root, frame);
  } finally {
    root.classList.remove("p-picture");
    for (const [box, top, left] of scrolled) box.scrollTo(left, top);
    for (const panel of panels) panel.drawn.fill?.();
  }
}

function shapes(root, frame) {
  const corner = frame.getBoundingClientRect();
  const origin = [corner.left - MARGIN, corner.top - MARGIN];
  const items = [];
  for (const svg of root.querySelectorAll(".v-box svg")) items.push(...drawn(svg, origin));
  for (const canvas of root.querySelectorAll(".v-thumb canvas")) {
    items.push({ kind: "image", canvas, ...place(canvas, origin) });
  }
  for (const element of root.querySelectorAll(TEXTS)) items.push(...written(element, origin));
  for (const element of root.querySelectorAll(".v-unsure > span, .t-unsure")) items.push(...dotted(element, origin));
  const edge = (item, at, size) => item[at] + (item[size] ?? 0);
  const width = Math.max(corner.width + 2 * MARGIN, ...items.map((item) => edge(item, "x", "width") + MARGIN || 0));
  const height = Math.max(corner.height + 2 * MARGIN, ...items.map((item) => edge(item, "y", "height") + MARGIN || 0));
  const ground = colour(getComputedStyle(root.querySelector(".v-panel")).backgroundColor);
  return { width: Math.ceil(width), height: Math.ceil(height), ground, items };
}

function place(element, [left, top]) {
  const box = element.getBoundingClientRect();
  return { x: box.left - left, y: box.top - top, width: box.width, height: box.height };
}

// The shapes of a drawing, moved to where it stands, with the colours that they have just now.
function drawn(svg, origin) {
  const { x, y } = place(svg, origin);
  return [...svg.querySelectorAll("path, rect, circle, text")].flatMap((shape) => {
    const style = getComputedStyle(shape);
    const number = (name) => Number(shape.getAttribute(name)) || 0;
    const found = {
      kind: shape.tagName, fill: colour(style.fill), fillOpacity: Number(style.fillOpacity), moved: [x, y],
      stroke: colour(style.stroke), strokeOpacity: Number(style.strokeOpacity),
      strokeWidth: parseFloat(style.strokeWidth),
    };
    if (shape.tagName === "path") return [{ ...found, d: shape.getAttribute("d") }];
    if (shape.tagName === "circle") return [{ ...found, cx: number("cx"), cy: number("cy"), r: number("r") }];
    if (shape.tagName === "rect") {
      return [{ ...found, at: ["x", "y", "width", "height"].map(number), round: number("rx") }];
    }
    // Texts are placed by their middle.
    const half = style.textAnchor === "middle" ? 0 : shape.getComputedTextLength() / 2;
    const at = { x: x + number("x") + half, y: y + number("y") };
    return [{ kind: "words", text: shape.textContent, ...at, fill: found.fill, ...font(style) }];
  });
}

function font(style) {
  const { fontSize, fontWeight, fontStyle } = style;
  return { size: parseFloat(fontSize), weight: fontWeight, slant: fontStyle, family: style.fontFamily };
}

// The lines of an element's text, each at its middle: that holds in any script, and in another font.
function written(element, origin) {
  const style = getComputedStyle(element);
  const look = { kind: "words", fill: colour(style.color), ...font(style) };
  if (style.transform !== "none") return [slanted(element, origin, look)];
  return lines(element).map(([text, box]) => {
    const middle = box.top - origin[1] + box.height / 2;
    return { ...look, text, x: box.left - origin[0] + box.width / 2, y: middle + 0.35 * look.size };
  });
}

// The dots below a word that the model was not sure of.
function dotted(element, origin) {
  if (getComputedStyle(element).transform !== "none") return [];
  const stroke = colour(getComputedStyle(element).color);
  const look = { kind: "path", dash: "2 3", fill: null, fillOpacity: 1, stroke, strokeOpacity: 1, strokeWidth: 2 };
  return [...element.getClientRects()].map(({ left, right, bottom }) => ({
    ...look, d: `M${left.toFixed(1)} ${bottom.toFixed(1)}H${right.toFixed(1)}`, moved: [-origin[0], -origin[1] - 1],
  }));
}

// Words over the columns of a heat map stand aslant, turned about a point at their beginning.
function slanted(span, origin, look) {
  const box = place(span.parentElement, origin);
  const { offsetHeight: high, offsetWidth: wide } = span;
  const [x, bottom] = [box.x + box.width / 2, box.y + box.height - 8];
  const turn = [-45, x, bottom - 0.3 * high];
  return { ...look, text: span.textContent, x: x + wide / 2, y: bottom - high / 2 + 0.35 * look.size, turn };
}

// A text as the browser has broken it: what stands at one height is a line.
function lines(element) {
  const range = document.createRange();
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    for (const { index, 0: word } of node.data.matchAll(/\S+\s*/gu)) {
      range.setStart(node, index);
      range.setEnd(node, index + word.trimEnd().length);
      const box = range.getBoundingClientRect();
      const last = found.at(-1);
      if (last && Math.abs(last[1].top - box.top) < 3) found[found.length - 1] = [last[0] + word, joined(last[1], box)];
      else if (box.width) found.push([word, box]);
    }
    if (found.length && /^\s/u.test(node.data) && !node.data.trim()) found.at(-1)[0] += " ";
  }
  return found.map(([text, box]) => [text.trim(), box]);
}

function joined(a, b) {
  const [left, right] = [Math.min(a.left, b.left), Math.max(a.right, b.right)];
  return new DOMRect(left, a.top, right - left, a.height);
}

const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const known = new Map();

// A colour as every program knows it: browsers mix in spaces that others have not heard of.
function colour(css) {
  if (css === "none") return null;
  if (!known.has(css)) {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = css;
    pen.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data;
    known.set(css, alpha ? `#${[red, green, blue].map((n) => n.toString(16).padStart(2, "0")).join("")}` : null);
  }
  return known.get(css);
}
