// The page around the engine: what the reader types goes in, and what every head attends
// to is drawn. A second text can be set beside the first, and heads of the first can be
// made to write something else. All of it can be reached by the keyboard, and whatever is
// drawn is said in words as well.

import { labeled, make, put } from "./elements.js";
import { GPT, draw, encode, joined, probabilities, windowStart } from "./engine.js";
import { MODELS, bestHead, load, say, sign } from "./load.js";
import { ChosenHead, fillWords, onPalette, paint, smallMap } from "./maps.js";
import { explain, fillGuesses, fillTable, logitsAt, ranked, rowOf, shade } from "./views.js";

const MOST_NEW = 200; // tokens that one press of the button writes at most
const PACE = 40; // milliseconds for each
const SHOWN = ["first text", "second text", "difference"];
const WRITES = { own: "what it computes", zeros: "zeros", mean: "its mean at each position", other: "what it computes in the second text" };
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

class Watch {
  constructor(root) {
    this.root = root;
    this.model = null; // once it is loaded
    this.gpts = []; // for each text one; the second is never changed
    this.starts = [0, 0]; // of what they read, in the texts
    this.shown = 0; // which of SHOWN
    this.head = [0, 0]; // layer and head that are looked at
    this.query = this.key = 0; // and the cell
    this.run = null; // what is being generated
    this.own = false; // whether the texts are the reader's
    this.build();
    this.choose(Object.keys(MODELS)[0]);
  }

  build() {
    const button = (textContent, onclick) => make("button", { type: "button", className: "md-button", textContent, onclick });
    const field = (name, which) => make("textarea", { rows: 1, "aria-label": name, spellcheck: false, autocapitalize: "off", autocomplete: "off", oninput: () => this.typed(which), onselect: () => this.marked() });
    this.models = make("select", { "aria-label": "Model", onchange: () => this.choose(this.models.value) },
      ...Object.entries(MODELS).map(([name, { title }]) => new Option(`${name}: ${title}`, name)));
    this.presets = make("span", { className: "texts", role: "group", "aria-label": "Texts to try" });
    this.progress = make("progress", { max: 1, "aria-label": "Weights loaded" });
    this.texts = ["First text", "Second text"].map(field);
    this.strips = this.texts.map(() => make("div", { className: "strip", "aria-hidden": "true" }));
    this.count = make("p", { className: "count" });
    this.status = make("p", { className: "status", role: "status" });
    this.go = button("Generate", () => (this.run ? this.stop() : this.generate(MOST_NEW)));
    this.one = button("One token", () => this.generate(1));
    this.temperature = make("input", { type: "range", min: 0, max: 2, step: 0.1, value: 1, oninput: () => this.look() });
    this.warmth = make("output");
    this.topK = make("input", { type: "number", min: 1, oninput: () => this.look() });
    this.modes = SHOWN.map((name, which) => make("input", { type: "radio", name: "watched-text", checked: !which, onchange: () => this.show(which) }));
    this.heads = make("fieldset", { className: "maps", "aria-label": "Heads as layer.head" });
    this.chosen = new ChosenHead((query, key) => this.look(query, key), (query, key) => this.pick(query, key));
    this.writes = make("select", { onchange: () => this.replace(this.writes.value) }, ...Object.entries(WRITES).map(([kind, text]) => new Option(text, kind)));
    this.writer = make("span");
    this.caption = make("p", { className: "caption" });
    this.guesses = make("tbody");
    this.afters = SHOWN.slice(0, 2).map((textContent) => make("th", { scope: "col", textContent }));
    this.sum = make("div");
    this.why = make("details", { className: "why", ontoggle: () => this.look() }, make("summary", { textContent: "How this weight arises" }), this.sum);
    this.table = make("tbody");
    this.fold = make("details", { ontoggle: () => this.look() }, make("summary", { textContent: "Every head here, as a table" }),
      make("table", {}, make("thead", {}, make("tr", {}, ...["head", "first", "second", "third"].map((textContent) => make("th", { scope: "col", textContent })))), this.table));
    this.root.replaceChildren(
      make("div", { className: "controls" }, labeled("Model", this.models), this.presets),
      this.progress,
      make("div", { className: "pair" }, ...this.texts.map((text, which) => make("div", {}, text, this.strips[which]))),
      make("div", { className: "told" }, this.count, this.status),
      make("div", { className: "controls" }, this.go, this.one, button("Clear", () => this.write("", "")),
        labeled("Temperature", this.temperature, this.warmth), labeled("Top-k", this.topK)),
      make("div", { className: "controls", role: "radiogroup", "aria-label": "Maps of" }, make("span", { textContent: "Maps of the heads, for the" }),
        ...this.modes.map((mode, which) => make("label", {}, mode, SHOWN[which])), button("All heads as they are", () => this.restore())),
      this.heads,
      make("div", { className: "views" },
        this.chosen.root,
        make("div", { className: "next" }, this.caption,
          make("table", { className: "guesses" }, make("thead", {}, make("tr", {}, make("th", { scope: "col", textContent: "next" }), ...this.afters)), this.guesses),
          make("label", { className: "writes" }, this.writer, this.writes))),
      this.why,
      this.fold,
    );
    for (const strip of this.strips) strip.onclick = ({ target }) => target.dataset.at && this.look(Number(target.dataset.at));
    this.root.addEventListener("keydown", ({ key }) => key === "Escape" && this.stop());
    onPalette(() => this.look());
  }

  // ---- The model and the texts ----

  async choose(name) {
    this.stop();
    this.name = name;
    this.model = null;
    this.progress.hidden = false;
    this.progress.value = 0;
    this.become("loading", `Loading ${name}.`);
    // They are there before the model, so that nothing moves when it comes.
    const { texts } = MODELS[name];
    this.presets.replaceChildren(...Object.entries(texts).map(([textContent, pair]) =>
      make("button", { type: "button", className: "md-button", textContent, title: pair.filter(Boolean).join("\n"), onclick: () => this.write(...pair) })));
    if (!this.own) Object.values(texts)[0].forEach((text, which) => (this.texts[which].value = text));
    try {
      const model = await load(name, (share) => this.name === name && (this.progress.value = share));
      if (this.name !== name) return; // another was chosen meanwhile
      this.model = model;
    } catch (error) {
      if (this.name !== name) return;
      this.models.selectedIndex = -1; // so that the same can be chosen again
      this.become("failed", `${error.message}. Choose a model to try again.`);
      return;
    } finally {
      if (this.name === name) this.progress.hidden = true;
    }
    const { config, tensors, labels, means, vocabulary } = this.model;
    this.gpts = [new GPT(config, tensors), new GPT(config, tensors)];
    this.kinds = labels.map((heads) => heads.map(() => "own"));
    this.writes.querySelector("[value=mean]").disabled = !means;
    this.topK.value = this.topK.max = vocabulary.length;
    this.head = bestHead(this.model, "subject of the verb");
    this.layOutMaps();
    this.read();
  }

  become(state, message) {
    this.root.dataset.state = state;
    put(this.status, message);
    const nothing = !this.gpts[0]?.tokens.length;
    for (const control of [this.go, this.one, ...this.chosen.sliders]) control.disabled = nothing;
  }

  write(...pair) {
    pair.forEach((text, which) => (this.texts[which].value = text));
    this.typed(1);
  }

  typed(which) {
    this.stop();
    this.own = this.texts.some(({ value }) => value);
    if (which) this.forget();
    this.read();
  }

  // The first text has to be read anew, for its heads may write what they do in the second.
  forget() {
    if (this.gpts.length) this.gpts[0].tokens.length = 0;
  }

  // Whoever marks text is about to replace it.
  marked() {
    if (this.texts.some(({ selectionStart, selectionEnd }) => selectionStart < selectionEnd)) this.stop();
  }

  // Read what stands in the fields. What was read before stays in the cache.
  read() {
    if (!this.model) return;
    const { config: { max_seq_len }, tokenizer } = this.model;
    const unknown = [];
    for (const which of [1, 0]) {
      const found = encode(this.texts[which].value, tokenizer);
      this.starts[which] = windowStart(found.tokens.length, max_seq_len);
      this.gpts[which].read(found.tokens.slice(this.starts[which]));
      unknown.push(...found.unknown);
    }
    const [count, other] = this.gpts.map(({ tokens }) => tokens.length);
    this.modes[1].disabled = this.writes.querySelector("[value=other]").disabled = !other;
    this.modes[2].disabled = count !== other;
    if (this.modes[this.shown].disabled) this.modes[(this.shown = 0)].checked = true;
    const says = [];
    if (!count) says.push("There is nothing to read: type something.");
    if (count === max_seq_len) says.push("The context is full: with the next token, the model forgets the first half.");
    if (unknown.length) says.push(`Left out, because the model does not know it: ${unknown.slice(0, 8).map(say).join(" ")}${unknown.length > 8 ? " …" : ""}.`);
    if (other && other !== count) says.push("A difference of maps needs two texts of equally many tokens.");
    this.become("ready", says.join(" "));
    // Whoever wants nothing to move is shown the end of a run alone.
    if (!(this.run && reducedMotion.matches)) this.look(count - 1, -1);
  }

  // ---- Generation ----

  async generate(most) {
    if (this.run) return;
    const run = (this.run = { made: 0 });
    const [text] = this.texts;
    this.go.textContent = "Stop";
    while (this.run === run && this.root.isConnected) {
      const { tokenizer, vocabulary } = this.model;
      const token = vocabulary[draw(this.shares(0, this.gpts[0].tokens.length - 1), Math.random())];
      const end = text.value.length; // what is marked stays so
      text.setRangeText(joined(text.value, token, tokenizer), end, end, "preserve");
      this.read();
      text.scrollTop = text.scrollHeight;
      if (++run.made === most) this.stop();
      await new Promise((done) => setTimeout(done, PACE));
    }
  }

  stop() {
    if (!this.run) return;
    const { made } = this.run;
    this.run = null;
    this.own = true;
    this.go.textContent = "Generate";
    this.look(this.gpts[0].tokens.length - 1);
    this.status.textContent = `${made} ${made === 1 ? "token" : "tokens"} written. ${this.status.textContent}`;
  }

  // How likely each token is to be drawn after a position of a text.
  shares(which, position) {
    const { vocabulary } = this.model;
    const topK = Math.max(1, Math.floor(Number(this.topK.value)) || vocabulary.length);
    return probabilities(logitsAt(this.gpts[which], position), { temperature: Number(this.temperature.value), topK });
  }

  // ---- What heads write ----

  // For each kind of WRITES what a head writes at a position, or none for its own.
  rows(kind, layer, head) {
    const { config: { d_model, num_heads, max_seq_len }, means } = this.model;
    const width = d_model / num_heads, zeros = new Float32Array(width);
    const part = (all, at) => all.subarray(at * d_model + head * width, at * d_model + (head + 1) * width);
    const second = this.gpts[1];
    return {
      own: null,
      zeros: () => zeros,
      mean: (t) => part(means, layer * max_seq_len + t),
      other: (t) => (t < second.tokens.length ? part(second.outputs[layer], t) : null),
    }[kind];
  }

  // Let the chosen head write something else, and look at the same cell.
  replace(kind, [layer, head] = this.head) {
    const { query, key } = this;
    this.stop();
    this.kinds[layer][head] = kind;
    this.gpts[0].replace(layer, head, this.rows(kind, layer, head));
    this.read();
    this.look(query, key);
  }

  restore() {
    this.kinds?.forEach((heads, layer) => heads.forEach((_, head) => this.replace("own", [layer, head])));
  }

  // ---- The maps, and one cell of them ----

  layOutMaps() {
    this.cells = this.model.labels.map((heads, layer) =>
      heads.map((label, head) => {
        const checked = String([layer, head]) === String(this.head);
        return smallMap("watched-head", layer, head, label, checked, () => this.turn(layer, head));
      }),
    );
    this.heads.style.setProperty("--heads", this.model.config.num_heads);
    this.heads.replaceChildren(...this.cells.flat().map(({ cell }) => cell));
  }

  turn(layer, head) {
    this.head = [layer, head];
    this.look(this.query, -1);
  }

  show(which) {
    this.shown = which;
    this.look(this.query, -1);
  }

  pick(query, key) {
    this.why.open = true;
    this.look(query, key);
  }

  // The text whose words stand at the maps, and a row of a map: of a text, or what one has
  // more than the other.
  get shownGPT() {
    return this.gpts[this.shown % 2];
  }

  row(layer, head, t) {
    const row = rowOf(this.shownGPT, layer, head, t);
    if (this.shown < 2) return row;
    const other = rowOf(this.gpts[1], layer, head, t);
    return row.map((weight, s) => weight - other[s]);
  }

  words(which, mark = sign) {
    return [...this.gpts[which].tokens].map((token) => mark(this.model.vocabulary[token]));
  }

  // Go to a row, and to a cell of it; without one, to the cell that stands out.
  look(query = this.query, key = query === this.query ? this.key : -1) {
    put(this.warmth, Number(this.temperature.value).toFixed(1));
    if (!this.model) return;
    const count = this.shownGPT.tokens.length;
    this.query = Math.max(0, Math.min(query, count - 1));
    const row = count ? this.row(...this.head, this.query) : [];
    this.key = key in row ? key : Math.max(0, ...ranked(Float32Array.from(row, Math.abs), 1));
    this.draw(count);
  }

  draw(count) {
    const { query, model: { labels, config: { max_seq_len } } } = this;
    const [layer, head] = this.head, name = `${layer}.${head}`;
    const squares = (of) => Array.from({ length: count }, (_, t) => this.row(...of, t));
    const words = this.words(this.shown % 2), said = this.words(this.shown % 2, say);
    this.cells.forEach((heads, at) => heads.forEach(({ canvas, cell }, each) => {
      paint(canvas, squares([at, each]));
      cell.classList.toggle("changed", this.kinds[at][each] !== "own");
    }));
    this.chosen.draw([`Head ${name}`, labels[layer][head]].filter(Boolean).join(", "), squares(this.head), words, said, query, this.key);
    this.strips.forEach((strip, which) => {
      const { tokens } = this.gpts[which], at = Math.min(query, tokens.length - 1);
      fillWords(strip, this.words(which), at);
      if (at >= 0) shade(strip.children, this.shown < 2 ? rowOf(this.gpts[which], layer, head, at) : this.row(layer, head, at));
    });
    put(this.count, this.starts[0] ? `The model reads the last ${this.gpts[0].tokens.length} of ${this.starts[0] + this.gpts[0].tokens.length} tokens: there is room for ${max_seq_len}.` : `${this.gpts[0].tokens.length} of ${max_seq_len} tokens`);
    put(this.writer, `In the first text, head ${name} writes`);
    this.writes.value = this.kinds[layer][head];
    if (this.fold.open) fillTable(this.table, labels, (...at) => count ? ranked(Float32Array.from(this.row(...at, query), Math.abs), 3).map((s) => `${this.row(...at, query)[s].toFixed(2)} ${said[s]} at ${s}`) : []);
    if (this.why.open) count ? explain(this.sum, this.gpts, this.shown % 2, said, layer, head, query, this.key) : this.sum.replaceChildren();
    this.tell();
  }

  // The guesses: of both texts at the same place, or at the end of each.
  tell() {
    const counts = this.gpts.map(({ tokens }) => tokens.length), end = this.query === counts[this.shown % 2] - 1;
    const shares = counts.flatMap((count, which) => (count ? [this.shares(which, end ? count - 1 : Math.min(this.query, count - 1))] : []));
    this.afters[1].hidden = !counts[1];
    const came = this.shownGPT.tokens[this.query + 1];
    fillGuesses(this.guesses, this.model, counts[0] ? shares : [], came);
    put(this.caption, !counts[0] ? "" : came === undefined ? "What may come next" : `What might have come; it was ${say(this.model.vocabulary[came])}`);
  }
}

for (const root of document.querySelectorAll("[data-live=watch]")) new Watch(root);
