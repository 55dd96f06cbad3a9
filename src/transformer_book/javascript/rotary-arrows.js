// A query and a key as arrows of three speeds: a reader moves the two tokens.

import { live, make, picture, put, slider } from "./controls.js";
import { speeds, turned } from "./rotary.js";

const [PAIRS, BASE] = [3, 1000];
const START = [1, 1, 1, 0, 0, 0]; // every arrow of both tokens points to the right
const RADIUS = 50;

// Where an arrow gets to at a share of its length, and aside from it.
const point = ([x, y], share, aside = 0) =>
  [share * x - aside * y, -share * y - aside * x].map((each) => (RADIUS * each).toFixed(1));

live("rotary", () => {
  const position = (name, value, say) => slider(name, { min: 0, max: 20, value }, say);
  const sliders = [position("query at", 3), position("key at", 1), position("move both", 0, (value) => `by ${value}`)];
  const dials = speeds(PAIRS, BASE).map((speed) => [
    picture("-70 -68 140 136", `Pair of speed ${speed.toFixed(2)}: an arrow q for the query, an arrow k for the key`),
    make("p"),
    speed,
  ]);

  function draw() {
    const [query, key, both] = sliders.map((each) => each.read());
    const [q, k] = [query + both, key + both].map((at) => turned(START, at, BASE));
    const scores = dials.map(([face, says, speed], i) => {
      const [a, b] = [q, k].map((x) => [x[i], x[i + PAIRS]]);
      const score = a[0] * b[0] + a[1] * b[1];
      const apart = Math.atan2(a[1] * b[0] - a[0] * b[1], score);
      const arrow = (name, tip, sign) => {
        // Names of arrows that lie close together stand on either side of them.
        const [x, y] = point(tip, 1.2, score < 0.8 ? 0 : apart < 0 ? -sign : sign);
        return `<path class="${name}" d="M0 0L${point(tip, 1)}M${point(tip, 0.84, 0.1)}L${point(tip, 1)}L${point(tip, 0.84, -0.1)}"/><text x="${x}" y="${y}">${name}</text>`;
      };
      face.innerHTML = `<circle class="rule" r="${RADIUS}"/><path class="between" d="M${point(b, 0.4)}A20 20 0 0 ${Number(apart < 0)} ${point(a, 0.4)}"/>`
        + arrow("q", a, 0.2) + arrow("k", b, -0.2);
      put(says, `speed ${speed.toFixed(2)}\n${Math.abs(apart).toFixed(2)} rad apart\nscore ${score.toFixed(2)}`);
      return score;
    });
    return `Query at ${query + both}, key at ${key + both}, difference ${query - key}. `
      + `Score of the three pairs: ${scores.map((score) => score.toFixed(2)).join(" + ")} = ${scores.reduce((a, b) => a + b).toFixed(2)}`;
  }

  return [draw, make("div", { className: "dials" }, ...dials.map(([face, says]) => make("div", {}, face, says))), ...sliders.map(({ row }) => row)];
});
