// Maps of any model, from a file that the reader opens: all heads, small, and one large.
// The file stays in the browser, and what it says is shown as text.

import { make, put } from "./elements.js";
import { bestHead, get, say, sign } from "./load.js";
import { MOST_BYTES, readMaps, refuse } from "./maps-file.js";
import { ChosenHead, fillWords, onPalette, paint, smallMap } from "./maps.js";
import { fillTable, ranked, shade } from "./views.js";

const EXAMPLE = ["stories", "maps.json"];

class OpenMaps {
  constructor(root) {
    this.root = root;
    this.file = null; // once it is read
    this.build();
    this.openExample();
  }

  build() {
    const button = (textContent, onclick) => make("button", { type: "button", className: "md-button", textContent, onclick });
    const input = make("input", { type: "file", accept: ".json", hidden: true, onchange: () => this.openFile(input.files[0]) });
    // Emptied before, so that the same file can be opened again.
    const ask = () => {
      input.value = "";
      input.click();
    };
    this.count = make("p", { className: "count" });
    this.status = make("p", { className: "status", role: "status" });
    this.heads = make("fieldset", { className: "maps", "aria-label": "Heads of the file as layer.head" });
    this.strip = make("div", { className: "strip", "aria-hidden": "true", onclick: ({ target }) => target.dataset.at && this.look(Number(target.dataset.at)) });
    this.chosen = new ChosenHead((query, key) => this.look(query, key));
    this.chosen.board.root.ariaLabel = "Map of the chosen head of the file";
    this.scores = make("p", { className: "caption" });
    this.chosen.root.append(this.scores);
    this.table = make("tbody");
    this.fold = make("details", { ontoggle: () => this.look() }, make("summary", { textContent: "Every head of the file, as a table" }),
      make("table", {}, make("thead", {}, make("tr", {}, ...["head", "first", "second", "third"].map((textContent) => make("th", { scope: "col", textContent })))), this.table));
    this.root.replaceChildren(
      make("div", { className: "controls" }, button("Open a file of maps", ask), button("Show the example", () => this.openExample()),
        make("span", { textContent: "or drop a file here" }), input),
      make("div", { className: "told" }, this.count, this.status),
      make("div", { className: "views" }, make("div", {}, make("div", { className: "all-heads" }, this.heads), this.strip), this.chosen.root),
      this.fold,
    );
    const over = (is) => (event) => {
      event.preventDefault();
      this.root.classList.toggle("over", is);
    };
    Object.assign(this.root, { ondragover: over(true), ondragleave: over(false), ondrop: (event) => {
      over(false)(event);
      this.openFile(event.dataTransfer.files[0]);
    } });
    onPalette(() => this.paint());
  }

  openExample() {
    this.open(EXAMPLE[1], () => get(...EXAMPLE).then((response) => response.text()));
  }

  openFile(file) {
    if (file) this.open(file.name, () => (file.size > MOST_BYTES ? refuse(`it has more than ${MOST_BYTES / 1e6} MB`) : file.text()));
  }

  // If another file is asked for meanwhile, only that one counts. A wrong file changes
  // nothing of what is shown.
  async open(name, read) {
    this.asked = read;
    try {
      const file = readMaps(await read());
      if (this.asked === read) this.show(file);
    } catch (error) {
      if (this.asked === read) this.become("failed", `${name}: ${error.message}.`);
    }
  }

  become(state, message) {
    this.root.dataset.state = state;
    put(this.status, message);
  }

  show(file) {
    this.file = file;
    const { labels, scores, tokens, model, text, bytes, dtype } = file;
    // Begin with the head that scores best at anything but idling.
    const best = (layer, head) => Math.max(0, ...Object.entries(scores).map(([kind, each]) => (kind === "first" ? 0 : each[layer][head])));
    this.head = bestHead({ scores: { any: labels.map((heads, layer) => heads.map((_, head) => best(layer, head))) } }, "any");
    this.cells = labels.flatMap((heads, layer) => heads.map((label, head) => {
      const checked = String([layer, head]) === String(this.head);
      const { canvas, cell } = smallMap("opened-head", layer, head, label, checked, () => this.turn(layer, head));
      cell.style.gridColumn = head + 1; // layers may differ in their heads
      return { canvas, cell, at: [layer, head] };
    }));
    this.heads.style.setProperty("--heads", Math.max(...labels.map(({ length }) => length)));
    this.heads.replaceChildren(...this.cells.map(({ cell }) => cell));
    const number = (count, name) => `${count.toLocaleString("en")} ${name}${count === 1 ? "" : "s"}`;
    put(this.count, `${model}: ${number(labels.length, "layer")}, ${number(this.cells.length, "head")}, ${number(bytes, "byte")} of cache for each token (${dtype}). The first ${number(tokens.length, "token")} of ${text}.`);
    this.paint();
    this.look(tokens.length - 1, -1);
    const { cell } = this.cells.find(({ at }) => String(at) === String(this.head)), box = this.heads.parentElement;
    box.scrollTop = cell.offsetTop - box.clientHeight / 2;
    this.become("ready", "");
  }

  squares(at) {
    return this.file.tokens.map((_, t) => this.file.row(...at, t));
  }

  paint() {
    for (const { canvas, at } of this.cells ?? []) paint(canvas, this.squares(at));
    this.look();
  }

  turn(layer, head) {
    this.head = [layer, head];
    this.look(this.query, -1);
  }

  // Go to a row, and to a cell of it; without one, to the one with the largest weight.
  look(query = this.query ?? 0, key = query === this.query ? this.key : -1) {
    if (!this.file) return;
    const { tokens, labels, scores, row } = this.file, [layer, head] = this.head;
    this.query = Math.max(0, Math.min(query, tokens.length - 1));
    const weights = row(layer, head, this.query);
    this.key = key in weights ? key : ranked(weights, 1)[0];
    const [words, said] = [sign, say].map((mark) => tokens.map((token) => token.trim() || [...token].map(mark).join(" ")));
    this.chosen.draw(`Head ${layer}.${head}`, this.squares(this.head), words, said, this.query, this.key);
    fillWords(this.strip, words, this.query);
    shade(this.strip.children, weights);
    put(this.scores, Object.entries(scores).map(([kind, each]) => `${kind} ${each[layer][head].toFixed(2)}`).join(", "));
    if (this.fold.open) fillTable(this.table, labels, (...at) => {
      const of = row(...at, this.query);
      return ranked(of, 3).map((s) => `${of[s].toFixed(2)} ${said[s]} at ${s}`);
    });
  }
}

for (const root of document.querySelectorAll("[data-live=maps]")) new OpenMaps(root);
