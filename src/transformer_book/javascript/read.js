// The engine in a terminal: node read.js FOLDER < requests.json > answers.json
//
// FOLDER holds card.json and model.safetensors. Each request of the list is an object:
//   text         what to read; requests are read one after another, with one cache
//   temperature  1 if not given
//   topK         all tokens if not given
//   randoms      numbers from 0 to 1, each of which draws one more token
//   muted        heads that write zeros, [layer, head] each; none if not given
//   instead      heads that write other numbers, [layer, head, a row for each position]
// and each answer tells of the text and the tokens drawn:
//   tokens       their ids
//   shares       how likely each next token was, at these settings, at each draw and after
//   logits       at each position of the context
//   weights      of each layer, head, query and key of the context
//   outputs      what the heads of each layer average, a row for each position

import { readFile } from "node:fs/promises";
import { json } from "node:stream/consumers";

import { GPT, draw, encode, probabilities, readSafetensors, windowStart } from "./engine.js";

const folder = process.argv[2];
const { config, tokenizer } = JSON.parse(await readFile(`${folder}/card.json`, "utf8"));
const file = await readFile(`${folder}/model.safetensors`);
const buffer = file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength);
const gpt = new GPT(config, readSafetensors(buffer));
const { d_model, max_seq_len, vocab_size } = config;

function answer({ text, temperature = 1, topK = vocab_size, randoms = [], muted = [], instead = [] }) {
  const { tokens, unknown } = encode(text, tokenizer);
  if (unknown.length) throw new Error(`unknown: ${unknown.join(" ")}`);
  const shares = [];
  for (const [layer, head] of muted) gpt.mute(layer, head, true);
  for (const [layer, head, rows] of instead) gpt.replace(layer, head, (t) => rows[t]);
  for (const random of [...randoms, null]) {
    gpt.read(tokens.slice(windowStart(tokens.length, max_seq_len)));
    const last = gpt.tokens.length - 1;
    if (last < 0) break;
    const logits = gpt.logits.subarray(last * vocab_size, (last + 1) * vocab_size);
    shares.push(probabilities(logits, { temperature, topK }));
    if (random !== null) tokens.push(draw(shares.at(-1), random));
  }
  const positions = gpt.tokens.length;
  const rows = (from, width, count = width) => Array.from({ length: positions }, (_, t) => [...from.subarray(t * width, t * width + count)]);
  const result = {
    tokens,
    shares: shares.map((each) => [...each]),
    logits: rows(gpt.logits, vocab_size),
    weights: gpt.weights.map((heads) => heads.map((head) => rows(head, max_seq_len, positions))),
    outputs: gpt.outputs.map((layer) => rows(layer, d_model)),
  };
  for (const [layer, head] of [...muted, ...instead]) gpt.replace(layer, head, null);
  return result;
}

process.stdout.write(JSON.stringify((await json(process.stdin)).map(answer)));
