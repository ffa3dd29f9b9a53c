// Save the figure as SVG, PNG or HTML, without a request to the service.

import { make } from "./dom.js";
import { snapshot } from "./snapshot.js";


const SHARP = 2; // PNG pixels to a CSS pixel
const LARGEST = 12000; // pixels of a side, as many as browsers support
const QUALITY = 0.88; // of photos in an SVG
const TITLE = "Attention weights";
const MAKE = {
  svg: async ({ figure }) => new Blob([toSvg(snapshot(figure), TITLE)], { type: "image/svg+xml" }),
  png: ({ figure }) => toPng(snapshot(figure)),
  html: async ({ figure, translations }) => {
    const picture = await dataUrl(translations[0]?.source.picture?.preview);
    return new Blob([await toHtml(figure, TITLE, texts(translations), picture)], { type: "text/html" });
  },
};

export function addSaving(element, status, current) {
  element.addEventListener("click", async (event) => {
    const kind = event.target.closest("button")?.value;
    if (!kind) return;
    const now = current();
    const name = `heedful-${now.figure.state.view}.${kind}`;
    try {
      download(await MAKE[kind](now), name);
      status.textContent = `Saved as ${name}.`;
    } catch (error) {
      status.textContent = `Not saved: ${error.message}`;
    }
  });
}

function texts(translations) {
  const complete = translations.filter(({ item }) => item);
  const { text } = translations[0].source;
  const source = text === undefined ? [] : [["source", text]]; // a picture is in the figure
  return [...source, ...complete.map(({ name, what, item }) => [name || what, item.text])];
}

// A file as a URL that holds it; null for none.
function dataUrl(blob) {
  if (!blob) return null;
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(blob);
  });
}

function download(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// The figure as one HTML document with its data and its drawing code, which loads nothing.

async function toHtml(figure, title, texts, picture) {
  const part = async (name) => (await fetch(`page/${name}`)).text();
  const [code, css] = await Promise.all(["draw.js", "draw.css"].map(part));
  const nonce = Array.from(crypto.getRandomValues(new Uint8Array(12)), (n) => n.toString(16).padStart(2, "0")).join("");
  const body = make("body");
  body.append(make("h1", {}, title));
  for (const [label, text] of texts) {
    const heading = make("span", { className: "v-label" }, label);
    body.append(make("p", { className: "v-text" }, heading, " ", make("bdi", {}, text)));
  }
  // "<" could end the script element.
  const data = JSON.stringify(record(figure, picture)).replace(/[<>&]/g, (sign) => `\\u00${sign.charCodeAt(0).toString(16)}`);
  const rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";
  const rules = `default-src 'none'; script-src 'nonce-${nonce}'; ${rest}`;
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="${rules}">
<title>${make("p", {}, title).innerHTML}</title>
<style>${css}</style>
</head>
<body class="heedful-page">
${body.innerHTML}
<div class="heedful-view"><script type="application/json">${data}</script></div>
<script nonce="${nonce}">${code}</script>
</body>
</html>
`;
}

// The record of the figure with its current view, share of the weight, and head.
function record({ state, panels }, picture) {
  const traces = panels.map(({ trace, choice }) => {
    const [kind, number] = choice.split(":");
    const image = trace.image && { image: { ...trace.image, picture } };
    return { ...trace, ...image, chosen: kind === "head" ? Number(number) : null };
  });
  return { view: state.view, keep: state.keep, smooth: state.weights === "smooth", traces };
}

// The figure as SVG that any program opens.
function toSvg({ width, height, background, items }, title) {
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
  add("rect", { width, height, fill: background });
  for (const item of items) {
    if (item.kind === "image") {
      const { x, y, width: wide, height: high, canvas, smooth, photo } = item;
      const href = photo ? canvas.toDataURL("image/jpeg", QUALITY) : canvas.toDataURL();
      const options = { x, y, width: wide, height: high, href, preserveAspectRatio: "none" };
      add("image", { ...options, "image-rendering": smooth ? null : "pixelated" });
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

// XML allows neither control characters nor halves of characters.
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

// And painted onto a canvas, as PNG.
function toPng({ width, height, background, items }) {
  const canvas = document.createElement("canvas");
  const scale = Math.min(SHARP, LARGEST / Math.max(width, height));
  Object.assign(canvas, { width: Math.round(scale * width), height: Math.round(scale * height) });
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.fillStyle = background;
  pen.fillRect(0, 0, width, height);
  for (const item of items) {
    pen.save();
    pen.imageSmoothingEnabled = Boolean(item.smooth);
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
