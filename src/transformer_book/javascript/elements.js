// Elements of a page, for the widgets and for the live model.

// An element: properties where it has such, attributes where it has not, and children.
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// Text that stands there already is left alone: set anew, it would be laid out anew.
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const labeled = (text, ...controls) => make("label", {}, make("span", { textContent: text }), ...controls);
