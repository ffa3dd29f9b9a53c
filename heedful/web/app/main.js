// The page: the text, the models that translate it, and one figure for all of them.

import { Connection } from "./connection.js";
import { addSaving } from "./export.js";
import { Models } from "./models.js";
import { Problem, Unavailable, remember, remembered, request, useToken } from "./service.js";
import { Translation } from "./translation.js";

const PAUSE = 400; // milliseconds without a key before a text is translated

const at = (id) => document.getElementById(id);
const [text, problem, empty, result] = ["text", "problem", "empty", "result"].map(at);
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
    else if (error instanceof Problem && error.status !== 401 && error.field !== "text") one.showProblem(error);
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
  text.setAttribute("aria-invalid", String(Boolean(message)));
}

// A translation and a panel for each selected model.
function arrange() {
  translations.forEach((one) => one.stop());
  const several = models.all.length > 1;
  translations = models.chosen().map((model) => new Translation(model, several ? model.name : "", page));
  const traces = translations.map((one) => blank(one));
  if (figure) figure.update({ traces });
  else figure = heedful.view(at("figure"), { view: "braid", traces });
  figure.panels.forEach((panel, i) => panel.box.before(translations[i].element));
  figure.onmark = (panel, active) => translations[figure.panels.indexOf(panel)]?.mark(panel, active);
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
  const any = Boolean(translated.trim()) && translations.length > 0;
  result.hidden = !any;
  empty.hidden = any;
  at("clear").hidden = !translated;
  if (any) translations.forEach((one) => one.run(translated));
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
    ({ models: all } = await request("v1/models"));
  } catch (error) {
    failed(error);
    return;
  }
  models.show(all);
  const example = all.find((model) => model.example)?.example;
  at("example").hidden = !example;
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
at("clear").addEventListener("click", () => { text.value = ""; fit(); translate(); text.focus(); });
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
