// Copying a text to the clipboard, also where the browser gives no permission: without https there is no clipboard API.

import { make } from "./make.js";

// Resolves to whether it was copied.
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return selected(text);
  }
}

function selected(text) {
  const before = document.activeElement;
  const field = make("textarea", { className: "p-away", value: text, ariaHidden: "true", tabIndex: -1 });
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  before?.focus({ preventScroll: true });
  return done;
}
