// What the widgets share: buttons, sliders, tables, pictures.

import { labeled, make, put } from "./elements.js";

export { labeled, make, put };

// Puts a widget in its place. `build` returns a function that draws its parts and returns
// a sentence, which is read out, and the parts. It draws anew when any of them is used.
export function live(name, build) {
  const root = document.querySelector(`[data-live="${name}"]`);
  const says = make("p", { className: "verdict", role: "status" });
  const redraw = () => {
    put(says, draw());
    for (const each of root.querySelectorAll(".presets button")) each.ariaPressed = each.now();
  };
  const [draw, ...parts] = build(redraw);
  root.replaceChildren(...parts, says);
  root.onclick = root.oninput = redraw;
  redraw();
}

// A button for each name of an object, which hands over what the name stands for. The one
// that the widget stands at is marked, if there is one: `is` is asked of each value.
export const choices = (ariaLabel, named, choose, is) =>
  make("div", { className: "presets", role: "group", ariaLabel }, ...Object.entries(named).map(([textContent, value]) =>
    Object.assign(make("button", { className: "md-button", textContent, onclick: () => choose(value) }), { now: () => is(value) })));

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

// A table of buttons that are on or off, and these in one row: `press` is told row and
// column. It is one stop of the tabulator; arrows lead from button to button.
export function grid(headings, names, press, note = "") {
  const bench = table("bench", ["", ...headings, ""]), { length } = headings;
  fill(bench, names.map((name) => [name, ...headings.map(() => "<td><button></button>"), note]));
  const buttons = [...bench.querySelectorAll("button")];
  const leads = { ArrowUp: -length, ArrowDown: length, ArrowLeft: -1, ArrowRight: 1 };
  buttons.forEach((button, at) => {
    button.onclick = () => press(Math.floor(at / length), at % length);
    button.tabIndex = at && -1;
    button.onkeydown = (event) => {
      const next = buttons[at + leads[event.key]];
      if (!next) return;
      event.preventDefault();
      button.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    };
  });
  return [bench, buttons];
}

export const picture = (viewBox, label) =>
  make("div", { innerHTML: `<svg viewBox="${viewBox}" role="img" aria-label="${label}"/>` }).firstChild;
