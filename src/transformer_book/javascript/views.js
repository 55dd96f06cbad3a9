// What is said beside the maps: the text in shades, guesses at the next token, how a weight
// arises, and a table that says the maps in words.

import { make, put } from "./elements.js";
import { NUMBERS, say, sign } from "./load.js";

const LISTED = 6; // guesses at the next token

// A row of weights: what the token at one position attends to, in one head.
export const rowOf = ({ weights, config }, layer, head, position) =>
  weights[layer][head].subarray(position * config.max_seq_len, position * config.max_seq_len + position + 1);

// The logits at one position.
export const logitsAt = ({ logits, config }, position) =>
  logits.subarray(position * config.vocab_size, (position + 1) * config.vocab_size);

export const ranked = (row, count) => Array.from(row.keys()).sort((a, b) => row[b] - row[a]).slice(0, count);

// Words as dark as they are attended to, in the other color where a weight is below zero.
export function shade(spans, row) {
  [...spans].forEach((span, s) => {
    const weight = row[s] ?? 0;
    span.style.setProperty("--weight", Math.abs(weight).toFixed(2));
    span.classList.toggle("less", weight < 0);
  });
}

const percent = (share) => (share ? `${(100 * share).toFixed(1)} %` : "cut");
const barCell = (share) => {
  const cell = make("td", { className: "bar", textContent: percent(share) });
  cell.style.setProperty("--share", share.toFixed(3));
  return cell;
};
const row = (name, cells, className = "") => make("tr", { className }, make("th", { scope: "row", textContent: name }), ...cells);

// The likeliest next tokens, each with its probability after each text, and the sums over
// the verbs of each number, where the model knows such.
export function fillGuesses(body, { vocabulary }, shares, came) {
  const most = shares[0]?.map((share, id) => Math.max(share, shares[1]?.[id] ?? 0)) ?? [];
  const rows = ranked(most, LISTED).map((id) => row(sign(vocabulary[id]), shares.map((each) => barCell(each[id])), id === came ? "came" : ""));
  const sums = Object.entries(NUMBERS).map(([name, verbs]) => [name, verbs.map((verb) => vocabulary.indexOf(verb))]);
  for (const [name, ids] of sums) {
    if (most.length && !ids.includes(-1)) rows.push(row(name, shares.map((each) => barCell(ids.reduce((sum, id) => sum + each[id], 0))), "sum"));
  }
  body.replaceChildren(...rows);
}

// What a weight is made of: query, key and value, scores and weights of the whole row.
export function arithmetic(gpt, layer, head, t, s) {
  const { d_model, num_heads } = gpt.config, width = d_model / num_heads;
  const part = (rows, at) => rows[layer].slice(at * d_model + head * width, at * d_model + (head + 1) * width);
  const q = part(gpt.queries, t), k = part(gpt.keys, s), v = part(gpt.values, s);
  const products = (key) => q.map((number, i) => number * key[i]);
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
  const weights = rowOf(gpt, layer, head, t);
  const scores = Float32Array.from(weights, (_, at) => sum(products(part(gpt.keys, at))) / Math.sqrt(width));
  const exps = scores.map(Math.exp);
  return { q, k, v, products: products(k), dot: sum(products(k)), width, scores, exps, total: sum(exps), weights };
}

// The same for one of two texts, in tables and a sentence; and what value the same place
// has in the other, if that is as long.
export function explain(box, gpts, which, words, layer, head, t, s) {
  const [{ q, k, v, products, dot, width, scores, exps, total, weights }, there] = [gpts[which], gpts[1 - which]].map((gpt) =>
    gpt.tokens.length === words.length ? arithmetic(gpt, layer, head, t, s) : null);
  const two = (number) => number.toFixed(2).replace("-", "−");
  const big = (number) => (number < 1000 ? two(number) : number.toPrecision(3).replace("+", ""));
  const [from, to] = [words[t], words[s]], weight = weights[s];
  const table = (caption, names, rows) => make("table", { className: "sums" }, make("caption", { textContent: caption }),
    make("thead", {}, make("tr", {}, ...names.map((textContent) => make("th", { scope: "col", textContent })))), make("tbody", {}, ...rows));
  const cells = (numbers) => numbers.map((textContent) => make("td", { textContent }));
  const parts = [...q.keys()].map((i) => row(i, cells([q[i], k[i], products[i], v[i], weight * v[i], ...(there ? [there.v[i]] : [])].map(two))));
  const shares = [...weights.keys()].map((at) => row(words[at], cells([two(scores[at]), big(exps[at]), weights[at].toFixed(3)]), at === s ? "came" : ""));
  box.replaceChildren(
    make("p", { textContent: `The query of “${from}” times the key of “${to}”, number by number, adds up to q · k = ${two(dot)}. `
      + `Divided by √${width} = ${Math.sqrt(width)} that is the score, ${two(scores[s])}. Of all scores in this row the softmax makes weights: `
      + `exp(${two(scores[s])}) = ${big(exps[s])}, of ${big(total)} in all, is ${weight.toFixed(3)}. So ${weight.toFixed(3)} of the value of “${to}” goes into what the head writes at “${from}”.` }),
    make("div", { className: "numbers" },
      table(`The ${width} numbers of the head`, ["number", "q", "k", "q × k", "v", `${weight.toFixed(2)} v`, ...(there ? ["other v"] : [])], parts),
      table(`All keys that “${from}” may attend to`, ["key", "score", "exp", "weight"], shares)),
  );
}

// For each head the strongest cells of a row.
export function fillTable(body, labels, strongest) {
  const rows = labels.flatMap((heads, layer) =>
    heads.map((label, head) => row(`${layer}.${head}${label && `, ${label}`}`, strongest(layer, head).map((textContent) => make("td", { textContent })))));
  body.replaceChildren(...rows);
}
