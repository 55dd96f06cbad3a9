// What the widgets share: buttons, sliders, tables, pictures.

import { labeled, make, put } from "./elements.js";

export { labeled, make, put };

// Puts a widget in its place. `build` returns a function that draws its parts and returns
// a sentence, which is read out, and the parts. It draws anew when any of them is used.
export function live(name, build) {
  const root = document.querySelector(`[data-live="${name}"]`);
  const says = make("p", { className: "verdict", role: "status" });
  const redraw = () => put(says, draw());
  const [draw, ...parts] = build(redraw);
  root.replaceChildren(...parts, says);
  root.onclick = root.oninput = redraw;
  redraw();
}

// A button for each name of an object, which hands over what the name stands for.
export const choices = (ariaLabel, named, choose) =>
  make("div", { className: "presets", role: "group", ariaLabel }, ...Object.entries(named).map(([textContent, value]) =>
    make("button", { className: "md-button", textContent, onclick: () => choose(value) })));

// Marks the one that the widget stands at, if it does at any: `is` is asked of each value.
export const mark = (choices, named, is) => {
  for (const each of choices.children) each.ariaPressed = is(named[each.textContent]);
};

export const select = (texts) => make("select", {}, ...texts.map((text) => new Option(text)));

// A slider with its name and, beside it, where it stands in words. `scale` turns where it
// stands into the value that is read.
export function slider(name, range, say = String, scale = Number) {
  const input = make("input", { type: "range", ...range });
  const said = make("span", { className: "said", ariaHidden: true });
  return {
    input,
    row: make("div", { className: "slider" }, labeled(name, input), said),
    read() {
      const value = scale(input.value);
      put(said, (input.ariaValueText = say(value)));
      return value;
    },
  };
}

// A table, and its rows: the name of each, and the markup of its cells.
export const table = (className, headings) =>
  make("table", { className, innerHTML: `<thead><tr>${headings.map((name) => name ? `<th scope="col">${name}` : "<td>").join("")}<tbody>` });
export function fill(table, rows) {
  table.tBodies[0].innerHTML = rows.map(([name, ...cells]) => `<tr><th scope="row">${name}${cells.join("")}`).join("");
}
export const bar = (share, text = share.toFixed(3)) => `<td class="bar" style="--share:${share}">${text}`;

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// A table of buttons that are on or off, and these in rows: `press` is told row and column.
// It is one stop of the tabulator; arrows lead from button to button.
export function grid(headings, names, press, note = "") {
  const bench = table("bench", ["", ...headings, ""]);
  fill(bench, names.map((name) => [name, ...headings.map(() => "<td><button></button>"), note]));
  const buttons = [...bench.tBodies[0].rows].map((row, r) => [...row.querySelectorAll("button")].map((button, c) => {
    button.onclick = () => press(r, c);
    return button;
  }));
  const all = buttons.flat();
  const stop = (at) => all.forEach((button) => (button.tabIndex = button === at ? 0 : -1));
  stop(all[0]);
  bench.setAttribute("role", "grid");
  bench.addEventListener("focusin", ({ target }) => stop(target));
  bench.onkeydown = (event) => {
    const at = all.indexOf(event.target), [down, right] = ARROWS[event.key] ?? [0, 0];
    const next = buttons[Math.floor(at / headings.length) + down]?.[(at % headings.length) + right];
    if (event.key in ARROWS) event.preventDefault();
    next?.focus();
  };
  return [bench, buttons];
}

export const picture = (viewBox, label) =>
  make("div", { innerHTML: `<svg viewBox="${viewBox}" role="img" aria-label="${label}"/>` }).firstChild;
