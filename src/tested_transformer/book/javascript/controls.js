// What the widgets share: buttons, sliders, tables, bars, pictures that can be dragged.

import { make, put } from "./elements.js";

// Puts a widget in its places. `build` is given what draws it anew, and returns its parts
// and a function that draws them and returns a sentence, which is read out.
export function live(name, build) {
  for (const root of document.querySelectorAll(`[data-live="${name}"]`)) {
    const says = make("p", { className: "verdict", role: "status" });
    const [draw, ...parts] = build(() => put(says, draw()));
    root.replaceChildren(...parts, says);
    put(says, draw());
  }
}

// A button for each name of an object, which hands over what the name stands for.
export const choices = (label, named, choose) =>
  make("div", { className: "presets", role: "group", "aria-label": label }, ...Object.entries(named).map(([textContent, value]) =>
    make("button", { type: "button", className: "md-button", textContent, onclick: () => choose(value) })));

// A slider with its name and its value in words. `read` turns where it stands into the value.
export function slider(name, range, moved, say = String, read = Number) {
  const input = make("input", { type: "range", ...range, oninput: () => result.show() && moved() });
  const said = make("span", { className: "said", "aria-hidden": "true" });
  const result = {
    input,
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

// A table: a text is a heading, of a column or of a row, and an empty one is a corner.
export function table(className, headings, rows) {
  const row = (scope, each) => make("tr", {}, ...each.map((cell) => cell.tagName ? cell : cell ? make("th", { scope, textContent: cell }) : make("td")));
  return make("table", { className }, make("thead", {}, row("col", headings)), make("tbody", {}, ...rows.map((each) => row("row", each))));
}

// Cells that stay, and the heading of a row that changes.
export const cells = (count, className = "") => Array.from({ length: count }, () => make("td", { className }));
export const named = () => make("th", { scope: "row" });

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
