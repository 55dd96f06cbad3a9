// The engine in a terminal: node read.js FOLDER < requests.json > answers.json
//
// FOLDER holds card.json and model.safetensors. Each request of the list is an object:
//   text         what to read; requests are read one after another, with one cache
//   temperature  1 if not given
//   topK         all tokens if not given
//   randoms      numbers from 0 to 1, each of which draws one more token
//   muted        heads that add nothing, [layer, head] each; none if not given
// and each answer tells of the text and the tokens drawn:
//   tokens       their ids
//   shares       how likely each next token was, at these settings, at each draw and after
//   logits       at each position of the context
//   weights      of each layer, head, query and key of the context

import { readFile } from "node:fs/promises";
import { json } from "node:stream/consumers";

import { GPT, draw, encode, probabilities, readSafetensors, windowStart } from "./engine.js";

const folder = process.argv[2];
const { config, tokenizer } = JSON.parse(await readFile(`${folder}/card.json`, "utf8"));
const file = await readFile(`${folder}/model.safetensors`);
const buffer = file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength);
const gpt = new GPT(config, readSafetensors(buffer));
const { max_seq_len, vocab_size } = config;

function answer({ text, temperature = 1, topK = vocab_size, randoms = [], muted = [] }) {
  const { tokens, unknown } = encode(text, tokenizer.alphabet);
  if (unknown.length) throw new Error(`not in the alphabet: ${unknown.join(" ")}`);
  const shares = [];
  for (const [layer, head] of muted) gpt.mute(layer, head, true);
  for (const random of [...randoms, null]) {
    gpt.read(tokens.slice(windowStart(tokens.length, max_seq_len)));
    const last = gpt.tokens.length - 1;
    if (last < 0) break;
    const logits = gpt.logits.subarray(last * vocab_size, (last + 1) * vocab_size);
    shares.push(probabilities(logits, { temperature, topK }));
    if (random !== null) tokens.push(draw(shares.at(-1), random));
  }
  const square = (size, from, width) => Array.from({ length: size }, (_, row) => [...from.subarray(row * width, row * width + size)]);
  const positions = gpt.tokens.length;
  const result = {
    tokens,
    shares: shares.map((each) => [...each]),
    logits: Array.from({ length: positions }, (_, t) => [...gpt.logits.subarray(t * vocab_size, (t + 1) * vocab_size)]),
    weights: gpt.weights.map((heads) => heads.map((head) => square(positions, head, max_seq_len))),
  };
  for (const [layer, head] of muted) gpt.mute(layer, head, false);
  return result;
}

process.stdout.write(JSON.stringify((await json(process.stdin)).map(answer)));
