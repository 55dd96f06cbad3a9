// The maps of all heads, on one canvas. A canvas for each would be one more layer each
// that the browser has to put together, for every token. And the map of one head, large,
// with the letters of its rows and columns.

import { make } from "./elements.js";
import { SIGNS, rowOf } from "./views.js";

const LETTERS = 14; // pixels beside the large map
const LEGIBLE = 7.5; // pixels of a cell, so that each has room for its letter

export class Maps {
  // For each layer and head there is a frame, which the map fills; the canvas lies over
  // all of the box that they stand in.
  constructor(box, frames, large, size) {
    this.frames = frames;
    this.large = large;
    this.size = size; // as many positions fit
    this.places = []; // of the frames, on the canvas
    this.canvas = make("canvas", { "aria-hidden": "true" });
    box.append(this.canvas);
    this.sheet = make("canvas", { width: frames[0].length * size, height: frames.length * size });
    this.image = new ImageData(this.sheet.width, this.sheet.height);
    this.pixels = new Uint32Array(this.image.data.buffer); // opacity in the highest byte
    this.recolor();
    const resized = new ResizeObserver(() => this.place());
    for (const canvas of [this.canvas, large]) resized.observe(canvas);
  }

  // Canvases have to be told of the palette.
  recolor() {
    const style = getComputedStyle(this.canvas);
    const [red, green, blue] = style.color.match(/\d+/g);
    this.ink = (blue << 16) | (green << 8) | red;
    [this.warm, this.muted, this.wash] = ["warm", "muted", "wash"].map((name) => style.getPropertyValue(`--book-${name}`));
    this.kept = 0; // as many rows on the sheet are right
  }

  // Where the frames are, in pixels of the screen. To ask at each token would be slow.
  place() {
    const { canvas } = this;
    const { left, top, width, height } = canvas.getBoundingClientRect();
    this.ratio = Math.min(devicePixelRatio, 2);
    canvas.width = Math.round(width * this.ratio); // this clears it
    canvas.height = Math.round(height * this.ratio);
    this.large.width = this.large.height = Math.round(this.large.clientWidth * this.ratio);
    this.places = this.frames.map((heads) => heads.map((frame) => {
      const inside = frame.getBoundingClientRect();
      const [x, y] = [inside.left - left + frame.clientLeft, inside.top - top + frame.clientTop];
      return [x, y, frame.clientWidth].map((length) => Math.round(length * this.ratio));
    }));
    if (this.last) this.draw(...this.last);
  }

  // On the sheet a map has one pixel for each weight, as opaque as it is large. Earlier
  // rows stand there already.
  keep({ tokens, weights }) {
    const { image, pixels, size, ink } = this;
    const count = tokens.length;
    weights.forEach((heads, layer) => {
      heads.forEach((rows, head) => {
        for (let t = this.kept; t < count; t++) {
          const from = (layer * size + t) * image.width + head * size;
          for (let s = 0; s <= t; s++) pixels[from + s] = (Math.round(255 * rows[t * size + s]) << 24) | ink;
        }
      });
      const sheet = this.sheet.getContext("2d");
      if (count > this.kept) sheet.putImageData(image, 0, 0, 0, layer * size + this.kept, image.width, count - this.kept);
    });
    this.kept = count;
  }

  // Each map as large as its frame.
  draw(model, chosen, position) {
    this.last = [model, chosen, position];
    const { gpt } = model;
    this.keep(gpt);
    this.enlarge(model, chosen, position);
    const { size, sheet, canvas } = this;
    const count = gpt.tokens.length;
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (!count) return;
    this.places.forEach((heads, layer) => heads.forEach(([x, y, side], head) => {
      // With more cells than pixels, to pick some would drop others.
      context.imageSmoothingEnabled = count > side;
      context.drawImage(sheet, head * size, layer * size, count, count, x, y, side, side);
    }));
  }

  // Lines stand above and below the row of one position, and letters beside the rows and
  // above the columns: all where they can be read, or else those of that row and of what
  // it attends to most.
  enlarge({ gpt, alphabet }, [layer, head], position) {
    const { large, size, sheet, ratio } = this;
    const { tokens } = gpt;
    const from = LETTERS * ratio, side = large.width - from, cell = side / tokens.length;
    const context = large.getContext("2d");
    context.clearRect(0, 0, large.width, large.height);
    if (!tokens.length || side <= 0) return;
    context.fillStyle = this.wash;
    context.fillRect(from, from, side, side);
    context.imageSmoothingEnabled = cell < 1;
    context.drawImage(sheet, head * size, layer * size, tokens.length, tokens.length, from, from, side, side);
    context.fillStyle = this.warm;
    for (const edge of [position, position + 1]) context.fillRect(from, Math.round(from + cell * edge) - ratio, side, ratio);
    const all = cell >= LEGIBLE * ratio;
    const row = rowOf(gpt, layer, head, position);
    const strongest = row.indexOf(Math.max(...row));
    context.font = `${all ? Math.min(12 * ratio, 1.1 * cell) : 12 * ratio}px ${getComputedStyle(large).fontFamily}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    tokens.forEach((token, at) => {
      const letter = SIGNS[alphabet[token]] ?? alphabet[token], middle = from + cell * (at + 0.5);
      for (const [mark, x, y] of [[position, from / 2, middle], [strongest, middle, from / 2]]) {
        if (!all && at !== mark) continue;
        context.fillStyle = at === mark ? this.warm : this.muted;
        context.fillText(letter, x, y);
      }
    });
  }

  // Which row of the large map is at so many pixels from its top.
  rowAt(top) {
    const count = this.last?.[0].gpt.tokens.length ?? 0;
    return Math.min(Math.floor(((top - LETTERS) / (this.large.clientHeight - LETTERS)) * count), count - 1);
  }
}
