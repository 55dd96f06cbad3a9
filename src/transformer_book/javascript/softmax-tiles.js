// Four keys, read tile by tile: a reader sets the size of a tile, and reads on.

import { choices, fill, live, slider, table } from "./controls.js";
import { inTiles } from "./tiled-softmax.js";

const VALUES = [10, 20, 30, 40];
const ROWS = {
  "query 0": [1, 3, 2, 4].map(Math.log),
  "query 1": [4, 2, 3, 1].map(Math.log),
  "query 0, scores + 1000": [1, 3, 2, 4].map((each) => 1000 + Math.log(each)),
};

live("tiles", () => {
  let scores = ROWS["query 0"];
  const size = slider("keys in a tile", { min: 1, max: 4, value: 2 });
  const read = slider("tiles read", { min: 0, max: 4, value: 1 });
  const tiles = table("tiles", ["keys", "scores", "m", "correct by", "ℓ", "o"]);

  function draw() {
    const keys = size.read(), steps = inTiles(scores, VALUES, keys);
    read.input.max = steps.length;
    const value = read.read();
    fill(tiles, VALUES.map((_, i) => {
      if (!steps[i]) return [""];
      const { tile, correction, largest, total, output } = steps[i];
      const two = (number) => number.toFixed(2);
      const told = [i === value - 1 ? tile.map(two).join(" ") : "gone", two(largest), i ? two(correction) : "", two(total), two(output)];
      return [tile.map((_, j) => i * keys + j).join(", "), ...told.map((cell) => `<td>${i < value ? cell : ""}`)];
    }));
    if (!value) return "Nothing is read yet: m is −∞, ℓ and o are 0.";
    const { tile, total, output } = steps[value - 1];
    const exps = scores.map(Math.exp), sum = (row) => row.reduce((a, b) => a + b);
    const whole = sum(exps.map((each, j) => each * VALUES[j])) / sum(exps);
    return `Held: ${tile.length} of 4 scores, and m, ℓ, o. o / ℓ = ${(output / total).toFixed(2)}`
      + (value < steps.length ? " of the keys so far." : `; with no maximum subtracted: ${whole.toFixed(2)}.`);
  }

  return [
    draw,
    choices("Scores", ROWS, (row) => (scores = row), (row) => row === scores),
    size.row, read.row, tiles,
  ];
});
