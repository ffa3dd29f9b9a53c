// A model without attention: all words of the source go into one vector, and all of the translation come out of it.

const NECK = { high: 150, dot: 6, most: 60 }; // pixels: the height, and the vector; and words at most

// On a line if the words fit, otherwise in two columns, as the braid.
function bottleneck(panel) {
  const { source, target } = panel.units;
  if (Math.max(source.length, target.length) > NECK.most) {
    panel.items = { source: [], target: [] };
    panel.box.replaceChildren();
    return { mark: () => {} };
  }
  return neckAcross(panel) ?? neckDown(panel);
}

function neckAcross(panel) {
  const frame = make("div", { className: "v-braid v-across v-neck" });
  const svg = draw("svg", { "aria-hidden": "true", height: NECK.high });
  frame.append(label(panel, "source"), listed(panel, "source"), svg, listed(panel, "target"), label(panel, "target"));
  panel.box.replaceChildren(frame);
  if (frame.offsetWidth > panel.box.clientWidth) return null;
  frame.style.width = `${Math.min(panel.box.clientWidth, Math.max(320, 1.4 * frame.offsetWidth))}px`;
  if (panel.trace.growing) reserve(panel, frame);
  const { left } = frame.getBoundingClientRect();
  svg.setAttribute("width", frame.clientWidth);
  const [x, y] = [frame.clientWidth / 2, NECK.high / 2];
  return threaded(panel, svg, [x, y], { x: x + 16, y: y + 4 }, (item, side) => {
    const box = item.getBoundingClientRect();
    const [at, edge] = [box.left - left + box.width / 2, side === "source" ? 0 : NECK.high];
    const half = (edge + y) / 2;
    return `M${at.toFixed(1)} ${edge}C${at.toFixed(1)} ${half} ${x} ${half} ${x} ${y}`;
  });
}

function neckDown(panel) {
  const svg = draw("svg", { "aria-hidden": "true" });
  const scroll = make("div", { className: "v-scroll" }, listed(panel, "source"), svg, listed(panel, "target"));
  const names = make("div", { className: "v-heads" }, label(panel, "source"), label(panel, "target"));
  const { source, target } = panel.items;
  const height = LINE * Math.max(source.length, target.length);
  for (const items of [source, target]) {
    const count = panel.trace.growing ? height / LINE : items.length;
    for (const item of items) item.style.height = `${(height / count).toFixed(2)}px`;
  }
  panel.box.replaceChildren(make("div", { className: "v-braid v-down v-neck" }, names, scroll));
  const width = Math.max(60, svg.clientWidth);
  svg.setAttribute("height", height);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const { top } = scroll.getBoundingClientRect();
  const [x, y] = [width / 2, height / 2];
  return threaded(panel, svg, [x, y], { x, y: 12, "text-anchor": "middle" }, (item, side) => {
    const box = item.getBoundingClientRect();
    const [at, edge] = [box.top - top + box.height / 2, side === "source" ? 0 : width];
    const half = (edge + x) / 2;
    return `M${edge} ${at.toFixed(1)}C${half} ${at.toFixed(1)} ${half} ${y} ${x} ${y}`;
  });
}

// A thread from every word to the vector at x, y, along the path that `way` gives. Those of the translation have no
// colour of their own: nothing tells which word of the source they come from. `told` is where the vector's name stands.
function threaded(panel, svg, [x, y], told, way) {
  const threads = {};
  for (const side of ["source", "target"]) {
    threads[side] = panel.items[side].map((item, i) => {
      const group = draw("g", { class: `v-ribbon v-c${side === "source" ? i % HUES : 4}` });
      group.style.setProperty("--w", "0.3");
      group.append(draw("path", { d: way(item, side), "stroke-width": 2 }));
      return group;
    });
    svg.append(...threads[side]);
  }
  const text = draw("text", { class: "v-vector-said", ...told });
  text.textContent = "one vector";
  if (told.x === x) svg.append(draw("path", { class: "v-lines", d: `M${x} ${told.y + 6}V${y}` }));
  svg.append(draw("circle", { class: "v-vector", cx: x, cy: y, r: NECK.dot }), text);
  return {
    mark(active) {
      svg.classList.toggle("v-some", active !== null);
      for (const side of ["source", "target"]) {
        threads[side].forEach((group, i) => group.classList.toggle("v-on", active?.side === side && active.i === i));
      }
    },
  };
}
