// A bench of masks: a reader sets who may attend to whom, and sees the weights, and which
// outputs move when the last token changes. Every cell is a button.

import { choices, grid, live, make, put } from "./controls.js";
import { attend, MASKS, moved } from "./masked-attention.js";

const WORDS = ["The", "cat", "sat", "on", "mats"];
const SIZE = WORDS.length;
// Small numbers, so that no weight is near 0 or 1.
const TOKENS = {
  q: [[1, 0], [0, 1], [1, 1], [-1, 1], [0.5, -1]],
  k: [[0, 1], [1, 0], [-1, 1], [1, 1], [0.5, 0]],
  v: [[1, 0], [0, 1], [2, 1], [1, 2], [0, 3]],
};
const OTHER = { q: [-1, 0.5], k: [1, -1], v: [3, 1] }; // when the last token changes

live("mask-bench", () => {
  let mask = MASKS.causal(SIZE);
  const presets = choices("Masks", MASKS, (rule) => (mask = rule(SIZE)), (rule) => `${rule(SIZE)}` === `${mask}`);
  const ignore = make("input", { type: "checkbox" });
  const [bench, buttons] = grid(WORDS, WORDS, (t, s) => (mask[t][s] = !mask[t][s]), '<td class="note">');

  function draw() {
    const read = mask.map((row) => row.map((cell) => cell !== ignore.checked));
    const { weights } = attend(TOKENS, read);
    const leaks = moved(TOKENS, OTHER, read).map((distance, t) => t < SIZE - 1 && distance > 0);
    buttons.forEach((button, at) => {
      const t = Math.floor(at / SIZE), s = at % SIZE, weight = weights[t][s].toFixed(2);
      put(button, read[t][s] ? weight : "·");
      button.style.setProperty("--weight", weight);
      button.ariaPressed = read[t][s];
      button.ariaLabel = `${WORDS[t]} may attend to ${WORDS[s]}: weight ${weight}`;
    });
    bench.querySelectorAll(".note").forEach((note, t) => {
      put(note, !read[t].includes(true) ? "zeros" : leaks[t] ? "peeks" : "");
      note.classList.toggle("wrong", leaks[t]);
    });
    const leaking = WORDS.filter((_, t) => leaks[t]);
    return "Output shape: (5, 2). When “mats” changes, "
      + (leaking.length ? `the outputs of “${leaking.join("”, “")}” move too: they see the future.` : "no earlier output moves.");
  }

  return [
    draw,
    presets,
    bench,
    make("label", {}, ignore, "read True as ignore, as nn.MultiheadAttention does"),
  ];
});
