// A picture, painted twice: as SVG that any program opens, and onto a canvas, which becomes a PNG.

const SHARP = 2; // dots of a PNG to a pixel
const LARGEST = 12000; // dots of a side, as far as browsers go

export function toSvg({ width, height, ground, items }, title) {
  const space = "http://www.w3.org/2000/svg";
  const root = document.implementation.createDocument(space, "svg", null);
  const add = (tag, options, text = "", parent = root.documentElement) => {
    const element = root.createElementNS(space, tag);
    for (const [name, value] of Object.entries(options)) if (value !== null) element.setAttribute(name, value);
    element.textContent = text;
    parent.append(element);
    return element;
  };
  const common = items.find((item) => item.family)?.family ?? "sans-serif";
  const whole = { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "font-family": common };
  for (const [name, value] of Object.entries(whole)) root.documentElement.setAttribute(name, value);
  add("title", {}, title);
  add("rect", { width, height, fill: ground });
  for (const item of items) {
    if (item.kind === "image") {
      const { x, y, width: wide, height: high, canvas } = item;
      add("image", { x, y, width: wide, height: high, href: canvas.toDataURL(), "image-rendering": "pixelated" });
    } else if (item.kind === "words") {
      const { x, y, size, family, weight, slant, fill, turn } = item;
      const shown = {
        "font-family": family === common ? null : family, "font-size": size,
        "font-weight": weight === "400" ? null : weight, "font-style": slant === "normal" ? null : slant,
      };
      const placed = { x: short(x), y: short(y), "text-anchor": "middle", transform: turn ? rotated(turn) : null };
      add("text", { ...placed, ...shown, fill }, legal(item.text));
    } else {
      add(item.kind, { ...geometry(item), ...paint(item) });
    }
  }
  return new XMLSerializer().serializeToString(root);
}

const rotated = (turn) => `rotate(${turn.map(short).join(" ")})`;
const short = (number) => Number(number.toFixed(2));

// XML has no place for control characters and halves of characters.
const legal = (text) => text.toWellFormed().replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");

function geometry({ kind, d, cx, cy, r, at, round }) {
  if (kind === "path") return { d };
  if (kind === "circle") return { cx, cy, r };
  const [x, y, width, height] = at.map(short);
  return { x, y, width, height, rx: round || null };
}

function paint({ fill, fillOpacity, stroke, strokeOpacity, strokeWidth, dash, moved, turn }) {
  return {
    fill: fill ?? "none", "fill-opacity": fillOpacity < 1 ? fillOpacity : null, stroke,
    "stroke-opacity": strokeOpacity < 1 ? strokeOpacity : null, "stroke-width": stroke ? strokeWidth : null,
    "stroke-dasharray": dash ?? null,
    transform: turn ? rotated(turn) : moved.some(Boolean) ? `translate(${moved.map(short).join(" ")})` : null,
  };
}

export function toPng({ width, height, ground, items }) {
  const canvas = document.createElement("canvas");
  const scale = Math.min(SHARP, LARGEST / Math.max(width, height));
  Object.assign(canvas, { width: Math.round(scale * width), height: Math.round(scale * height) });
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.fillStyle = ground;
  pen.fillRect(0, 0, width, height);
  pen.imageSmoothingEnabled = false;
  for (const item of items) {
    pen.save();
    if (item.kind === "image") pen.drawImage(item.canvas, item.x, item.y, item.width, item.height);
    else if (item.kind === "words") write(pen, item);
    else stroke(pen, item);
    pen.restore();
  }
  return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
}

function write(pen, { text, x, y, size, family, weight, slant, fill, turn }) {
  if (turn) rotate(pen, turn);
  pen.font = `${slant} ${weight} ${size}px ${family}`;
  Object.assign(pen, { textAlign: "center", fillStyle: fill ?? "transparent" });
  pen.fillText(text, x, y);
}

function rotate(pen, [angle, left, top]) {
  pen.translate(left, top);
  pen.rotate((angle * Math.PI) / 180);
  pen.translate(-left, -top);
}

function stroke(pen, item) {
  const path = item.kind === "path" ? new Path2D(item.d) : new Path2D();
  if (item.kind === "circle") path.arc(item.cx, item.cy, item.r, 0, 2 * Math.PI);
  if (item.kind === "rect") path.roundRect(...item.at, item.round);
  if (item.turn) rotate(pen, item.turn);
  pen.translate(...item.moved);
  if (item.fill) {
    pen.globalAlpha = item.fillOpacity;
    pen.fillStyle = item.fill;
    pen.fill(path);
  }
  if (item.stroke) {
    pen.globalAlpha = item.strokeOpacity;
    pen.strokeStyle = item.stroke;
    pen.lineWidth = item.strokeWidth;
    pen.setLineDash((item.dash ?? "").split(" ").filter(Boolean).map(Number));
    pen.stroke(path);
  }
}
