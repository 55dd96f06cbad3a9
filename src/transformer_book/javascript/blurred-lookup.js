// The lookup of the first chapter: weights by nearness, and their average of the values.

import { softmax } from "./softmax.js";

export function blurred(query, keys, values, temperature) {
  const weights = softmax(keys.map((key) => (-0.5 * (query - key) ** 2) / temperature));
  return { weights, answer: weights.reduce((sum, weight, s) => sum + weight * values[s], 0) };
}
