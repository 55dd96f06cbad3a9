// The models that the page offers: their files fetched, with progress, each once.

import { GPT, readSafetensors, vocabularyOf } from "./engine.js";

// Pairs of texts to try.
const TEXTS = {
  "dogs, dog": ["The dogs that Nilo sees", "The dog that Nilo sees"],
  "past a cat": ["The dogs that the cat sees", "The dog that the cat sees"],
  "a story": ["wolves", "wolf"].map((noun) => `Rika is a small wolf. Nilo is a big cat. When Rika sleeps, it dreams. The ${noun} near the river`),
};
const stories = (title) => ({ title, texts: TEXTS, looked: true });
export const MODELS = {
  stories: stories("our GPT, word by word"),
  ...Object.fromEntries([2, 3, 4, 5].map((seed) => [`stories-${seed}`, stories(`the same from seed ${seed}`)])),
  shakespeare: { title: "verse, letter by letter", texts: { Romeo: ["ROMEO:\nWhat light is ", ""] } },
};

const NAMES = { " ": "space", "\n": "line end" };
export const say = (token) => NAMES[token] ?? token;
const SIGNS = { " ": "␣", "\n": "⏎" };
export const sign = (token) => SIGNS[token] ?? token;

// Verbs of the stories, by the number of their subject.
const VERBS = ["chase", "dance", "dream", "eat", "fear", "follow", "hear", "know", "love", "run", "say", "see", "sing", "sleep", "think", "wait"];
export const NUMBERS = { "plural verbs": ["are", ...VERBS], "singular verbs": ["is", ...VERBS.map((verb) => `${verb}s`)] };

const FOLDER = new URL("../../models/", import.meta.url);
const LABELED = 0.3; // a head is named after what it scores best at, from this score on
const loaded = new Map();

export async function load(name, progress = () => {}) {
  if (!loaded.has(name)) loaded.set(name, await fetchModel(name, progress));
  return loaded.get(name);
}

async function fetchModel(name, progress) {
  const looked = MODELS[name]?.looked;
  const [card, heads, means, file] = await Promise.all([
    get(name, "card.json").then((response) => response.json()),
    looked ? get(name, "heads.json").then((response) => response.json()) : { scores: {} },
    looked && get(name, "means.safetensors").then((response) => response.arrayBuffer()),
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
  const { config, tokenizer } = card, { scores } = heads;
  const tensors = readSafetensors(await new Blob(pieces).arrayBuffer());
  return {
    config, tensors, tokenizer, scores,
    gpt: new GPT(config, tensors),
    vocabulary: vocabularyOf(tokenizer),
    labels: headLabels(config, scores),
    means: means && readSafetensors(means).means,
  };
}

export async function get(name, path) {
  const response = await fetch(new URL(`${name}/${path}`, FOLDER));
  if (!response.ok) throw new Error(`${name}/${path} could not be loaded, status ${response.status}`);
  return response;
}

function headLabels({ num_layers, num_heads }, scores) {
  return Array.from({ length: num_layers }, (_, layer) => Array.from({ length: num_heads }, (_, head) => headLabel(scores, layer, head)));
}

// What a head scores best at, if it scores at anything.
export function headLabel(scores, layer, head) {
  const ranked = Object.entries(scores).sort(([, a], [, b]) => b[layer][head] - a[layer][head]);
  const [what, score] = ranked.length ? [ranked[0][0], ranked[0][1][layer][head]] : ["", 0];
  return score >= LABELED ? `${what} ${score.toFixed(2)}` : "";
}

// The layer and head that is best at something.
export function bestHead({ scores }, what) {
  const each = (scores[what] ?? [[0]]).flatMap((row, layer) => row.map((score, head) => ({ score, at: [layer, head] })));
  return each.reduce((best, one) => (one.score > best.score ? one : best)).at;
}
