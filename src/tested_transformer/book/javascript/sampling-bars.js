// Five words before and after a sampler: a reader sets temperature, top-k, top-p and min-p.

import { cells, choices, fill, live, slider, table } from "./controls.js";
import { labeled, make } from "./elements.js";
import { sampled } from "./samplers.js";

const WORDS = ["mat", "sofa", "roof", "moon", "trumpet"];
const MOODS = {
  "as above": [0.5, 0.25, 0.15, 0.07, 0.03],
  "sure": [0.94, 0.03, 0.01, 0.01, 0.01],
  "at a loss": [0.22, 0.21, 0.2, 0.19, 0.18],
};
const OFF = { temperature: 1, topK: WORDS.length, topP: 1, minP: 0 };
const PRESETS = {
  "all off": {},
  "greedy": { temperature: 0 },
  "temperature 2": { temperature: 2 },
  "top-k 3": { topK: 3 },
  "top-p 0.7": { topP: 0.7 },
  "min-p 0.1": { minP: 0.1 },
};

live("samplers", (redraw) => {
  const unless = (off, digits) => (value) => (value === off ? "off" : value.toFixed(digits));
  const knob = (name, value, min, max, step, say) => slider(name, { min, max, step, value }, redraw, say);
  const knobs = {
    temperature: knob("temperature", 1, 0, 3, 0.1, (value) => value.toFixed(1)),
    topK: knob("top-k", WORDS.length, 1, WORDS.length, 1, unless(WORDS.length, 0)),
    topP: knob("top-p", 1, 0.05, 1, 0.05, unless(1, 2)),
    minP: knob("min-p", 0, 0, 1, 0.05, unless(0, 2)),
  };
  const mood = make("select", { onchange: redraw }, ...Object.keys(MOODS).map((textContent) => make("option", { textContent })));
  const shown = WORDS.map(() => cells(2, "bar"));

  function draw() {
    const before = MOODS[mood.value];
    const settings = Object.fromEntries(Object.entries(knobs).map(([name, { value }]) => [name, value]));
    const { shares, left } = sampled(before.map(Math.log), settings);
    shares.forEach((share, id) => {
      fill(shown[id][0], before[id]);
      fill(shown[id][1], share, share ? share.toFixed(3) : "cut");
    });
    const kept = WORDS.filter((_, id) => shares[id]);
    const { temperature } = settings;
    return !temperature ? `Temperature 0: the likeliest word, ${kept[0]}, gets all.`
      : kept.length === WORDS.length ? "All five words are left."
      : `Left: ${kept.join(", ")}. ${temperature === 1 ? "They" : "After the temperature, they"} had ${left.toFixed(3)} together; each is divided by that.`;
  }

  return [
    draw,
    choices("Samplers", PRESETS, (settings) => {
      for (const [name, value] of Object.entries({ ...OFF, ...settings })) knobs[name].set(value);
      redraw();
    }),
    labeled("the model is", mood),
    table("bars", ["word", "before", "after"], WORDS.map((word, id) => [word, ...shown[id]])),
    ...Object.values(knobs).map(({ row }) => row),
  ];
});
