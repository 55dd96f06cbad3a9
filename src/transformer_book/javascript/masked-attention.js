// Attention under a mask, for the bench on which a reader sets one. Equal to
// attention_with_weights of the library: a query without any key gets zeros.

import { softmax } from "./softmax.js";

export function attend({ q, k, v }, mask) {
  const scale = 1 / Math.sqrt(q[0].length);
  const weights = q.map((query, t) =>
    softmax(k.map((key, s) => (mask[t][s] ? scale * dot(query, key) : -Infinity))));
  const output = weights.map((row) => v[0].map((_, i) => dot(row, v.map((value) => value[i]))));
  return { weights, output };
}

const dot = (a, b) => a.reduce((sum, each, i) => sum + each * b[i], 0);

// Which rows of the output change when the last token becomes another one.
export function moved(tokens, other, mask) {
  const last = tokens.q.length - 1;
  const after = Object.fromEntries(Object.entries(tokens).map(([name, rows]) => [name, rows.with(last, other[name])]));
  const [before, now] = [tokens, after].map((each) => attend(each, mask).output);
  return now.map((row, t) => Math.max(...row.map((each, i) => Math.abs(each - before[t][i]))));
}

const masks = (rule) => (size) =>
  Array.from({ length: size }, (_, t) => Array.from({ length: size }, (_, s) => rule(t, s, size)));

// Masks by name, each for a number of tokens: true = may attend.
export const MASKS = {
  causal: masks((t, s) => s <= t),
  inverted: masks((t, s) => s > t),
  "no mask": masks(() => true),
  "window of 2": masks((t, s) => s <= t && s > t - 2),
  "padding: last two": masks((t, s, size) => s < size - 2),
  "without itself": masks((t, s) => s < t),
};
