// Five words before and after a sampler: a reader sets temperature, top-k, top-p and min-p.

import { bar, choices, fill, labeled, live, select, slider, table } from "./controls.js";
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

live("samplers", () => {
  const unless = (off, digits) => (value) => (value === off ? "off" : value.toFixed(digits));
  const knobs = {
    temperature: slider("temperature", { min: 0, max: 3, step: 0.1, value: 1 }, (value) => value.toFixed(1)),
    topK: slider("top-k", { min: 1, max: OFF.topK, value: OFF.topK }, unless(OFF.topK, 0)),
    topP: slider("top-p", { min: 0.05, max: 1, step: 0.05, value: 1 }, unless(1, 2)),
    minP: slider("min-p", { min: 0, max: 1, step: 0.05, value: 0 }, unless(0, 2)),
  };
  const mood = select(Object.keys(MOODS));
  const bars = table("bars", ["word", "before", "after"]);

  function draw() {
    const before = MOODS[mood.value], settings = {};
    for (const name in knobs) settings[name] = knobs[name].read();
    const { shares, left } = sampled(before.map(Math.log), settings);
    fill(bars, WORDS.map((word, id) => [word, bar(before[id]), bar(shares[id], shares[id] ? undefined : "cut")]));
    const kept = WORDS.filter((_, id) => shares[id]);
    const { temperature } = settings;
    return !temperature ? `Temperature 0: the likeliest word, ${kept[0]}, gets all.`
      : kept.length === WORDS.length ? "All five words are left."
      : `Left: ${kept.join(", ")}. ${temperature === 1 ? "They" : "After the temperature, they"} had ${left.toFixed(3)} together; each is divided by that.`;
  }

  return [
    draw,
    choices("Samplers", PRESETS, (settings) => {
      for (const name in knobs) knobs[name].input.value = settings[name] ?? OFF[name];
    }, (settings) => Object.keys(knobs).every((name) => knobs[name].read() === (settings[name] ?? OFF[name]))),
    labeled("the model is", mood),
    bars,
    ...Object.values(knobs).map(({ row }) => row),
  ];
});
