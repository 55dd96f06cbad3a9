// What is shown beside the maps: the text in shades, guesses at the next token, and a
// table that says the same in words.

import { make, put } from "./elements.js";
import { say } from "./load.js";

export const SIGNS = { " ": "␣", "\n": "⏎" };
const LISTED = 8; // guesses at the next token
const SHADES = 25; // of the text

// A row of weights: what the token at one position attends to, in one head.
export const rowOf = ({ weights, config }, layer, head, position) =>
  weights[layer][head].subarray(position * config.max_seq_len, position * config.max_seq_len + position + 1);

// The logits at one position.
export const logitsAt = ({ logits, config }, position) =>
  logits.subarray(position * config.vocab_size, (position + 1) * config.vocab_size);

const ranked = (row, count) => Array.from(row.keys()).sort((a, b) => row[b] - row[a]).slice(0, count);

// In words: the positions with the largest weights.
export function strongest({ gpt, alphabet }, layer, head, position, count) {
  if (position < 0) return [];
  const row = rowOf(gpt, layer, head, position);
  return ranked(row, count).map((s) => `${row[s].toFixed(2)} ${say(alphabet[gpt.tokens[s]])} at ${s}`);
}

// A span for each token. Those that stay are left alone: it is called for each new one.
export function fillStrip(strip, { gpt, alphabet }) {
  const spans = [...strip.children];
  gpt.tokens.forEach((token, at) => {
    const text = alphabet[token] === "\n" ? "⏎\n" : alphabet[token];
    const span = spans[at] ?? strip.appendChild(make("span", { "data-at": at }));
    put(span, text);
  });
  for (const span of spans.slice(gpt.tokens.length)) span.remove();
}

// In steps as small as can be seen: with smaller ones the browser would have to style
// nearly every character for every token.
export function shadeStrip(strip, row, position) {
  [...strip.children].forEach((span, s) => {
    const weight = Math.round(SHADES * (row[s] ?? 0)) / SHADES;
    if (span.shade !== weight) span.style.setProperty("--weight", (span.shade = weight));
    span.classList.toggle("chosen", s === position);
  });
}

// The likeliest next tokens, each with the probability that it has when drawn.
export function fillGuesses(list, { gpt, alphabet }, position, shares) {
  const came = gpt.tokens[position + 1];
  const ids = position < 0 ? [] : ranked(logitsAt(gpt, position), LISTED);
  while (list.children.length > ids.length) list.lastChild.remove();
  while (list.children.length < ids.length) list.append(make("li", {}, ...["sign", "bar", "share"].map((className) => make("span", { className }))));
  ids.forEach((id, rank) => {
    const item = list.children[rank];
    const [sign, , share] = item.children;
    const character = alphabet[id];
    item.className = id === came ? "came" : "";
    item.style.setProperty("--share", shares[id].toFixed(3));
    sign.title = say(character);
    put(sign, SIGNS[character] ?? character);
    put(share, shares[id] ? `${(100 * shares[id]).toFixed(1)} %` : "cut");
  });
}

export function fillTable(body, model, position) {
  const rows = model.labels.flatMap((heads, layer) =>
    heads.map((label, head) => {
      const cells = strongest(model, layer, head, position, 3).map((text) => make("td", { textContent: text }));
      const name = label ? `${layer}.${head}, ${label}` : `${layer}.${head}`;
      return make("tr", {}, make("th", { scope: "row", textContent: name }), ...cells);
    }),
  );
  body.replaceChildren(...rows);
}
