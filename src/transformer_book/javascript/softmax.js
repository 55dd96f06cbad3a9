// Softmax of one row of scores; a row of nothing but -Infinity gets zeros.
export function softmax(scores) {
  const largest = Math.max(...scores);
  if (largest === -Infinity) return scores.map(() => 0);
  const exps = scores.map((score) => Math.exp(score - largest));
  const sum = exps.reduce((a, b) => a + b);
  return exps.map((each) => each / sum);
}
