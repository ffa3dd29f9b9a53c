// What the figure shows, as a list of shapes: paths, rectangles, circles, texts and small images, in pixels from its
// corner. The figure itself is HTML and SVG together; a picture that other programs open is painted from this list.

import { colour } from "./colour.js";
import { dotted, grounds, letters, shared, written } from "./texts.js";

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
  const add = (some, shapesOf) => {
    for (const element of root.querySelectorAll(some)) items.push(...shapesOf(element, origin));
  };
  add(".v-side li > span, .t-word", grounds);
  add(TEXTS, written);
  add(".v-unsure > span, .t-unsure", dotted);
  add("[data-share]", shared);
  // Words are placed by their middle, and stand on a line.
  const right = ({ x, width: wide = 0, kind }) => x + (kind === "words" ? wide / 2 : wide) + MARGIN || 0;
  const bottom = ({ y, height: high = 0 }) => y + high + MARGIN || 0;
  const width = Math.max(corner.width + 2 * MARGIN, ...items.map(right));
  const height = Math.max(corner.height + 2 * MARGIN, ...items.map(bottom));
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
    return [{ ...letters(style), text: shape.textContent, ...at, fill: found.fill }];
  });
}
