// The page: the text or the picture, the models that translate or caption it, and one figure for all of them.

import { Connection } from "./connection.js";
import { addSaving } from "./export.js";
import { Models } from "./models.js";
import { PictureInput, imageIn } from "./picture.js";
import { Problem, Unavailable, remember, remembered, request, useToken } from "./service.js";
import { Translation } from "./translation.js";

const PAUSE = 400; // milliseconds without a key before a text is translated

const at = (id) => document.getElementById(id);
const [text, problem, empty, result] = ["text", "problem", "empty", "result"].map(at);
const input = new PictureInput(at("image-input"), () => translate(), showProblem);
const connection = new Connection(at("offline"), restore);
const models = new Models(at("models"), () => { arrange(); translate(); });
let translations = [];
let figure = null;
let timer = 0;
let translated = ""; // the last text

const page = {
  draw: (one, trace) => {
    result.classList.remove("p-stale");
    figure.replaceTrace(translations.indexOf(one), trace);
    // What the reader points at comes before what is written.
    if (!(figure.pinned ?? figure.pointed ?? figure.focused)) translations.forEach((each) => each.light());
  },
  panel: (one) => figure?.panels[translations.indexOf(one)],
  // Screen readers hear whole translations, once all are complete.
  finished: () => {
    connection.reset();
    if (translations.some((one) => one.element.ariaBusy === "true")) return;
    const name = (one) => (translations.length > 1 ? `${one.name}: ` : "");
    at("spoken").textContent = translations.filter((one) => one.item).map((one) => name(one) + one.item.text).join("; ");
  },
  announce: (text) => { at("spoken").textContent = text; },
  failed: (one, error) => {
    if (error instanceof Problem && error.retry) retryLater(one, error);
    else if (error instanceof Problem && error.status !== 401 && !["text", "image"].includes(error.field)) one.showProblem(error);
    else failed(error);
  },
};

// The service is busy and says when to retry.
function retryLater(one, error) {
  one.showProblem(error);
  setTimeout(() => { if (one.failed && translations.includes(one)) one.retry(); }, 1000 * error.retry);
}

function failed(error) {
  if (error instanceof Unavailable) {
    result.classList.add("p-stale");
    connection.lost(error);
  } else if (error.status === 401) {
    if (at("token").value) at("pass").querySelector("label").textContent = "This token was not accepted.";
    at("pass").hidden = false;
    at("token").focus();
  } else if (error instanceof Problem) {
    showProblem(error.message);
    result.hidden = true; // it is of another text
  } else {
    throw error;
  }
}

function showProblem(message) {
  problem.textContent = message;
  for (const field of [text, at("file")]) field.setAttribute("aria-invalid", String(Boolean(message)));
}

// A translation and a panel for each selected model.
function arrange() {
  translations.forEach((one) => one.stop());
  const several = models.all.length > 1;
  showInput();
  translations = models.chosen().map((model) => new Translation(model, several ? model.name : "", page));
  const traces = translations.map((one) => (models.images ? one.blank() : blank(one)));
  if (figure) figure.update({ traces });
  else figure = heedful.view(at("figure"), { view: models.images ? "regions" : "braid", traces });
  figure.panels.forEach((panel, i) => panel.box.before(translations[i].element));
  figure.onmark = (panel, active) => translations[figure.panels.indexOf(panel)]?.mark(panel, active);
}

// The input for the chosen models: a text or a picture.
function showInput() {
  const { images } = models;
  at("text-input").hidden = images;
  at("translate").hidden = images;
  at("image-input").hidden = !images;
  for (const one of empty.querySelectorAll("[data-for]")) one.toggleAttribute("hidden", (one.dataset.for === "images") !== images);
  at("example").hidden = images || !at("example").textContent;
  at("subtitle").textContent = `a ${images ? "captioner" : "translator"} that shows its attention`;
}

function blank({ name }) {
  const side = { tokens: [], words: [] };
  return {
    name, source: side, target: side, logs: [], readout: "", self: false, growing: true, alarms: [], gold: [],
    chosen: null, heads: null, read: null, layers: [], each: [],
  };
}

function translate() {
  clearTimeout(timer);
  translated = text.value;
  remember("text", translated);
  showProblem("");
  const source = models.images ? { picture: input.picture } : { text: translated };
  const given = models.images ? input.picture : translated.trim();
  const any = Boolean(given) && translations.length > 0;
  result.hidden = !any;
  empty.hidden = any;
  at("clear").hidden = !given;
  if (any) translations.forEach((one) => one.run(source));
  else translations.forEach((one) => one.stop());
}

function onInput() {
  fit();
  clearTimeout(timer);
  if (text.value !== translated) timer = setTimeout(translate, text.value.trim() ? PAUSE : 0);
}

// The text area is as high as its text, up to a part of the window.
function fit() {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight + 2}px`;
}

async function begin() {
  let all;
  try {
    const found = await request("v1/models");
    all = found.models;
    input.limits = { bytes: found.image_bytes, pixels: found.image_pixels };
  } catch (error) {
    failed(error);
    return;
  }
  models.show(all);
  const example = all.find((model) => model.example)?.example;
  at("example").querySelector("bdi").textContent = example ?? "";
  arrange();
  translate();
}

// The service answers again. With the same models, failed requests are repeated; with others the page starts again.
async function restore() {
  const before = JSON.stringify(models.all);
  const now = await request("v1/models").catch(() => null);
  if (!now || !translations.length || JSON.stringify(now.models) !== before) return begin();
  at("spoken").textContent = "The service is back.";
  translations.filter((one) => one.failed).forEach((one) => one.retry());
}

text.addEventListener("input", (event) => { if (event.isComposing) fit(); else onInput(); });
text.addEventListener("compositionend", onInput);
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) translate();
});
at("ask").addEventListener("submit", (event) => { event.preventDefault(); translate(); });
at("clear").addEventListener("click", () => {
  if (models.images) input.clear();
  else text.value = "";
  fit();
  translate();
  (models.images ? at("file") : text).focus();
});
// An image may be pasted or dropped anywhere on the page.
function useImage(event, data) {
  const file = imageIn(data);
  // A text that is copied from some programs has a picture of itself.
  const meant = models.images || (file?.type.startsWith("image/") && !data.types.includes("text/plain"));
  if (!file || !meant || !models.chooseImages()) return;
  event.preventDefault();
  input.use(file);
}
addEventListener("paste", (event) => useImage(event, event.clipboardData));
for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
  addEventListener(name, (event) => {
    const files = event.dataTransfer?.types.includes("Files") && models.all.some((model) => model.reads_images);
    if (files && name !== "dragleave") event.preventDefault();
    document.body.classList.toggle("p-dropping", Boolean(files) && name.startsWith("drag") && name !== "dragleave");
    if (files && name === "drop") useImage(event, event.dataTransfer);
  });
}
at("example").addEventListener("click", (event) => {
  if (!event.target.closest("button")) return;
  text.value = at("example").textContent;
  fit();
  text.focus();
  translate();
});
at("pass").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(at("token").value);
  at("pass").hidden = true;
  begin();
});
addSaving(at("save"), at("saved"), () => ({ figure, translations }));
addEventListener("resize", fit);
text.value = remembered("text");
fit();
begin();
