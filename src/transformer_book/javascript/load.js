// The models that the page offers: their files fetched, with progress, each once.

import { GPT, readSafetensors } from "./engine.js";

export const MODELS = {
  grammar: {
    title: "made-up stories", scored: true, head: [2, 0], // which has to do with the verb
    texts: { dogs: "The dogs that Nilo sees sleep", dog: "The dog that Nilo sees sleep" },
  },
  shakespeare: { title: "verse, letter by letter", scored: false, head: [0, 0], texts: { Romeo: "ROMEO:\nWhat light is " } },
};

const NAMES = { " ": "space", "\n": "line end" };
export const say = (character) => NAMES[character] ?? character;

const FOLDER = new URL("../../models/", import.meta.url);
const LABELED = 0.4; // a head is named after what it scores best at, from this score on
const loaded = new Map();

export async function load(name, progress = () => {}) {
  if (!loaded.has(name)) loaded.set(name, await fetchModel(name, progress));
  return loaded.get(name);
}

async function fetchModel(name, progress) {
  const [card, heads, file] = await Promise.all([
    get(name, "card.json").then((response) => response.json()),
    MODELS[name].scored ? get(name, "heads.json").then((response) => response.json()) : { scores: {} },
    get(name, "model.safetensors"),
  ]);
  const pieces = [];
  let bytes = 0;
  for (const reader = file.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
    bytes += value.length;
    progress(bytes / card.weights.bytes);
  }
  const tensors = readSafetensors(await new Blob(pieces).arrayBuffer());
  return { gpt: new GPT(card.config, tensors), alphabet: [...card.tokenizer.alphabet], labels: headLabels(card.config, heads.scores) };
}

async function get(name, path) {
  const response = await fetch(new URL(`${name}/${path}`, FOLDER));
  if (!response.ok) throw new Error(`${name}/${path} could not be loaded, status ${response.status}`);
  return response;
}

// For each layer and head what it scores best at, if it scores at anything.
function headLabels({ num_layers, num_heads }, scores) {
  const label = (layer, head) => {
    const ranked = Object.entries(scores).sort(([, a], [, b]) => b[layer][head] - a[layer][head]);
    const [what, score] = ranked.length ? [ranked[0][0], ranked[0][1][layer][head]] : ["", 0];
    return score >= LABELED ? `${what} ${score.toFixed(2)}` : "";
  };
  return Array.from({ length: num_layers }, (_, layer) => Array.from({ length: num_heads }, (_, head) => label(layer, head)));
}
