// The maps of all heads, on one canvas. A canvas for each would be one more layer each
// that the browser has to put together, for every token.

import { make } from "./elements.js";

export class Maps {
  // For each layer and head there is a frame, which the map fills; the canvas lies over
  // all of the box that they stand in.
  constructor(box, frames, size) {
    this.frames = frames;
    this.size = size; // as many positions fit
    this.places = []; // of the frames, on the canvas
    this.canvas = make("canvas", { "aria-hidden": "true" });
    box.append(this.canvas);
    this.sheet = make("canvas", { width: frames[0].length * size, height: frames.length * size });
    this.image = new ImageData(this.sheet.width, this.sheet.height);
    this.pixels = new Uint32Array(this.image.data.buffer); // opacity in the highest byte
    this.recolor();
    new ResizeObserver(() => this.place()).observe(this.canvas);
  }

  // Canvases have to be told of the palette.
  recolor() {
    const style = getComputedStyle(this.canvas);
    const [red, green, blue] = style.color.match(/\d+/g);
    this.ink = (blue << 16) | (green << 8) | red;
    this.warm = style.getPropertyValue("--book-warm");
    this.kept = 0; // as many rows on the sheet are right
  }

  // Where the frames are, in pixels of the screen. To ask at each token would be slow.
  place() {
    const { canvas } = this;
    const { left, top, width, height } = canvas.getBoundingClientRect();
    this.ratio = Math.min(devicePixelRatio, 2);
    canvas.width = Math.round(width * this.ratio); // this clears it
    canvas.height = Math.round(height * this.ratio);
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

  // Each map as large as its frame, and lines above and below the row of one position.
  draw(gpt, position) {
    this.last = [gpt, position];
    this.keep(gpt);
    const { size, sheet, canvas } = this;
    const count = gpt.tokens.length;
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (!count) return;
    context.fillStyle = this.warm;
    const line = Math.round(this.ratio);
    this.places.forEach((heads, layer) => heads.forEach(([x, y, side], head) => {
      // With more cells than pixels, to pick some would drop others.
      context.imageSmoothingEnabled = count > side;
      context.drawImage(sheet, head * size, layer * size, count, count, x, y, side, side);
      context.fillRect(x, Math.round(y + (side * position) / count) - line, side, line);
      context.fillRect(x, Math.round(y + (side * (position + 1)) / count), side, line);
    }));
  }
}
