// Three signposts along a path: a reader moves the query and sets the temperature.

import { blurred } from "./blurred-lookup.js";
import { cells, drag, fill, live, picture, place, slider, table } from "./controls.js";
import { make } from "./elements.js";

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

live("lookup", (redraw) => {
  const query = slider("query", { min: FIRST, max: LAST, step: 0.1, value: 3 }, redraw, (km) => `${km.toFixed(1)} km`);
  const temperature = slider("temperature", { min: -13, max: 20, value: 0 }, redraw,
    (each) => each.toFixed(each < 10 ? 2 : 0), (tenths) => 10 ** (tenths / 10));
  const chart = picture(`0 0 ${WIDTH} ${HEIGHT}`, "The answer in meters for every kilometer, three dots for the signposts, and a handle at the query.", CHART);
  const [curve, line, handle] = [".curve", ".query", ".handle"].map((part) => chart.querySelector(part));
  const shown = cells(KEYS.length, "bar");
  drag(chart, (share) => {
    query.set(FIRST + (share * WIDTH - LEFT) / STEP);
    redraw();
  });

  function draw() {
    const at = (kilometer) => blurred(kilometer, KEYS, VALUES, temperature.value);
    const points = Array.from({ length: 321 }, (_, step) => FIRST + step / 40);
    const { weights, answer } = at(query.value);
    const [cx, cy] = [x(query.value), y(answer)];
    place(curve, { d: `M${points.map((km) => `${x(km).toFixed(1)} ${y(at(km).answer).toFixed(1)}`).join("L")}` });
    place(line, { d: `M${cx} ${HEIGHT - 24}V${cy}` });
    place(handle, { cx, cy });
    weights.forEach((weight, s) => fill(shown[s], weight));
    return `Answer: ${weights.map((weight, s) => `${weight.toFixed(3)} · ${VALUES[s]}`).join(" + ")} = ${answer.toFixed(0)} m`;
  }

  const rows = KEYS.map((key, s) => [`${key} km, ${VALUES[s]} m`, shown[s]]);
  return [draw, make("div", { className: "beside" }, chart, table("bars", ["signpost", "weight"], rows)), query.row, temperature.row];
});
