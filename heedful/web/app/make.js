// Elements of the page. Text becomes text nodes and nothing else: whatever a person or a model writes is inert.

export function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name in element && name !== "role") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function percent(share) {
  return `${Math.round(100 * share)}\u00a0%`;
}
