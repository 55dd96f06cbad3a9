// A switch for each head of the small GPT: a reader mutes heads and sees the guess change.

import { bar, choices, fill, grid, labeled, live, make, put, select, table } from "./controls.js";
import { encode } from "./engine.js";
import { load, say } from "./load.js";
import { guessed } from "./muted-guess.js";

// The letter that has to follow, or one that must not.
const TEXTS = ["The wolf near the houses sleep", "The wolves near the house sleep", "The dog that Nilo sees sleep", "The dogs that Nilo sees sleep"];
const [LAYERS, HEADS] = [[0, 1, 2], [0, 1, 2, 3]];
const SHOWN = 4; // letters
const without = (...names) => LAYERS.map((layer) => HEADS.map((head) => names.includes(`${layer}.${head}`)));

live("switches", (redraw) => {
  let model, muted = without(), trouble = "The model is loading, 327 KB.";
  const text = select(TEXTS);
  const [bench, buttons] = grid(HEADS.map((head) => `head ${head}`), LAYERS.map((layer) => `layer ${layer}`),
    (layer, head) => (muted[layer][head] = !muted[layer][head]));
  const bars = table("bars", ["next", "all on", "as set"]);
  load("grammar").then((loaded) => (model = loaded), ({ message }) => (trouble = message)).then(redraw);

  function draw() {
    const off = muted.flat();
    buttons.forEach((button, at) => {
      button.ariaLabel = `head ${Math.floor(at / HEADS.length)}.${at % HEADS.length}`;
      button.ariaPressed = !off[at];
      put(button, off[at] ? "off" : "on");
    });
    if (!model) {
      fill(bars, Array(SHOWN).fill(["·"]));
      return trouble;
    }
    const { tokens } = encode(`\n${text.value}`, model.tokenizer);
    const [all, now] = [without(), muted].map((each) => guessed(model.gpt, tokens, each));
    const ranked = [...now.keys()].sort((a, b) => now[b] - now[a]).slice(0, SHOWN);
    fill(bars, ranked.map((id) => [say(model.vocabulary[id]), bar(all[id]), bar(now[id])]));
    const s = now[model.vocabulary.indexOf("s")], one = !/s near|s that/.test(text.value);
    return `An s has ${s.toFixed(2)}. ${one ? "One animal sleeps" : "Several animals sleep"}: ${s > 0.5 === one ? "right" : "wrong"}.`;
  }

  return [
    draw,
    labeled("text", text),
    choices("Heads", { "all on": [], "without 2.0": ["2.0"], "without 0.1": ["0.1"] }, (names) => (muted = without(...names)),
      (names) => `${without(...names)}` === `${muted}`),
    make("div", { className: "beside" }, bench, bars),
  ];
});
