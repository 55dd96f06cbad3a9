// Reads a file of maps, as `tested-transformer heads --out` writes it. Nothing in it is
// trusted: all of it is checked, and what is wrong is said in one line.

import { headLabel } from "./load.js";

export const MOST_BYTES = 16e6; // of a file
const MOST_TOKENS = 256, MOST_HEADS = 8192, MOST_KINDS = 32, MOST_LETTERS = 1000;

export function refuse(why) {
  throw new Error(`not a file of maps that can be shown: ${why}`);
}

const isText = (value) => typeof value === "string" && value.length <= MOST_LETTERS;
const isList = (value, most) => Array.isArray(value) && value.length > 0 && value.length <= most;

export function readMaps(json) {
  let file;
  try {
    file = JSON.parse(json);
  } catch {
    refuse("it is not JSON");
  }
  if (file?.format !== "tested-transformer maps") refuse("tested-transformer heads --out did not write it");
  if (file.version !== 1) refuse("it is of a version that this page does not know");
  const { model, text, dtype, tokens, maps, scores, cache_bytes_per_token: bytes } = file;
  if (![model, text, dtype].every(isText)) refuse("its model, its text or its dtype has no name");
  if (!isList(tokens, MOST_TOKENS) || !tokens.every(isText)) refuse(`its tokens are not 1 to ${MOST_TOKENS} texts`);
  if (!isList(maps, MOST_HEADS) || !maps.every((heads) => isList(heads, MOST_HEADS)) || maps.flat().length > MOST_HEADS) refuse(`its maps are not layers of heads, ${MOST_HEADS} at most`);
  const weights = maps.map((heads, layer) => heads.map((head, at) => triangle(head, tokens.length) ?? refuse(`the map of head ${layer}.${at} is broken`)));
  const kinds = scores && typeof scores === "object" ? Object.entries(scores) : [["", null]];
  const fits = (layers) => Array.isArray(layers) && weights.every((heads, layer) => heads.every((_, head) => Number.isFinite(layers[layer]?.[head])));
  if (kinds.length > MOST_KINDS || !kinds.every(([kind, layers]) => isText(kind) && fits(layers))) refuse("its scores are not numbers for each head");
  if (!Number.isSafeInteger(bytes) || bytes < 0) refuse("it does not say how many bytes its cache has");
  return {
    model, text, dtype, tokens, scores, bytes,
    labels: weights.map((heads, layer) => heads.map((_, head) => headLabel(scores, layer, head))),
    row: (layer, head, t) => Float32Array.from(weights[layer][head].subarray((t * (t + 1)) / 2, ((t + 1) * (t + 2)) / 2), (byte) => byte / 255),
  };
}

// The bytes of a lower triangle, row by row; null if they are not that.
function triangle(base64, count) {
  try {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    return bytes.length === (count * (count + 1)) / 2 ? bytes : null;
  } catch {
    return null;
  }
}
