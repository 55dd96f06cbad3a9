// A bench of masks: a reader sets who may attend to whom, and sees the weights, and which
// outputs move when the last token changes. Every cell is a button.

import { choices, live, table } from "./controls.js";
import { make, put } from "./elements.js";
import { attend, MASKS, moved } from "./masked-attention.js";

const WORDS = ["The", "cat", "sat", "on", "mats"];
// Small numbers, so that no weight is near 0 or 1.
const TOKENS = {
  q: [[1, 0], [0, 1], [1, 1], [-1, 1], [0.5, -1]],
  k: [[0, 1], [1, 0], [-1, 1], [1, 1], [0.5, 0]],
  v: [[1, 0], [0, 1], [2, 1], [1, 2], [0, 3]],
};
const OTHER = { q: [-1, 0.5], k: [1, -1], v: [3, 1] }; // when the last token changes
const NOTHING = 1e-12;

live("mask-bench", (redraw) => {
  let mask = MASKS.causal(WORDS.length);
  const ignore = make("input", { type: "checkbox", onchange: redraw });
  const buttons = WORDS.map((_, t) => WORDS.map((_, s) => make("button", {
    type: "button",
    onclick() {
      mask[t][s] = !mask[t][s];
      redraw();
    },
  })));
  const notes = WORDS.map(() => make("td", { className: "note" }));

  function draw() {
    const read = mask.map((row) => row.map((cell) => cell !== ignore.checked));
    const { weights } = attend(TOKENS.q, TOKENS.k, TOKENS.v, read);
    const leaks = moved(TOKENS, OTHER, read).slice(0, -1).map((distance) => distance > NOTHING);
    WORDS.forEach((query, t) => {
      WORDS.forEach((key, s) => {
        const button = buttons[t][s], may = read[t][s], weight = weights[t][s].toFixed(2);
        put(button, may ? weight : "·");
        button.style.setProperty("--weight", weights[t][s]);
        button.ariaPressed = may;
        button.ariaLabel = `${query} may attend to ${key}: ${may ? `yes, weight ${weight}` : "no"}`;
      });
      put(notes[t], !read[t].includes(true) ? "nothing: zeros" : leaks[t] ? "sees the future" : "");
      notes[t].classList.toggle("wrong", leaks[t] ?? false);
    });
    const leaking = WORDS.filter((_, t) => leaks[t]);
    return `Output shape: (5, 2), whatever you set. When “${WORDS.at(-1)}” becomes another word, `
      + (leaking.length ? `the outputs of ${leaking.join(", ")} move too: they see the future.` : "no earlier output moves.");
  }

  return [
    draw,
    choices("Masks to begin with", MASKS, (rule) => {
      mask = rule(WORDS.length);
      redraw();
    }),
    table("bench", ["", ...WORDS, ""], WORDS.map((word, t) => [word, ...buttons[t].map((button) => make("td", {}, button)), notes[t]])),
    make("label", {}, ignore, make("span", { textContent: "read True as ignore, as nn.MultiheadAttention does" })),
  ];
});
