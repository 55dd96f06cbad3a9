// Rotary positions: each pair of features is an arrow, turned by the position at a speed
// of its own. Pairs halves, as rotate of the library does.

export const speeds = (pairs, base) => Array.from({ length: pairs }, (_, i) => base ** (-i / pairs));

export function turned(x, position, base) {
  const half = x.length / 2;
  const result = [...x];
  speeds(half, base).forEach((speed, i) => {
    const [cos, sin] = [Math.cos(position * speed), Math.sin(position * speed)];
    result[i] = x[i] * cos - x[i + half] * sin;
    result[i + half] = x[i + half] * cos + x[i] * sin;
  });
  return result;
}
