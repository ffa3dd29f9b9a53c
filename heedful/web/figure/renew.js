// One panel of a figure gets another trace, and all else stays: so a translation is drawn while it grows.

const HELD = ["pinned", "pointed", "focused"];

function renew(view, panel, trace) {
  if (trace.growing) hold(panel);
  const same = began(panel.trace, trace);
  const held = same ? HELD.filter((how) => view[how]?.panel === panel).map((how) => [how, view[how]]) : [];
  const inside = panel.box.contains(document.activeElement);
  const select = panel.select && panel.select === document.activeElement;
  for (const how of HELD) if (view[how]?.panel === panel) view[how] = null;
  if (!same) panel.at = { source: 0, target: 0 };
  panel.take(trace);
  offer(view);
  panel.draw();
  if (!trace.growing) release(panel);
  if (view.panels.length > 1 && panel.box.querySelector(".v-tight") && !view.frame.matches(".v-stacked")) view.draw();
  if (select) panel.select?.focus();
  for (const [how, { side, i }] of held) {
    if (!panel.units[side][i]) continue;
    if (how === "focused" && inside) panel.items[side][i].focus({ preventScroll: true });
    else view[how] = { panel, side, i };
  }
  view.mark();
}

// A figure that grows does not get smaller, so that nothing around it moves until it is finished.
function hold({ box, element }) {
  for (const part of [box, element]) part.style.minHeight = `${part.offsetHeight}px`;
}

function release({ box, element }) {
  for (const part of [box, element]) part.style.minHeight = "";
}

// Whether one trace is the beginning of another, so that its words still are where they were.
function began(before, after) {
  const starts = (some, all) => some.length <= all.length && some.every((token, i) => token === all[i]);
  const [x, y] = [before.source.tokens, after.source.tokens];
  return x.length === y.length && starts(x, y) && starts(before.target.tokens, after.target.tokens);
}
