const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const known = new Map();

// A colour as every program knows it: browsers mix in spaces that others have not heard of.
export function colour(css) {
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
