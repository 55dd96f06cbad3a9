// The page around the engine: what the reader types goes in, and what every head attends
// to is drawn. All of it can be reached by the keyboard, and whatever is drawn is said in
// words as well: under each map, and in a table.

import { labeled, make, put } from "./elements.js";
import { draw, encode, probabilities, windowStart } from "./engine.js";
import { MODELS, load, say } from "./load.js";
import { Maps } from "./maps.js";
import { fillGuesses, fillStrip, fillTable, logitsAt, rowOf, shadeStrip, strongest } from "./views.js";

const MOST_NEW = 400; // tokens that one press of the button writes at most
const READABLE = 100; // milliseconds that words stand at least while the model writes
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

class Watch {
  constructor(root) {
    this.root = root;
    this.model = null; // { gpt, alphabet, labels } once it is loaded
    this.position = -1; // the one that is looked at
    this.head = [0, 0]; // layer and head that shade the text
    this.pictures = null; // the maps, once there is a model
    this.start = 0; // of the context, in the text
    this.run = null; // what is being generated
    this.told = 0; // when words were last changed
    this.own = false; // whether the text is the reader's
    this.build();
    this.choose(Object.keys(MODELS)[0]);
  }

  build() {
    const button = (text, action) => make("button", { type: "button", className: "md-button", textContent: text, onclick: action });
    const options = Object.entries(MODELS).map(([name, { title }]) => new Option(`${name}: ${title}`, name));
    this.models = make("select", { "aria-label": "Model", onchange: () => this.choose(this.models.value) }, ...options);
    this.texts = make("span", { className: "texts", role: "group", "aria-label": "Texts to try" });
    this.text = make("textarea", { rows: 2, "aria-label": "Text", spellcheck: false, autocapitalize: "off", autocomplete: "off", oninput: () => this.typed(), onselect: () => this.marked() });
    this.progress = make("progress", { max: 1, "aria-label": "Weights loaded" });
    this.count = make("p", { className: "count" });
    this.status = make("p", { className: "status", role: "status" });
    this.go = button("Generate", () => (this.run ? this.stop() : this.generate(MOST_NEW)));
    this.one = button("One token", () => this.generate(1));
    this.temperature = make("input", { type: "range", min: 0, max: 2, step: 0.1, value: 0.8, oninput: () => this.look() });
    this.warmth = make("output");
    this.topK = make("input", { type: "number", min: 1, value: 20, oninput: () => this.look() });
    this.strip = make("div", { className: "strip", "aria-hidden": "true" });
    this.place = make("input", { type: "range", min: 0, value: 0, oninput: () => this.look(Number(this.place.value)) });
    this.placed = make("output");
    this.mute = make("input", { type: "checkbox", onchange: () => this.silence(this.mute.checked) });
    this.muteName = make("span");
    this.heads = make("fieldset", { className: "maps" });
    this.headName = make("p", { className: "says-head" });
    this.large = make("canvas", { className: "large", "aria-hidden": "true" });
    this.says = make("p", { className: "says" });
    this.caption = make("p", { className: "caption" });
    this.guesses = make("ol", { className: "guesses" });
    this.rows = make("tbody");
    const heading = ["head", "first", "second", "third"].map((name) => make("th", { scope: "col", textContent: name }));
    this.fold = make("details", { ontoggle: () => this.look() }, make("summary", { textContent: "Every head here, as a table" }),
      make("table", {}, make("thead", {}, make("tr", {}, ...heading)), this.rows));
    this.root.replaceChildren(
      make("div", { className: "controls" }, labeled("Model", this.models), this.texts),
      this.progress,
      this.text,
      make("div", { className: "told" }, this.count, this.status),
      make("div", { className: "controls" }, this.go, this.one, button("Clear", () => this.write("")),
        labeled("Temperature", this.temperature, this.warmth), labeled("Top-k", this.topK)),
      this.strip,
      labeled("Position", this.place, this.placed),
      make("div", { className: "views" }, this.heads,
        make("div", { className: "chosen-head" }, this.headName, this.large, this.says),
        make("div", { className: "next" }, this.caption, this.guesses, make("label", { className: "mute" }, this.mute, this.muteName))),
      this.fold,
    );
    for (const event of ["pointerover", "click"]) {
      this.strip.addEventListener(event, ({ target }) => target.dataset.at && this.look(Number(target.dataset.at)));
    }
    for (const event of ["pointermove", "click"]) {
      this.large.addEventListener(event, ({ offsetY }) => {
        const row = this.pictures?.rowAt(offsetY) ?? -1;
        if (row >= 0) this.look(row);
      });
    }
    this.root.addEventListener("keydown", ({ key }) => key === "Escape" && this.stop());
    // The palette is an attribute of the body.
    new MutationObserver(() => {
      this.pictures?.recolor();
      this.look();
    }).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  }

  // ---- The model and the text ----

  async choose(name) {
    this.stop();
    this.name = name;
    this.model = null;
    this.progress.hidden = false;
    this.progress.value = 0;
    this.become("loading", `Loading ${name}.`);
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
    this.topK.max = this.model.alphabet.length;
    this.layOutMaps();
    this.become("ready", "");
    const { texts } = MODELS[name];
    this.texts.replaceChildren(...Object.entries(texts).map(([textContent, text]) =>
      make("button", { type: "button", className: "md-button", textContent, title: text, onclick: () => this.write(text) })));
    if (!this.own) [this.text.value] = Object.values(texts);
    this.read();
  }

  become(state, message) {
    this.root.dataset.state = state;
    put(this.status, message);
    const nothing = !this.model?.gpt.tokens.length;
    for (const control of [this.go, this.one, this.place]) control.disabled = nothing;
  }

  write(text) {
    this.text.value = text;
    this.typed();
  }

  typed() {
    this.stop();
    this.own = this.text.value !== "";
    this.read();
  }

  // Whoever marks text is about to replace it.
  marked() {
    if (this.text.selectionStart < this.text.selectionEnd) this.stop();
  }

  // Read what stands in the field. What was read before stays in the cache.
  read() {
    if (!this.model) return;
    const { gpt, alphabet } = this.model;
    const { max_seq_len } = gpt.config;
    const { tokens, unknown } = encode(this.text.value, alphabet);
    this.start = windowStart(tokens.length, max_seq_len);
    this.pictures.kept = Math.min(this.pictures.kept, gpt.read(tokens.slice(this.start)));
    const count = gpt.tokens.length;
    const says = [];
    if (!count) says.push("There is nothing to read: type something.");
    if (count === max_seq_len) says.push("The context is full: with the next character, the model forgets the first half.");
    if (unknown.length) says.push(`Left out, because the model knows no such character: ${unknown.slice(0, 8).map(say).join(" ")}${unknown.length > 8 ? " …" : ""}`);
    this.become("ready", says.join(" "));
    // Whoever wants nothing to move is shown the end of a run alone.
    if (!(this.run && reducedMotion.matches)) this.show();
  }

  show() {
    this.look(this.model.gpt.tokens.length - 1);
  }

  // ---- Generation ----

  async generate(most) {
    if (this.run) return;
    const run = (this.run = { made: 0 });
    this.go.textContent = "Stop";
    while (this.run === run && this.root.isConnected) {
      const { gpt, alphabet } = this.model;
      const end = this.text.value.length; // what is marked stays so
      this.text.setRangeText(alphabet[draw(this.shares(gpt.tokens.length - 1), Math.random())], end, end, "preserve");
      this.read();
      this.text.scrollTop = this.text.scrollHeight;
      if (++run.made === most) this.stop();
      await new Promise(requestAnimationFrame);
    }
  }

  stop() {
    if (!this.run) return;
    const { made } = this.run;
    this.run = null;
    this.own = true;
    this.go.textContent = "Generate";
    this.show();
    this.status.textContent = `${made} ${made === 1 ? "token" : "tokens"} written. ${this.status.textContent}`;
  }

  // How likely each token is to be drawn after a position.
  shares(position) {
    const { gpt, alphabet } = this.model;
    const topK = Math.max(1, Math.floor(Number(this.topK.value)) || alphabet.length);
    return probabilities(logitsAt(gpt, position), { temperature: Number(this.temperature.value), topK });
  }

  // ---- The maps, and one position of them ----

  layOutMaps() {
    const { gpt, labels } = this.model;
    const { num_heads, max_seq_len } = gpt.config;
    this.head = MODELS[this.name].head;
    this.cells = labels.map((heads, layer) =>
      heads.map((label, head) => {
        const checked = String([layer, head]) === String(this.head);
        const radio = make("input", { type: "radio", name: "watched-head", checked, onchange: () => this.pick(layer, head) });
        const name = make("span", { className: "name", textContent: `${layer}.${head}` });
        const frame = make("span", { className: "frame" });
        return { frame, cell: make("label", { className: "map", title: label }, radio, name, frame) };
      }),
    );
    this.heads.style.setProperty("--heads", num_heads);
    const legend = make("legend", { textContent: "Heads as layer.head" });
    this.heads.replaceChildren(legend, ...this.cells.flat().map(({ cell }) => cell));
    this.pictures = new Maps(this.heads, this.cells.map((heads) => heads.map(({ frame }) => frame)), this.large, max_seq_len);
  }

  pick(layer, head) {
    this.head = [layer, head];
    this.look();
  }

  // Take away what the chosen head adds, or give it back, and look at the same place.
  silence(muted) {
    const { position } = this;
    this.stop();
    this.model.gpt.mute(...this.head, muted);
    this.read();
    this.look(position);
  }

  look(position = this.position) {
    put(this.warmth, Number(this.temperature.value).toFixed(1));
    if (!this.model) return;
    const { gpt } = this.model;
    this.position = Math.min(position, gpt.tokens.length - 1);
    this.pictures.draw(this.model, this.head, this.position);
    // Words that change with every token nobody can read, and to set them takes the
    // browser longer than the maps do. After a run all of them are right.
    const now = performance.now();
    if (this.run && now - this.told < READABLE) return;
    this.told = now;
    this.tell();
  }

  // What there is to read: the text in shades, the same in words, and the guesses.
  tell() {
    const { gpt, alphabet } = this.model;
    const { max_seq_len } = gpt.config;
    const count = gpt.tokens.length, last = count - 1;
    this.count.textContent = this.start ? `The model reads the last ${count} of ${this.start + count} characters: there is room for ${max_seq_len}.` : `${count} of ${max_seq_len} characters`;
    fillStrip(this.strip, this.model);
    if (last >= 0) shadeStrip(this.strip, rowOf(gpt, ...this.head, this.position), this.position);
    this.place.max = Math.max(0, last);
    this.place.value = this.position;
    this.placed.textContent = last < 0 ? "none" : `${this.position}: ${say(alphabet[gpt.tokens[this.position]])}`;
    this.place.setAttribute("aria-valuetext", this.placed.textContent);
    const [ofLayer, ofHead] = this.head;
    this.mute.checked = gpt.muted[ofLayer][ofHead];
    put(this.muteName, `Mute head ${ofLayer}.${ofHead}`);
    put(this.headName, [`Head ${ofLayer}.${ofHead}`, this.model.labels[ofLayer][ofHead]].filter(Boolean).join(", "));
    put(this.says, `Most: ${strongest(this.model, ofLayer, ofHead, this.position, 1)}`);
    this.cells.forEach((heads, layer) => heads.forEach(({ cell }, head) => cell.classList.toggle("muted", gpt.muted[layer][head])));
    if (this.fold.open) fillTable(this.rows, this.model, this.position);
    fillGuesses(this.guesses, this.model, this.position, last < 0 ? [] : this.shares(this.position));
    const came = gpt.tokens[this.position + 1];
    if (last < 0) this.caption.textContent = "";
    else this.caption.textContent = came === undefined ? "What may come next" : `What might have come; it was ${say(alphabet[came])}`;
  }
}

for (const root of document.querySelectorAll("[data-live=watch]")) new Watch(root);
