// A query and a key as arrows of three speeds: a reader moves the two tokens.

import { live, picture, place, slider } from "./controls.js";
import { make, put } from "./elements.js";
import { speeds, turned } from "./rotary.js";

const [PAIRS, BASE] = [3, 1000];
const START = [1, 1, 1, 0, 0, 0]; // every arrow of both tokens points to the right
const RADIUS = 50;
const FACE = `<circle class="rule" r="${RADIUS}"/><path class="between"/>${["q", "k"].map((name) => `<path class="${name}"/><text class="${name}"/>`).join("")}`;

// Where an arrow gets to at a share of its length, and aside from it.
const point = ([x, y], share, aside = 0) =>
  [share * x - aside * y, -share * y - aside * x].map((each) => (RADIUS * each).toFixed(1));

live("rotary", (redraw) => {
  const position = (name, value, say) => slider(name, { min: 0, max: 20, value }, redraw, say);
  const sliders = [position("query at", 3), position("key at", 1), position("move both", 0, (value) => `by ${value}`)];
  const dials = speeds(PAIRS, BASE).map((speed) => {
    const face = picture("-70 -68 140 136", `Pair of speed ${speed.toFixed(2)}: an arrow q for the query, an arrow k for the key`, FACE);
    const says = make("p");
    return { face, says, speed, box: make("div", {}, face, says) };
  });

  function draw() {
    const [query, key, both] = sliders.map(({ value }) => value);
    const [q, k] = [query + both, key + both].map((at) => turned(START, at, BASE));
    const scores = dials.map(({ face, says, speed }, i) => {
      const [a, b] = [q, k].map((x) => [x[i], x[i + PAIRS]]);
      const score = a[0] * b[0] + a[1] * b[1];
      const apart = Math.atan2(a[1] * b[0] - a[0] * b[1], score);
      const part = (selector) => face.querySelector(selector);
      place(part(".between"), { d: `M${point(b, 0.4)}A20 20 0 0 ${Number(apart < 0)} ${point(a, 0.4)}` });
      for (const [name, tip] of [["q", a], ["k", b]]) {
        place(part(`path.${name}`), { d: `M0 0L${point(tip, 1)}M${point(tip, 0.84, 0.1)}L${point(tip, 1)}L${point(tip, 0.84, -0.1)}` });
        // Names of arrows that lie close together stand on either side of them.
        const aside = score < 0.8 ? 0 : (name === "q") === apart >= 0 ? 0.2 : -0.2;
        const [x, y] = point(tip, 1.2, aside);
        place(part(`text.${name}`), { x, y });
        put(part(`text.${name}`), name);
      }
      put(says, `speed ${speed.toFixed(2)}\n${Math.abs(apart).toFixed(2)} rad apart\nscore ${score.toFixed(2)}`);
      return score;
    });
    return `Query at ${query + both}, key at ${key + both}, difference ${query - key}. `
      + `Score of the three pairs: ${scores.map((score) => score.toFixed(2)).join(" + ")} = ${scores.reduce((a, b) => a + b).toFixed(2)}`;
  }

  return [draw, make("div", { className: "dials" }, ...dials.map(({ box }) => box)), ...sliders.map(({ row }) => row)];
});
