// The controls of a figure: the view, words or tokens, and the share of the weight that ribbons show.

const LABELS = {
  ...{ braid: "Braid", self: "Braid", heatmap: "Heat map", heads: "Heads", regions: "Regions" },
  ...{ words: "Words", tokens: "Tokens", grid: "Grid", smooth: "Smooth" },
};

// Rebuilt only if the available views change, so that they keep the focus.
function updateControls(view) {
  const every = (what) => view.panels.every((panel) => panel.trace[what]);
  const views = [every("image") ? "regions" : every("self") ? "self" : "braid", "heatmap"];
  if (view.panels.some(({ heads, trace }) => heads || trace.soon)) views.push("heads");
  if (!views.includes(view.state.view)) [view.state.view] = views;
  if (view.shownViews === String(views)) return;
  view.shownViews = String(views);
  const groups = [choices(view, "view", "View", views), choices(view, "unit", "By", ["words", "tokens"])];
  if (views[0] === "regions") groups.push(choices(view, "weights", "Weights", ["grid", "smooth"]));
  view.controls.replaceChildren(...groups, slider(view));
}

function choices(view, key, title, values) {
  const group = make("fieldset", { className: "v-choices" }, make("legend", {}, title));
  group.dataset.key = key;
  for (const value of values) {
    const input = make("input", { type: "radio", name: `${view.name}-${key}`, value });
    input.checked = view.state[key] === value;
    input.addEventListener("change", () => {
      view.state[key] = value;
      if (key !== "weights") view.pinned = view.pointed = null;
      view.draw();
    });
    group.append(make("label", {}, input, make("span", {}, LABELS[value])));
  }
  return group;
}

function slider(view) {
  const output = make("output", {}, percent(view.state.keep));
  const input = make("input", { type: "range", min: 1, max: 100, step: 1, value: 100 * view.state.keep });
  input.addEventListener("input", () => {
    view.state.keep = input.value / 100;
    output.textContent = percent(view.state.keep);
    view.draw();
  });
  const all = [...new Set(view.panels.map((panel) => labelsOf(panel.trace)[1]))].join(" or ");
  const [before, after] = ["Draw the largest", `of each word\u2019s ${all}`].map((text) => make("span", {}, text));
  return make("label", { className: "v-slider" }, before, input, output, after);
}
