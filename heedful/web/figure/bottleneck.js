// A model without attention: the source goes into one vector, and the translation is decoded from it.

const BOTTLENECK = { high: 150, dot: 6, most: 60 }; // pixels: height, and radius of the vector; most words

// On a line if the words fit, otherwise in two columns, like the braid.
function bottleneck(panel) {
  const { source, target } = panel.units;
  if (Math.max(source.length, target.length) > BOTTLENECK.most) {
    panel.items = { source: [], target: [] };
    panel.box.replaceChildren();
    return { mark: () => {} };
  }
  return bottleneckAcross(panel) ?? bottleneckDown(panel);
}

function bottleneckAcross(panel) {
  const frame = make("div", { className: "v-braid v-across v-bottleneck" });
  const svg = makeSvg("svg", { "aria-hidden": "true", height: BOTTLENECK.high });
  frame.append(label(panel, "source"), wordList(panel, "source"), svg, wordList(panel, "target"), label(panel, "target"));
  panel.box.replaceChildren(frame);
  if (frame.offsetWidth > panel.box.clientWidth) return null;
  frame.style.width = `${Math.min(panel.box.clientWidth, Math.max(320, 1.4 * frame.offsetWidth))}px`;
  if (panel.trace.growing) reserve(panel, frame);
  const { left } = frame.getBoundingClientRect();
  svg.setAttribute("width", frame.clientWidth);
  const [x, y] = [frame.clientWidth / 2, BOTTLENECK.high / 2];
  return drawThreads(panel, svg, [x, y], { x: x + 16, y: y + 4 }, (item, side) => {
    const box = item.getBoundingClientRect();
    const [at, edge] = [box.left - left + box.width / 2, side === "source" ? 0 : BOTTLENECK.high];
    const half = (edge + y) / 2;
    return `M${at.toFixed(1)} ${edge}C${at.toFixed(1)} ${half} ${x} ${half} ${x} ${y}`;
  });
}

function bottleneckDown(panel) {
  const svg = makeSvg("svg", { "aria-hidden": "true" });
  const scroll = make("div", { className: "v-scroll" }, wordList(panel, "source"), svg, wordList(panel, "target"));
  const names = make("div", { className: "v-heads" }, label(panel, "source"), label(panel, "target"));
  const { source, target } = panel.items;
  const height = LINE * Math.max(source.length, target.length);
  for (const items of [source, target]) {
    const count = panel.trace.growing ? height / LINE : items.length;
    for (const item of items) item.style.height = `${(height / count).toFixed(2)}px`;
  }
  panel.box.replaceChildren(make("div", { className: "v-braid v-down v-bottleneck" }, names, scroll));
  const width = Math.max(60, svg.clientWidth);
  svg.setAttribute("height", height);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const { top } = scroll.getBoundingClientRect();
  const [x, y] = [width / 2, height / 2];
  return drawThreads(panel, svg, [x, y], { x, y: 12, "text-anchor": "middle" }, (item, side) => {
    const box = item.getBoundingClientRect();
    const [at, edge] = [box.top - top + box.height / 2, side === "source" ? 0 : width];
    const half = (edge + x) / 2;
    return `M${edge} ${at.toFixed(1)}C${half} ${at.toFixed(1)} ${half} ${y} ${x} ${y}`;
  });
}

// A thread from every word to the vector at x, y, along `pathOf(item, side)`. Threads of the translation have one colour:
// it is unknown which source word they come from. `labelAt` is the place of the vector's label.
function drawThreads(panel, svg, [x, y], labelAt, pathOf) {
  const threads = {};
  for (const side of ["source", "target"]) {
    threads[side] = panel.items[side].map((item, i) => {
      const group = makeSvg("g", { class: `v-ribbon v-c${side === "source" ? i % HUES : 4}` });
      group.style.setProperty("--w", "0.3");
      group.append(makeSvg("path", { d: pathOf(item, side), "stroke-width": 2 }));
      return group;
    });
    svg.append(...threads[side]);
  }
  const text = makeSvg("text", { class: "v-vector-label", ...labelAt });
  text.textContent = "one vector";
  if (labelAt.x === x) svg.append(makeSvg("path", { class: "v-lines", d: `M${x} ${labelAt.y + 6}V${y}` }));
  svg.append(makeSvg("circle", { class: "v-vector", cx: x, cy: y, r: BOTTLENECK.dot }), text);
  return {
    mark(active) {
      svg.classList.toggle("v-dimmed", active !== null);
      for (const side of ["source", "target"]) {
        threads[side].forEach((group, i) => group.classList.toggle("v-on", active?.side === side && active.i === i));
      }
    },
  };
}
