// Maps of weights, each a canvas with one pixel for a weight, which the stylesheet
// enlarges; and the large map, with the words of its rows and columns beside it. These
// stay where they are while the map scrolls, so that no text is too long for them.

import { make, put } from "./elements.js";

// The colors of the palette, as red, green and blue: canvases have to be told of them.
let inks;
export function recolor() {
  const style = getComputedStyle(document.body);
  inks = ["accent", "warm"].map((name) => {
    const hex = parseInt(style.getPropertyValue(`--book-${name}`).trim().slice(1), 16);
    return [hex >> 16, (hex >> 8) & 255, hex & 255];
  });
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
