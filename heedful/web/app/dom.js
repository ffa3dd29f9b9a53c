// Elements of the page, colours, and the clipboard. Text only ever becomes text nodes.

export function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name in element && name !== "role") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function percent(share) {
  return `${Math.round(100 * share)}\u00a0%`;
}

const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const colours = new Map();

// A CSS colour as #rrggbb, which every program reads; null for none.
export function colour(css) {
  if (css === "none") return null;
  if (!colours.has(css)) {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = css;
    pen.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data;
    colours.set(css, alpha ? `#${[red, green, blue].map((n) => n.toString(16).padStart(2, "0")).join("")}` : null);
  }
  return colours.get(css);
}

// Copy a text to the clipboard; resolves to whether it was copied. Without https there is no clipboard API.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelection(text);
  }
}

function copySelection(text) {
  const before = document.activeElement;
  const field = make("textarea", { className: "p-hidden", value: text, ariaHidden: "true", tabIndex: -1 });
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  before?.focus({ preventScroll: true });
  return done;
}
