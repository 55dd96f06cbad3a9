// What the widgets share: sliders, bars, pictures that can be dragged.

import { make, put } from "./views.js";

// A slider with its name and its value in words. `read` turns where it stands into the value.
export function slider(name, range, moved, say = String, read = Number) {
  const input = make("input", { type: "range", ...range, oninput: () => result.show() && moved() });
  const said = make("span", { className: "said", "aria-hidden": "true" });
  const result = {
    row: make("div", { className: "slider" }, make("label", {}, make("span", { textContent: name }), input), said),
    get value() { return read(input.value); },
    set(to) {
      input.value = to;
      return result.show();
    },
    show() {
      put(said, say(result.value));
      input.setAttribute("aria-valuetext", said.textContent);
      return result;
    },
  };
  return result.show();
}

// A table with bars: a row for each name, a column for each heading but the first.
export function bars(headings, names) {
  const cells = names.map(() => headings.slice(1).map(() => make("td", { className: "bar" })));
  const table = make("table", { className: "bars" },
    make("thead", {}, make("tr", {}, ...headings.map((textContent) => make("th", { scope: "col", textContent })))),
    make("tbody", {}, ...names.map((textContent, row) => make("tr", {}, make("th", { scope: "row", textContent }), ...cells[row]))));
  return { table, cells };
}

export function fill(cell, share, text = share.toFixed(3)) {
  cell.style.setProperty("--share", share);
  put(cell, text);
}

export function picture(viewBox, label, markup) {
  const svg = make("div", { innerHTML: `<svg viewBox="${viewBox}" role="img">${markup}</svg>` }).firstChild;
  svg.setAttribute("aria-label", label);
  return svg;
}

export function place(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

// Tells how far from left to right, 0 to 1, a mouse or a finger is on an element.
export function drag(element, told) {
  const tell = (event) => {
    const { left, width } = element.getBoundingClientRect();
    told((event.clientX - left) / width);
  };
  element.addEventListener("pointerdown", (event) => {
    element.setPointerCapture(event.pointerId);
    tell(event);
  });
  element.addEventListener("pointermove", (event) => element.hasPointerCapture(event.pointerId) && tell(event));
}
