// A switch for each head of the small GPT: a reader mutes heads and sees the guess change.

import { cells, choices, fill, live, named, table } from "./controls.js";
import { labeled, make, put } from "./elements.js";
import { encode } from "./engine.js";
import { load } from "./load.js";
import { guessed } from "./muted-guess.js";

// The letter that has to follow, or one that must not.
const TEXTS = ["The wolf near the houses sleep", "The wolves near the house sleep", "The dog that Nilo sees sleep", "The dogs that Nilo sees sleep"];
const [LAYERS, HEADS] = [[0, 1, 2], [0, 1, 2, 3]];
const SHOWN = 4; // letters
const NAMES = { " ": "space", "\n": "line end" };
const without = (...names) => LAYERS.map((layer) => HEADS.map((head) => names.includes(`${layer}.${head}`)));

live("switches", (redraw) => {
  let model, muted = without(), trouble = "";
  const text = make("select", { onchange: redraw }, ...TEXTS.map((textContent) => make("option", { textContent })));
  const buttons = LAYERS.map((layer) => HEADS.map((head) => make("button", {
    type: "button",
    ariaLabel: `head ${layer}.${head}`,
    onclick() {
      muted[layer][head] = !muted[layer][head];
      redraw();
    },
  })));
  const rows = Array.from({ length: SHOWN }, () => [named(), ...cells(2, "bar")]);

  function draw() {
    buttons.forEach((heads, layer) => heads.forEach((button, head) => {
      button.ariaPressed = !muted[layer][head];
      put(button, muted[layer][head] ? "off" : "on");
    }));
    if (!model) {
      rows.flat().forEach((cell) => put(cell, "·"));
      return trouble || "The model is loading, 327 KB.";
    }
    const { tokens } = encode(`\n${text.value}`, model.alphabet);
    const [all, now] = [without(), muted].map((each) => guessed(model.gpt, tokens, each));
    const ranked = [...now.keys()].sort((a, b) => now[b] - now[a]);
    rows.forEach((row, rank) => {
      const id = ranked[rank], letter = model.alphabet[id];
      put(row[0], NAMES[letter] ?? letter);
      fill(row[1], all[id]);
      fill(row[2], now[id]);
    });
    const s = now[model.alphabet.indexOf("s")], one = !/s near|s that/.test(text.value);
    return `An s has ${s.toFixed(2)}. ${one ? "One animal sleeps" : "Several animals sleep"}: ${s > 0.5 === one ? "right" : "wrong"}.`;
  }

  new IntersectionObserver(async ([{ isIntersecting, target }], observer) => {
    if (!isIntersecting) return;
    observer.unobserve(target);
    try {
      model = await load("grammar", () => {});
    } catch (error) {
      trouble = error.message;
    }
    redraw();
  }, { rootMargin: "50%" }).observe(text);
  return [
    draw,
    labeled("text", text),
    choices("Heads", { "all on": [], "without 2.0": ["2.0"], "without 0.1": ["0.1"] }, (names) => {
      muted = without(...names);
      redraw();
    }),
    make("div", { className: "beside" },
      table("bench", ["", ...HEADS.map((head) => `head ${head}`)], LAYERS.map((layer) => [`layer ${layer}`, ...buttons[layer].map((button) => make("td", {}, button))])),
      table("bars", ["next", "all on", "as set"], rows)),
  ];
});
