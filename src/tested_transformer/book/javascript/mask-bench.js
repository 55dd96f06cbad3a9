// A bench of masks: a reader sets who may attend to whom, and sees the weights, and which
// outputs move when the last token changes. Every cell is a button.

import { attend, MASKS, moved } from "./masked-attention.js";
import { make, put } from "./views.js";

const WORDS = ["The", "cat", "sat", "on", "mats"];
// Small numbers, so that no weight is near 0 or 1.
const TOKENS = {
  q: [[1, 0], [0, 1], [1, 1], [-1, 1], [0.5, -1]],
  k: [[0, 1], [1, 0], [-1, 1], [1, 1], [0.5, 0]],
  v: [[1, 0], [0, 1], [2, 1], [1, 2], [0, 3]],
};
const OTHER = { q: [-1, 0.5], k: [1, -1], v: [3, 1] }; // when the last token changes
const NOTHING = 1e-12;

class MaskBench {
  constructor(root) {
    this.mask = MASKS.causal(WORDS.length);
    this.ignore = make("input", { type: "checkbox", onchange: () => this.draw() });
    const presets = Object.entries(MASKS).map(([name, rule]) =>
      make("button", { type: "button", className: "md-button", textContent: name, onclick: () => this.set(rule(WORDS.length)) }));
    this.cells = WORDS.map((query, t) => WORDS.map((key, s) =>
      make("button", { type: "button", onclick: () => this.flip(t, s) })));
    this.notes = WORDS.map(() => make("td", { className: "note" }));
    const head = make("tr", {}, make("td"), ...WORDS.map((word) => make("th", { scope: "col", textContent: word })), make("td"));
    const rows = WORDS.map((word, t) => make("tr", {}, make("th", { scope: "row", textContent: word }),
      ...this.cells[t].map((cell) => make("td", {}, cell)), this.notes[t]));
    this.verdict = make("p", { className: "verdict", role: "status" });
    root.replaceChildren(
      make("div", { className: "presets", role: "group", "aria-label": "Masks to begin with" }, ...presets),
      make("table", { className: "bench" }, make("thead", {}, head), make("tbody", {}, ...rows)),
      this.verdict,
      make("label", {}, this.ignore, make("span", { textContent: "read True as ignore, as nn.MultiheadAttention does" })));
    this.draw();
  }

  set(mask) {
    this.mask = mask;
    this.draw();
  }

  flip(t, s) {
    this.mask[t][s] = !this.mask[t][s];
    this.draw();
  }

  draw() {
    const mask = this.mask.map((row) => row.map((cell) => cell !== this.ignore.checked));
    const { weights } = attend(TOKENS.q, TOKENS.k, TOKENS.v, mask);
    const moves = moved(TOKENS, OTHER, mask).map((distance) => distance > NOTHING);
    const last = WORDS.length - 1;
    WORDS.forEach((query, t) => {
      WORDS.forEach((key, s) => {
        const cell = this.cells[t][s];
        put(cell, mask[t][s] ? weights[t][s].toFixed(2) : "·");
        cell.style.setProperty("--weight", weights[t][s]);
        cell.setAttribute("aria-pressed", String(mask[t][s]));
        cell.setAttribute("aria-label", `${query} may attend to ${key}: ${mask[t][s] ? `yes, weight ${weights[t][s].toFixed(2)}` : "no"}`);
      });
      const empty = !mask[t].some(Boolean);
      put(this.notes[t], empty ? "nothing: zeros" : t < last && moves[t] ? "sees the future" : "");
      this.notes[t].classList.toggle("wrong", t < last && moves[t]);
    });
    const leaking = WORDS.filter((_, t) => t < last && moves[t]);
    put(this.verdict, `Output shape: (5, 2), whatever you set. When “${WORDS[last]}” becomes another word, `
      + (leaking.length ? `the outputs of ${leaking.join(", ")} move too: they see the future.` : "no earlier output moves."));
  }
}

for (const root of document.querySelectorAll('[data-live="mask-bench"]')) new MaskBench(root);
