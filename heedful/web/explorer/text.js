// A text as running text, whose words or tokens can be pointed at, selected and shaded. A long text is a list of chunks,
// and only those near the visible part have elements.

const CHUNK = 120; // units
const WHOLE = 600; // a text of up to so many units is one chunk
const SHOWN = 8; // of so many units the share is written below the word
const SETTLED = 150; // milliseconds after scrolling until words can be pointed at
const LEAST = { words: 0.03, tokens: 0.05 }; // and only from this share on

class TextView {
  // `options`: name, what is read to screen readers; side; generated, the first generated token or null; handlers
  // point(i or null), pick(i, how) with how "one", "add", "range", and clear().
  constructor(text, unit, options) {
    Object.assign(this, { text, unit, options });
    this.units = text.units(unit);
    this.at = 0;
    this.items = [];
    this.list = make("div", { className: "x-text", role: "listbox", dir: text.rtl ? "rtl" : "ltr" });
    this.list.setAttribute("aria-multiselectable", "true");
    this.list.setAttribute("aria-label", `${options.name}, ${this.units.count.toLocaleString("en")} ${unit}`);
    this.list.classList.toggle("x-pieces", unit === "tokens");
    this.chunks = this.divide();
    this.long = this.chunks.length > 2;
    this.scroll = make("div", { className: "x-text-scroll" }, this.list);
    this.element = make("div", { className: "x-side" }, this.scroll);
    if (this.long) this.element.prepend(this.overview());
    this.element.classList.toggle("x-long", this.long);
    this.list.append(...this.chunks.flatMap((chunk) => (chunk.label ? [chunk.label, chunk.box] : [chunk.box])));
    this.shading = null;
    this.observe();
    this.listen();
  }

  // Chunks of units; one begins where the generated tokens begin.
  divide() {
    const { count } = this.units;
    const { generated } = this.options;
    const border = generated === null ? -1 : this.units.owner[generated] ?? -1;
    const length = count > WHOLE ? CHUNK : count;
    const chunks = [];
    for (let first = 0; first < count;) {
      let last = Math.min(count, first + length);
      if (first < border && border < last) last = border;
      const box = make("div", { className: "x-chunk" });
      const chunk = { first, last, box, number: chunks.length, filled: false, near: false };
      box.dataset.chunk = chunk.number;
      if (border >= 0 && (first === 0 || first === border)) {
        chunk.label = make("p", { className: "x-part", ariaHidden: "true" }, first === border ? "generated" : "prompt");
      }
      box.classList.toggle("x-generated", border >= 0 && first >= border);
      if (count > WHOLE) {
        box.dataset.from = (this.units.first[first] + 1).toLocaleString("en");
        box.setAttribute("role", "group");
        box.setAttribute("aria-label", `${this.unit} ${first + 1} to ${last}`);
      } else box.setAttribute("role", "presentation");
      chunks.push(chunk);
      first = last;
    }
    return chunks;
  }

  chunkOf(i) {
    let [low, high] = [0, this.chunks.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.chunks[middle].last <= i) low = middle + 1;
      else high = middle;
    }
    return this.chunks[low];
  }

  // The elements of a chunk: white space stays between them.
  fill(chunk) {
    if (chunk.filled) return;
    chunk.filled = true;
    const { text, units } = this;
    const nodes = [];
    let at = chunk.first ? units.end[chunk.first - 1] : 0;
    for (let i = chunk.first; i < chunk.last; i++) {
      const raw = units.raw(i);
      const space = raw.length - raw.trimStart().length;
      if (units.special(i)) nodes.push(nodes.length && nodes.at(-1) !== " " ? " " : "", this.item(i, units.name(i)), " ");
      else {
        const joined = i > chunk.first && units.start[i] === at && !space && !units.special(i - 1) && /\S$/u.test(units.raw(i - 1));
        const first = i === chunk.first; // a chunk begins a line
        if (units.start[i] > at && !first) nodes.push(text.text.slice(at, units.start[i]));
        if (raw.trim()) nodes.push(first ? "" : raw.slice(0, space), this.item(i, raw.trim(), joined), raw.slice(space + raw.trim().length));
        else nodes.push(this.item(i, units.name(i), joined), raw.replace(/[^\n]/gu, ""));
        at = Math.max(at, units.end[i]);
      }
    }
    chunk.box.replaceChildren(...nodes.filter((node) => node !== ""));
    chunk.box.style.minHeight = "";
    chunk.painted = null;
  }

  // `joined`: no space is before it.
  item(i, text, joined = false) {
    const item = make("span", { className: "x-unit", role: "option", tabIndex: i === this.at ? 0 : -1 }, text);
    item.dataset.i = i;
    item.setAttribute("aria-selected", "false");
    if (this.long) {
      item.setAttribute("aria-setsize", this.units.count);
      item.setAttribute("aria-posinset", i + 1);
    }
    if (this.units.special(i)) item.classList.add("x-special");
    if (this.options.sinks.has(i)) item.classList.add("x-sink");
    if (joined) item.classList.add("x-joined");
    this.items[i] = item;
    return item;
  }

  // Chunks near the visible part are filled, a few in each frame.
  observe() {
    if (!this.long) {
      for (const chunk of this.chunks) { this.fill(chunk); chunk.near = true; }
      return;
    }
    for (const { box, first, last } of this.chunks) {
      const letters = this.units.end[last - 1] - this.units.start[first];
      box.style.minHeight = `${(letters / 70 + 1).toFixed(1)}lh`;
    }
    this.fill(this.chunks[0]);
    this.watch = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) this.chunks[target.dataset.chunk].near = isIntersecting;
      this.work();
    }, { root: this.scroll, rootMargin: "500px 0px" });
    for (const chunk of this.chunks) this.watch.observe(chunk.box);
    this.scroll.addEventListener("scroll", () => {
      this.scrolled = performance.now();
      onNextFrame(this, () => this.drawOverview());
    }, { passive: true });
  }

  work() {
    if (this.working) return;
    this.working = true;
    requestAnimationFrame(() => {
      this.working = false;
      // Chunks far away that were filled before still have the marks of an earlier shading: they come last.
      const stale = this.chunks.filter((chunk) => (chunk.near || chunk.filled) && chunk.painted !== this.shading);
      const waiting = [...stale.filter((chunk) => chunk.near), ...stale.filter((chunk) => !chunk.near)];
      for (const chunk of waiting.slice(0, 3)) this.paintChunk(chunk);
      if (waiting.length > 3) this.work();
    });
  }

  // Shade the units: `values` of all units or null, `most` is the value of the full shade, `selected` units, `labels`
  // as [unit, value] have their share below them.
  paint(shading) {
    this.shading = shading;
    const selected = new Set(shading.selected);
    const labels = new Map(shading.labels);
    Object.assign(shading, { selectedSet: selected, labelMap: labels });
    if (this.long) {
      this.drawOverview();
      this.work();
    } else for (const chunk of this.chunks) this.paintChunk(chunk);
  }

  paintChunk(chunk) {
    this.fill(chunk);
    const { shading } = this;
    if (!shading || chunk.painted === shading) return;
    chunk.painted = shading;
    const { values, most, selectedSet, labelMap, found, apart } = shading;
    for (let i = chunk.first; i < chunk.last; i++) {
      const item = this.items[i];
      const level = values && most > 0 ? Math.min(32, Math.round((32 * values[i]) / most)) : 0;
      const on = selectedSet.has(i);
      const share = labelMap.has(i) ? percent(labelMap.get(i)) : "";
      const key = `${level}|${on}|${share}|${found?.has(i) ?? false}|${apart && this.options.sinks.has(i)}`;
      if (item.shown === key) continue;
      item.shown = key;
      item.style.setProperty("--w", `${(level / 0.32).toFixed(0)}%`);
      item.classList.toggle("x-lit", level > 0);
      item.classList.toggle("x-full", level / 32 >= DARK);
      item.classList.toggle("x-on", on);
      item.classList.toggle("x-found", Boolean(found?.has(i)));
      item.classList.toggle("x-apart", Boolean(apart && this.options.sinks.has(i)));
      item.setAttribute("aria-selected", String(on));
      if (share) item.dataset.share = share;
      else delete item.dataset.share;
    }
  }

  // A strip of the whole text with all shades, the selected units and the visible part; a click goes there.
  overview() {
    this.canvas = make("canvas", { className: "x-overview", title: "the whole text: click to go there" });
    this.canvas.setAttribute("aria-hidden", "true");
    this.canvas.addEventListener("click", (event) => {
      const box = this.canvas.getBoundingClientRect();
      const share = (event.clientX - box.left) / box.width;
      this.reveal(Math.floor(Math.min(0.9999, Math.max(0, this.text.rtl ? 1 - share : share)) * this.units.count));
    });
    new ResizeObserver(() => this.drawOverview()).observe(this.canvas);
    return this.canvas;
  }

  drawOverview() {
    const { canvas, shading, units } = this;
    const [width, height] = [canvas?.clientWidth ?? 0, 26];
    if (!width || !shading) return;
    if (canvas.width !== width) canvas.width = width;
    if (canvas.height !== height) canvas.height = height;
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, width, height);
    if (this.strip !== shading || this.stripWidth !== width) {
      this.bins = new Float32Array(width);
      const { values, most } = shading;
      if (values && most > 0) for (let i = 0; i < units.count; i++) {
        const x = Math.floor((i * width) / units.count);
        this.bins[x] = Math.max(this.bins[x], values[i] / most);
      }
      [this.strip, this.stripWidth] = [shading, width];
    }
    const place = (share) => (this.text.rtl ? width - share * width : share * width);
    const style = getComputedStyle(canvas);
    pen.fillStyle = style.getPropertyValue("--x-tone");
    this.bins.forEach((level, x) => {
      if (level < 0.01) return;
      pen.globalAlpha = 0.25 + 0.75 * level;
      const tall = Math.max(2, level * (height - 8));
      pen.fillRect(this.text.rtl ? width - 1 - x : x, height - 4 - tall, 1, tall);
    });
    pen.globalAlpha = 1;
    pen.fillStyle = style.getPropertyValue("--v-gold");
    for (const i of shading.selected) pen.fillRect(place(i / units.count) - 1, 0, 3, height);
    const { scrollTop, scrollHeight, clientHeight } = this.scroll;
    const [from, to] = [place(scrollTop / scrollHeight), place((scrollTop + clientHeight) / scrollHeight)];
    pen.strokeStyle = style.getPropertyValue("--v-ink");
    pen.strokeRect(Math.min(from, to) + 0.5, 0.5, Math.max(4, Math.abs(to - from) - 1), height - 1);
  }

  // Scroll to a unit, without moving the focus.
  reveal(i) {
    const chunk = this.chunkOf(i);
    if (!chunk) return;
    this.paintChunk(chunk);
    const item = this.items[i];
    if (!this.long) {
      item.scrollIntoView({ block: "nearest" });
      return;
    }
    const box = item.getBoundingClientRect();
    const frame = this.scroll.getBoundingClientRect();
    this.scroll.scrollTop += box.top - frame.top - this.scroll.clientHeight / 2 + box.height / 2;
  }

  focusable(i) {
    if (this.items[this.at]) this.items[this.at].tabIndex = -1;
    this.at = i;
    if (this.items[i]) this.items[i].tabIndex = 0;
  }

  focus(i) {
    const chunk = this.chunkOf(i);
    if (!chunk) return;
    this.paintChunk(chunk);
    this.focusable(i);
    this.items[i].focus({ preventScroll: this.long });
    if (this.long) {
      const [box, frame] = [this.items[i].getBoundingClientRect(), this.scroll.getBoundingClientRect()];
      if (box.top < frame.top || box.bottom > frame.bottom) this.reveal(i);
    }
  }

  listen() {
    const { point, pick } = this.options;
    const numberOf = (event) => {
      const item = event.target.closest?.(".x-unit");
      return item ? Number(item.dataset.i) : null;
    };
    let pressed = null; // where a mouse was pressed, to select by dragging
    this.list.addEventListener("pointerdown", (event) => {
      pressed = event.pointerType === "mouse" && event.button === 0 ? numberOf(event) : null;
    });
    this.list.addEventListener("pointerover", (event) => {
      const i = numberOf(event);
      if (i === null || event.pointerType !== "mouse") return;
      if (performance.now() - (this.scrolled ?? -SETTLED) < SETTLED) return; // the text moves, not the mouse
      if (pressed !== null && event.buttons === 1 && i !== pressed) pick(i, "drag", pressed);
      else point(i);
    });
    this.list.addEventListener("pointerout", (event) => { if (numberOf(event) !== null) point(null); });
    this.list.addEventListener("click", (event) => {
      const i = numberOf(event);
      if (i === null) return;
      this.focusable(i);
      this.items[i].focus({ preventScroll: true });
      pick(i, event.shiftKey ? "range" : event.ctrlKey || event.metaKey ? "add" : "one");
    });
    this.list.addEventListener("keydown", (event) => this.key(event, numberOf(event)));
    this.list.addEventListener("focusin", (event) => { const i = numberOf(event); if (i !== null) this.focusable(i); });
  }

  key(event, i) {
    if (i === null || event.altKey) return;
    const { pick } = this.options;
    if (event.key === "Enter" || event.key === " ") {
      pick(i, event.shiftKey ? "range" : event.ctrlKey || event.metaKey ? "add" : "one");
    } else {
      const next = this.next(event.key, i);
      if (next === null) return;
      this.focus(next);
      if (event.shiftKey) pick(next, "range", i);
    }
    event.preventDefault();
  }

  // The unit that a key moves to: up and down by lines, as they are set.
  next(key, i) {
    const last = this.units.count - 1;
    const right = this.text.rtl ? -1 : 1;
    const moves = { ArrowRight: right, ArrowLeft: -right, PageDown: 100, PageUp: -100, Home: -i, End: last - i };
    if (key in moves) return Math.min(last, Math.max(0, i + moves[key]));
    if (key !== "ArrowDown" && key !== "ArrowUp") return null;
    const step = key === "ArrowDown" ? 1 : -1;
    const here = this.items[i].getBoundingClientRect();
    let [best, gap, line] = [i, Infinity, null];
    for (let j = i + step; j >= 0 && j <= last; j += step) {
      this.paintChunk(this.chunkOf(j));
      const box = this.items[j].getBoundingClientRect();
      if (Math.abs(box.top - here.top) < here.height / 2) continue;
      line ??= box.top;
      if (Math.abs(box.top - line) > here.height / 2) break;
      const away = Math.abs((box.left + box.right) / 2 - (here.left + here.right) / 2);
      if (away < gap) [best, gap] = [j, away];
    }
    return best;
  }

  fillAll() {
    for (const chunk of this.chunks.slice(0, 100)) this.paintChunk(chunk);
  }

  close() {
    this.watch?.disconnect();
  }
}
