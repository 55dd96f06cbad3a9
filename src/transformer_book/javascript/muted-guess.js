// How likely each next token is when some heads of the live model add nothing.

import { probabilities } from "./engine.js";

export function guessed(gpt, tokens, muted) {
  muted.forEach((heads, layer) => heads.forEach((off, head) => gpt.mute(layer, head, off)));
  gpt.read(tokens);
  const { vocab_size } = gpt.config;
  return probabilities(gpt.logits.slice((tokens.length - 1) * vocab_size, tokens.length * vocab_size), { temperature: 1, topK: vocab_size });
}
