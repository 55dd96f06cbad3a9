// Three signposts along a path: a reader moves the query and sets the temperature.

import { blurred } from "./blurred-lookup.js";
import { bar, fill, live, make, picture, slider, table } from "./controls.js";

const KEYS = [0, 2, 6]; // kilometers
const VALUES = [500, 800, 600]; // meters
const [FIRST, LAST] = [-1, 7];
const [WIDTH, LEFT, STEP] = [360, 48, 38];
const x = (kilometer) => LEFT + STEP * (kilometer - FIRST);
const y = (meters) => 10 + 0.4 * (840 - meters);
const AXES = [500, 600, 700, 800].map((m) => `<path class="rule" d="M${LEFT} ${y(m)}H${x(LAST)}"/><text x="42" y="${y(m) + 4}" style="text-anchor:end">${m} m</text>`).join("")
  + [0, 2, 4, 6].map((km) => `<text x="${x(km)}" y="182">${km} km</text>`).join("");
const DOTS = KEYS.map((key, s) => `<circle class="dot" cx="${x(key)}" cy="${y(VALUES[s])}" r="4.5"/>`).join("");
const POINTS = Array.from({ length: 321 }, (_, step) => FIRST + step / 40);

live("lookup", (redraw) => {
  const query = slider("query", { min: FIRST, max: LAST, step: 0.1, value: 3 }, (km) => `${km.toFixed(1)} km`);
  const temperature = slider("temperature", { min: -13, max: 20, value: 0 },
    (each) => each.toFixed(each < 10 ? 2 : 0), (tenths) => 10 ** (tenths / 10));
  const chart = picture(`0 0 ${WIDTH} 190`, "The answer in meters by kilometer, a dot for each signpost, and a handle at the query.");
  const bars = table("bars", ["signpost", "weight"]);
  // A mouse or a finger that is down drags the query along.
  chart.onpointerdown = chart.onpointermove = ({ type, pointerId, clientX }) => {
    if (type === "pointerdown") chart.setPointerCapture(pointerId);
    if (!chart.hasPointerCapture(pointerId)) return;
    const { left, width } = chart.getBoundingClientRect();
    query.input.value = FIRST + ((clientX - left) / width * WIDTH - LEFT) / STEP;
    redraw();
  };

  function draw() {
    const at = query.read(), t = temperature.read();
    const lookUp = (kilometer) => blurred(kilometer, KEYS, VALUES, t);
    const curve = POINTS.map((km) => [x(km), y(lookUp(km).answer)].map((each) => each.toFixed(1))).join("L");
    const { weights, answer } = lookUp(at);
    chart.innerHTML = `${AXES}<path class="curve" d="M${curve}"/><path class="query" d="M${x(at)} 166V${y(answer)}"/>
      ${DOTS}<circle class="handle" cx="${x(at)}" cy="${y(answer)}" r="7"/>`;
    fill(bars, KEYS.map((key, s) => [`${key} km, ${VALUES[s]} m`, bar(weights[s])]));
    return `Answer: ${weights.map((weight, s) => `${weight.toFixed(3)} · ${VALUES[s]}`).join(" + ")} = ${answer.toFixed(0)} m`;
  }

  return [draw, make("div", { className: "beside" }, chart, bars), query.row, temperature.row];
});
