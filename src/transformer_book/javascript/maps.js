// Maps of weights, each a canvas with one pixel for a weight, which the stylesheet
// enlarges; and the large map, with the words of its rows and columns beside it. These
// stay where they are while the map scrolls, so that no text is too long for them.

import { labeled, make, put } from "./elements.js";

// The colors of the palette, as red, green and blue: canvases have to be told of them.
let inks;
function recolor() {
  const style = getComputedStyle(document.body);
  inks = ["accent", "warm"].map((name) => {
    const hex = parseInt(style.getPropertyValue(`--book-${name}`).trim().slice(1), 16);
    return [hex >> 16, (hex >> 8) & 255, hex & 255];
  });
}

// Draws anew whenever the palette changes, which is an attribute of the body.
export function onPalette(redraw) {
  recolor();
  new MutationObserver(() => {
    recolor();
    redraw();
  }).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
}

// As opaque as a number is large; below zero in the second color.
export function paint(canvas, rows) {
  const count = Math.max(1, rows.length), image = new ImageData(count, count);
  canvas.width = canvas.height = count;
  rows.forEach((row, t) => row.forEach((value, s) =>
    image.data.set([...inks[value < 0 ? 1 : 0], Math.round(255 * Math.abs(value))], 4 * (t * count + s))));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// Spans for words; those that stay are left alone.
export function fillWords(box, words, chosen = -1) {
  while (box.children.length > words.length) box.lastChild.remove();
  words.forEach((word, at) => {
    const span = box.children[at] ?? box.appendChild(make("span", { "data-at": at }));
    put(span, word);
    span.classList.toggle("chosen", at === chosen);
  });
}

// A small map: a radio button for its head, with a canvas.
export function smallMap(name, layer, head, label, checked, onchange) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const cell = make("label", { className: "map", title: label }, make("input", { type: "radio", name, checked, onchange }),
    make("span", { className: "frame" }, canvas),
    make("span", { className: "named" }, make("span", { className: "number", textContent: `${layer}.${head}` }), ` ${label.replace(/ [\d.]+$/, "")}`));
  return { canvas, cell };
}

// The large map of the chosen head, a cell of it in words, and a slider for its query and
// one for its key. `look` is told where these go, and `pick` of a cell that is clicked.
export class ChosenHead {
  constructor(look, pick = look) {
    const range = (name, oninput) => make("input", { type: "range", "aria-label": name, min: 0, value: 0, oninput });
    this.name = make("p", { className: "says-head" });
    this.says = make("p", { className: "says" });
    this.board = new Board(pick, (query, key) => this.point(query, key));
    this.sliders = [range("Query", () => look(Number(this.sliders[0].value))), range("Key", () => look(this.query, Number(this.sliders[1].value)))];
    this.placed = [make("output"), make("output")];
    this.root = make("div", { className: "chosen-head" }, this.name, this.board.root, this.says,
      ...["Query", "Key"].map((name, which) => labeled(name, this.sliders[which], this.placed[which])));
  }

  // `words` stand at the map, and `said` is how they are read out.
  draw(name, rows, words, said, query, key) {
    Object.assign(this, { rows, said, query, key });
    put(this.name, name);
    this.board.draw(rows, words, query, key);
    [[query, rows.length - 1], [key, query]].forEach(([at, most], which) => {
      this.sliders[which].max = Math.max(0, most);
      this.sliders[which].value = at;
      put(this.placed[which], rows.length ? `${at}: ${said[at]}` : "none");
      this.sliders[which].setAttribute("aria-valuetext", this.placed[which].textContent);
    });
    this.point();
  }

  // In words, the cell that is pointed at, or else the chosen one.
  point(query = this.query, key = this.key) {
    const { rows, said } = this, { length } = rows;
    const weight = query < length && key <= query ? rows[query][key].toFixed(2) : "0, hidden by the mask";
    put(this.says, query < length && key < length ? `From ${said[query]} to ${said[key]}: ${weight}` : "");
  }
}

export class Board {
  // `choose` and `point` are told the query and the key of a cell, which is clicked or
  // pointed at.
  constructor(choose, point) {
    this.canvas = make("canvas", { "aria-hidden": "true" });
    [this.keys, this.queries] = ["keys", "queries"].map((className) => make("div", { className, "aria-hidden": "true" }));
    const [row, cell] = ["row", "cell"].map((className) => make("i", { className }));
    this.plane = make("div", { className: "plane" }, this.canvas, row, cell);
    this.root = make("div", { className: "board", tabIndex: 0, role: "region", "aria-label": "Map of the chosen head" },
      make("div", { className: "inside" }, make("div", { className: "corner" }), this.keys, this.queries, this.plane));
    const at = ({ clientX, clientY }) => {
      const { left, top, width } = this.canvas.getBoundingClientRect();
      return [clientY - top, clientX - left].map((length) => Math.floor((length / width) * this.count));
    };
    this.plane.onclick = (event) => choose(...at(event));
    this.plane.onpointermove = (event) => point(...at(event));
    this.plane.onpointerleave = () => point();
    this.queries.onclick = ({ target }) => target.dataset.at && choose(Number(target.dataset.at));
  }

  draw(rows, words, query, key) {
    this.count = words.length;
    this.root.style.setProperty("--count", Math.max(1, this.count));
    this.root.style.setProperty("--query", query);
    this.root.style.setProperty("--key", key);
    this.plane.hidden = !this.count;
    fillWords(this.keys, words, key);
    fillWords(this.queries, words, query);
    paint(this.canvas, rows);
    this.reveal(query, key);
  }

  // Scroll to a cell that is out of sight.
  reveal(query, key) {
    const { root, canvas, count, keys, queries } = this;
    const cell = canvas.clientWidth / count;
    const seen = (at, from, room) => Math.min(at * cell, Math.max(from, (at + 1) * cell - room));
    root.scrollTop = seen(query, root.scrollTop, root.clientHeight - keys.clientHeight);
    root.scrollLeft = seen(key, root.scrollLeft, root.clientWidth - queries.clientWidth);
  }
}
