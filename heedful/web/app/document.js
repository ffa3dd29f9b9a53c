// The figure as a file of its own: one HTML document with its data and its drawing code, that asks for nothing.

import { make } from "./make.js";

export async function toHtml(figure, title, texts) {
  const part = async (name) => (await fetch(`page/${name}`)).text();
  const [code, looks] = await Promise.all(["draw.js", "draw.css"].map(part));
  const nonce = Array.from(crypto.getRandomValues(new Uint8Array(12)), (n) => n.toString(16).padStart(2, "0")).join("");
  const body = make("body");
  body.append(make("h1", {}, title));
  for (const [label, text] of texts) {
    const named = make("span", { className: "v-label" }, label);
    body.append(make("p", { className: "v-text" }, named, " ", make("bdi", {}, text)));
  }
  // "<" alone could end the element that data stands in; in JSON it can be written otherwise.
  const data = JSON.stringify(record(figure)).replace(/[<>&]/g, (sign) => `\\u00${sign.charCodeAt(0).toString(16)}`);
  const rest = "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
  const rules = `default-src 'none'; script-src 'nonce-${nonce}'; ${rest}`;
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="${rules}">
<title>${make("p", {}, title).innerHTML}</title>
<style>${looks}</style>
</head>
<body class="heedful-page">
${body.innerHTML}
<div class="heedful-view"><script type="application/json">${data}</script></div>
<script nonce="${nonce}">${code}</script>
</body>
</html>
`;
}

// It opens as the figure is now: the same view, the same share of the weight, the same head.
function record({ state, panels }) {
  const traces = panels.map(({ trace, choice }) => {
    const [kind, number] = choice.split(":");
    return { ...trace, chosen: kind === "head" ? Number(number) : null };
  });
  return { view: state.view, keep: state.keep, traces };
}
