// The page: what is typed, which models translate it, and one figure for all of them.

import { Connection } from "./connection.js";
import { Lane } from "./lane.js";
import { Models } from "./models.js";
import { saving } from "./save.js";
import { Gone, Problem, ask, remember, remembered, useToken } from "./service.js";

const PAUSE = 400; // milliseconds without a key, after which a text is translated

const at = (id) => document.getElementById(id);
const [text, problem, empty, result] = ["text", "problem", "empty", "result"].map(at);
const connection = new Connection(at("gone"), back);
const models = new Models(at("models"), () => { arrange(); translate(); });
let lanes = [];
let figure = null;
let timer = 0;
let asked = ""; // the text that was translated last

const page = {
  draw: (lane, trace) => {
    result.classList.remove("p-stale");
    figure.renew(lanes.indexOf(lane), trace);
  },
  panel: (lane) => figure?.panels[lanes.indexOf(lane)],
  // Whoever hears the page hears whole translations, once they are there.
  said: () => {
    connection.fine();
    if (lanes.some((lane) => lane.element.ariaBusy === "true")) return;
    const name = (lane) => (lanes.length > 1 ? `${lane.name}: ` : "");
    at("spoken").textContent = lanes.filter((lane) => lane.item).map((lane) => name(lane) + lane.item.text).join("; ");
  },
  say: (text) => { at("spoken").textContent = text; },
  failed: (lane, error) => {
    if (error instanceof Problem && error.retry) later(lane, error);
    else if (error instanceof Problem && error.status !== 401 && error.field !== "text") lane.refuse(error);
    else failed(error);
  },
};

// The service is busy and says when to come again.
function later(lane, error) {
  lane.refuse(error);
  setTimeout(() => { if (lane.failed && lanes.includes(lane)) lane.again(); }, 1000 * error.retry);
}

function failed(error) {
  if (error instanceof Gone) {
    result.classList.add("p-stale");
    connection.lost(error);
  } else if (error.status === 401) {
    if (at("token").value) at("pass").querySelector("label").textContent = "This token was not accepted.";
    at("pass").hidden = false;
    at("token").focus();
  } else if (error instanceof Problem) {
    refuse(error.message);
    result.hidden = true; // what is there is of another text
  } else {
    throw error;
  }
}

function refuse(message) {
  problem.textContent = message;
  text.setAttribute("aria-invalid", String(Boolean(message)));
}

// A lane and a panel for each model that was chosen.
function arrange() {
  lanes.forEach((lane) => lane.stop());
  const several = models.all.length > 1;
  lanes = models.chosen().map((model) => new Lane(model, several ? model.name : "", page));
  const traces = lanes.map((lane) => blank(lane));
  if (figure) figure.update({ traces });
  else figure = heedful.view(at("figure"), { view: "braid", traces });
  figure.panels.forEach((panel, i) => panel.box.before(lanes[i].element));
  figure.onmark = (panel, active) => lanes[figure.panels.indexOf(panel)]?.mark(panel, active);
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
  asked = text.value;
  remember("text", asked);
  refuse("");
  const any = Boolean(asked.trim()) && lanes.length > 0;
  result.hidden = !any;
  empty.hidden = any;
  at("clear").hidden = !asked;
  if (any) lanes.forEach((lane) => lane.run(asked));
  else lanes.forEach((lane) => lane.stop());
}

function typed() {
  fit();
  clearTimeout(timer);
  if (text.value !== asked) timer = setTimeout(translate, text.value.trim() ? PAUSE : 0);
}

// As high as its text, up to a part of the window.
function fit() {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight + 2}px`;
}

async function begin() {
  let all;
  try {
    ({ models: all } = await ask("v1/models"));
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

// The service is there again. With the same models, what could not be had is asked for once more; with others all
// begins anew.
async function back() {
  const before = JSON.stringify(models.all);
  const now = await ask("v1/models").catch(() => null);
  if (!now || !lanes.length || JSON.stringify(now.models) !== before) return begin();
  at("spoken").textContent = "The service is back.";
  lanes.filter((lane) => lane.failed).forEach((lane) => lane.again());
}

text.addEventListener("input", (event) => { if (event.isComposing) fit(); else typed(); });
text.addEventListener("compositionend", typed);
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
saving(at("save"), at("saved"), () => ({ figure, lanes }));
addEventListener("resize", fit);
text.value = remembered("text");
fit();
begin();
