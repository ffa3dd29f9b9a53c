// Saving what is seen, as a file: everything is in the page already, so that no service is asked.

import { toHtml } from "./document.js";
import { make } from "./make.js";
import { toPng, toSvg } from "./painters.js";
import { picture } from "./picture.js";

const TITLE = "Where the model looked";
const MAKE = {
  svg: async ({ figure }) => new Blob([toSvg(picture(figure), TITLE)], { type: "image/svg+xml" }),
  png: ({ figure }) => toPng(picture(figure)),
  html: async ({ figure, lanes }) => new Blob([await toHtml(figure, TITLE, texts(lanes))], { type: "text/html" }),
};

export function saving(element, said, shown) {
  element.addEventListener("click", async (event) => {
    const kind = event.target.closest("button")?.value;
    if (!kind) return;
    const now = shown();
    const name = `heedful-${now.figure.state.view}.${kind}`;
    try {
      give(await MAKE[kind](now), name);
      said.textContent = `Saved as ${name}.`;
    } catch (error) {
      said.textContent = `It could not be saved: ${error.message}`;
    }
  });
}

function texts(lanes) {
  const written = lanes.filter((lane) => lane.item).map((lane) => [lane.name || "translation", lane.item.text]);
  return [["source", lanes[0].text], ...written];
}

function give(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
