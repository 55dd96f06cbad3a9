// How likely each word is to be drawn, and why: sampling_probabilities of the library.

import { softmax } from "./softmax.js";

const ROUNDING = 1e-9; // a word exactly at a mark stays on its side

// Each setting is applied to what the one before has left. `softened` is what the
// temperature makes of the logits; `left` what the words that stay have of it together.
export function sampled(logits, { temperature = 1, topK = Infinity, topP = 1, minP = 0 }) {
  const ranked = [...logits.keys()].sort((a, b) => logits[b] - logits[a]);
  const softened = temperature
    ? softmax(logits.map((logit) => logit / temperature))
    : logits.map((_, id) => Number(id === ranked[0]));
  let shares = softened;
  const keep = (stays) => {
    const kept = shares.map((share, id) => (stays(id) ? share : 0));
    const sum = kept.reduce((a, b) => a + b);
    shares = kept.map((share) => share / sum);
  };
  keep((id) => ranked.indexOf(id) < topK);
  if (topP < 1) {
    const ahead = []; // of each word: what all that rank before it have
    ranked.reduce((sum, id) => (ahead[id] = sum) + shares[id], 0);
    keep((id) => ahead[id] < topP - ROUNDING);
  }
  const bar = minP * Math.max(...shares) - ROUNDING;
  keep((id) => shares[id] >= bar);
  return { softened, shares, left: softened.reduce((sum, share, id) => sum + (shares[id] && share), 0) };
}
