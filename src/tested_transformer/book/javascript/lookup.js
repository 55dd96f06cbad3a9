// Three signposts along a path: a reader moves the query and sets the temperature.

import { blurred } from "./blurred-lookup.js";
import { bars, drag, fill, picture, place, slider } from "./controls.js";
import { make, put } from "./views.js";

const KEYS = [0, 2, 6]; // kilometers
const VALUES = [500, 800, 600]; // meters
const [FIRST, LAST] = [-1, 7];
const [WIDTH, HEIGHT] = [360, 190];
const [LEFT, STEP] = [48, 38];
const x = (kilometer) => LEFT + STEP * (kilometer - FIRST);
const y = (meters) => 10 + 0.4 * (840 - meters);
const CHART = `
  ${[500, 600, 700, 800].map((m) => `<path class="rule" d="M${LEFT} ${y(m)}H${x(LAST)}"/><text x="${LEFT - 6}" y="${y(m) + 4}" text-anchor="end">${m} m</text>`).join("")}
  ${[0, 2, 4, 6].map((km) => `<text x="${x(km)}" y="182" text-anchor="middle">${km} km</text>`).join("")}
  <path class="curve"/><path class="query"/>
  ${KEYS.map((key, s) => `<circle class="dot" cx="${x(key)}" cy="${y(VALUES[s])}" r="4.5"/>`).join("")}
  <circle class="handle" r="7"/>`;

class Lookup {
  constructor(root) {
    const draw = () => this.draw();
    this.query = slider("query", { min: FIRST, max: LAST, step: 0.1, value: 3 }, draw, (km) => `${km.toFixed(1)} km`);
    this.temperature = slider("temperature", { min: -13, max: 20, value: 0 }, draw,
      (each) => each.toFixed(each < 10 ? 2 : 0), (tenths) => 10 ** (tenths / 10));
    this.chart = picture(`0 0 ${WIDTH} ${HEIGHT}`, "The answer in meters for every kilometer, three dots for the signposts, and a handle at the query.", CHART);
    [this.curve, this.line, this.handle] = [".curve", ".query", ".handle"].map((part) => this.chart.querySelector(part));
    drag(this.chart, (share) => {
      this.query.set(FIRST + (share * WIDTH - LEFT) / STEP);
      this.draw();
    });
    this.weights = bars(["signpost", "weight"], KEYS.map((key, s) => `${key} km, ${VALUES[s]} m`));
    this.says = make("p", { className: "verdict", role: "status" });
    root.replaceChildren(
      make("div", { className: "beside" }, this.chart, this.weights.table),
      this.query.row, this.temperature.row, this.says);
    this.draw();
  }

  draw() {
    const [query, temperature] = [this.query.value, this.temperature.value];
    const at = (kilometer) => blurred(kilometer, KEYS, VALUES, temperature);
    const points = Array.from({ length: 321 }, (_, step) => FIRST + step / 40);
    place(this.curve, { d: `M${points.map((km) => `${x(km).toFixed(1)} ${y(at(km).answer).toFixed(1)}`).join("L")}` });
    const { weights, answer } = at(query);
    place(this.line, { d: `M${x(query)} ${HEIGHT - 24}V${y(answer)}` });
    place(this.handle, { cx: x(query), cy: y(answer) });
    weights.forEach((weight, s) => fill(this.weights.cells[s][0], weight));
    const terms = weights.map((weight, s) => `${weight.toFixed(3)} · ${VALUES[s]}`);
    put(this.says, `Answer: ${terms.join(" + ")} = ${answer.toFixed(0)} m`);
  }
}

for (const root of document.querySelectorAll('[data-live="lookup"]')) new Lookup(root);
