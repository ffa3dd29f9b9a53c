// Changing one word of a translation: a field in the place of the word; what comes after it will be written anew.

import { make } from "./make.js";

let editors = 0;

// Resolves to the new text of word i, or to null when it is left as it was.
export function change(words, i) {
  const span = words.spans[i];
  const old = span.textContent;
  const hint = `word-${++editors}`;
  const plain = { value: old, dir: "auto", spellcheck: false, autocapitalize: "off" };
  const input = make("input", { className: "t-field", ...plain });
  input.setAttribute("aria-label", `instead of ${old}`);
  input.setAttribute("aria-describedby", hint);
  const go = make("button", { type: "button", className: "p-main" }, "Go on from here");
  const leave = make("button", { type: "button", className: "p-quiet" }, "Leave it");
  const told = make("span", { id: hint, className: "p-away" }, "What follows is written anew.");
  const bar = make("div", { className: "t-bar" }, told, go, leave);
  const wide = span.offsetWidth;
  const fit = () => {
    const own = input.value === old ? 0 : [...input.value].length + 1;
    input.style.width = `max(${wide + 4}px, ${own}ch)`;
  };
  fit();
  words.hold();
  span.hidden = true;
  span.before(input);
  words.element.after(bar);
  words.spans.forEach((other, j) => other.classList.toggle("t-later", j > i));
  input.focus();
  input.select();
  return new Promise((resolve) => {
    let open = true;
    const end = (value, stay = true) => {
      if (!open) return;
      open = false;
      words.release();
      span.hidden = false;
      input.remove();
      bar.remove();
      words.spans.forEach((other) => other.classList.remove("t-later"));
      if (stay) words.focus(i);
      resolve(value);
    };
    input.addEventListener("input", fit);
    input.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter") end(input.value.trim());
      else if (event.key === "Escape") end(null);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    go.addEventListener("click", () => end(input.value.trim()));
    leave.addEventListener("click", () => end(null));
    words.close = () => end(null, false); // somebody else has the floor
  });
}
