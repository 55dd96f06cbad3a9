// A first look at a head: the words of a sentence, and how much the head that finds the
// subject of a verb attends to each of them from the last one; and what may come next.

import { bar, choices, fill, live, make, put, table } from "./controls.js";
import { encode, probabilities } from "./engine.js";
import { bestHead, load, NUMBERS } from "./load.js";

const TEXTS = { dog: "The dog that Nilo sees", dogs: "The dogs that Nilo sees", "dog, past cats": "The dog that the cats see", "dogs, past a cat": "The dogs that the cat sees" };
const SHOWN = 4; // likely words

live("first-look", (redraw) => {
  let model, text = TEXTS.dogs, trouble = "The model is loading, 0.2 MB.";
  const words = make("div", { className: "words" });
  const bars = table("bars", ["next word", "probability"]);
  load("stories").then((loaded) => (model = loaded), ({ message }) => (trouble = message)).then(redraw);

  function draw() {
    const spoken = text.split(" ");
    if (!model) {
      // As high as with their weights, so that nothing moves when the model comes.
      words.replaceChildren(...spoken.map((textContent) => make("span", { textContent }, make("b", { textContent: "·" }))));
      fill(bars, Object.keys(NUMBERS).map((name) => [name]));
      return trouble;
    }
    const { gpt, tokenizer, vocabulary } = model;
    const { max_seq_len, vocab_size } = gpt.config;
    const [layer, head] = bestHead(model, "subject of the verb");
    gpt.read(encode(text, tokenizer).tokens);
    const last = spoken.length - 1;
    const weights = gpt.weights[layer][head].subarray(last * max_seq_len, last * max_seq_len + spoken.length);
    const shares = probabilities(gpt.logits.slice(last * vocab_size, (last + 1) * vocab_size), { temperature: 1, topK: vocab_size });
    words.replaceChildren(...spoken.map((textContent, s) => {
      const word = make("span", { textContent }, make("b", { textContent: weights[s].toFixed(2) }));
      word.style.setProperty("--weight", weights[s].toFixed(3));
      return word;
    }));
    fill(bars, Object.entries(NUMBERS).map(([name, verbs]) =>
      [name, bar(verbs.reduce((sum, verb) => sum + shares[vocabulary.indexOf(verb)], 0))]));
    const read = spoken[weights.indexOf(Math.max(...weights))];
    const likeliest = [...shares.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, SHOWN).map((id) => vocabulary[id]);
    return `At “${spoken[last]}”, head ${layer}.${head} reads mostly “${read}”. Likely to come next: ${likeliest.join(", ")}.`;
  }

  return [draw, choices("Sentences", TEXTS, (chosen) => (text = chosen), (each) => each === text), words, bars];
});
