// The softmax of one row in tiles: after each, what is kept of all scores read so far.
// Equal to in_tiles of the chapter on fast paths.

export function inTiles(scores, values, size) {
  let largest = -Infinity, total = 0, output = 0;
  const steps = [];
  for (let start = 0; start < scores.length; start += size) {
    const tile = scores.slice(start, start + size);
    const now = Math.max(largest, ...tile);
    const correction = Math.exp(largest - now);
    const parts = tile.map((score) => Math.exp(score - now));
    total = parts.reduce((sum, part) => sum + part, correction * total);
    output = parts.reduce((sum, part, j) => sum + part * values[start + j], correction * output);
    steps.push({ tile, correction, largest: (largest = now), total, output });
  }
  return steps;
}
