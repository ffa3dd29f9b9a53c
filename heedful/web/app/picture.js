// The picture to caption: chosen, taken, dropped or pasted, shown at once, and made smaller if it is over a limit.

import { percent } from "./dom.js";

const READ = ["image/png", "image/jpeg", "image/webp", "image/gif"]; // what the service reads
const SHOWN = 1024; // pixels of the longer side on the page
const QUALITY = 0.9; // of JPEG
const SMALLER = 0.75; // times the sides, until the file is small enough

export class PictureInput {
  // `changed(picture)` is called with a new picture, `failed(message)` if a file cannot be sent.
  constructor(element, changed, failed) {
    Object.assign(this, { element, changed, failed, picture: null, limits: { bytes: Infinity, pixels: Infinity } });
    this.shown = element.querySelector("img");
    this.name = element.querySelector("[data-name]");
    for (const input of element.querySelectorAll("input")) {
      input.addEventListener("change", () => { this.use(input.files[0]); input.value = ""; });
    }
  }

  async use(file) {
    if (!file) return;
    const turn = (this.turn = {});
    try {
      const picture = await open(file, this.limits);
      if (turn !== this.turn) return; // another one was chosen meanwhile
      this.#show(picture);
      this.changed(picture);
    } catch (error) {
      if (turn === this.turn) this.failed(error.message); // the picture before, and its captions, stay
    }
  }

  #show(picture) {
    const before = this.picture?.url;
    this.picture = picture;
    this.shown.src = picture.url;
    this.shown.alt = picture.name;
    this.shown.hidden = !picture.url;
    this.name.textContent = [picture.name, picture.note].filter(Boolean).join(" \u2013 ");
    this.element.classList.add("p-chosen");
    if (before) setTimeout(() => URL.revokeObjectURL(before), 10_000); // figures of it may still be there
  }

  clear() {
    this.picture = null;
    this.turn = null;
    this.shown.hidden = true;
    this.name.textContent = "";
    this.element.classList.remove("p-chosen");
  }
}

// The image of a paste or a drop; null if there is none.
export function imageIn(data) {
  return [...(data?.files ?? [])].find((file) => file.type.startsWith("image/")) ?? data?.files?.[0] ?? null;
}

// A picture: the `file` to send, its `name`, a `preview` (a Blob) with its `url`, and a `note` on what was changed.
async function open(file, limits) {
  const name = file.name || "pasted picture";
  const bitmap = await createImageBitmap(file, { imageOrientation: "from-image" }).catch(() => null);
  if (!bitmap) {
    if (file.size > limits.bytes) throw new Error(`${name} has ${megabytes(file.size)}; at most ${megabytes(limits.bytes)} are allowed.`);
    throw new Error(`${name} cannot be read as a picture; choose a PNG, JPEG, WebP or GIF file, not SVG.`);
  }
  const { width, height } = bitmap;
  const small = Math.max(width, height) <= SHOWN;
  const preview = await encode(bitmap, SHOWN / Math.max(width, height), small ? "image/png" : "image/jpeg");
  const sent = await fitted(file, bitmap, limits);
  bitmap.close();
  return { name, width, height, preview, url: URL.createObjectURL(preview), ...sent };
}

// The file as it is, or smaller, or as JPEG if the service does not read its format.
async function fitted(file, bitmap, limits) {
  const { width, height } = bitmap;
  const known = READ.includes(file.type);
  const large = file.size > limits.bytes || width * height > limits.pixels;
  if (known && !large) return { file, note: "" };
  let scale = Math.min(1, Math.sqrt(limits.pixels / (width * height)));
  let made = await encode(bitmap, scale, "image/jpeg");
  while (made.size > limits.bytes && scale * Math.max(width, height) > 16) {
    scale *= SMALLER;
    made = await encode(bitmap, scale, "image/jpeg");
  }
  const what = known ? "too large for this service" : "a format that the service does not read";
  const size = scale < 1 ? ` at ${percent(scale)} of its width and height` : "";
  return { file: made, note: `${what}: sent as JPEG${size}` };
}

// An image at a scale, on white, as the service reads transparent ones.
function encode(bitmap, scale, type) {
  const part = Math.min(1, scale);
  const [width, height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.floor(part * side)));
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const pen = canvas.getContext("2d");
  pen.fillStyle = "#ffffff";
  pen.fillRect(0, 0, width, height);
  pen.imageSmoothingQuality = "high";
  pen.drawImage(bitmap, 0, 0, width, height);
  return new Promise((resolve) => { canvas.toBlob(resolve, type, QUALITY); });
}

function megabytes(size) {
  return `${(size / 1e6).toLocaleString("en", { maximumFractionDigits: 1 })}\u00a0MB`;
}
