// Runs in the browser that draws diagrams: mermaid's SVG, made fit for a page.
//
// What comes back has no style sheet, no classes and no colors of its own: every element
// carries what it needs as attributes, in the variables of the book's palette.

const set = (names) => new Set(names.split(" "));
const LETTERING = set("text tspan");
const PAINTED = set("path rect line circle ellipse polygon polyline text tspan");
const SPOKEN = set("title desc");
const KEPT = new Set([...set("svg g defs marker"), ...PAINTED, ...SPOKEN]);
const GEOMETRY = set(
  "x y x1 y1 x2 y2 dx dy cx cy r rx ry d points width height transform viewBox refX refY orient " +
  "markerWidth markerHeight markerUnits marker-start marker-mid marker-end id role " +
  "aria-labelledby aria-describedby",
);
// Each is inherited, so an element carries it only where it differs from its parent.
const INHERITED = {
  "fill": "rgb(0, 0, 0)", "fill-opacity": "1", "stroke": "none", "stroke-width": "1px",
  "stroke-dasharray": "none", "font-size": "", "font-weight": "400", "font-style": "normal",
  "text-anchor": "start",
};
const FONTS = set("font-size font-weight font-style text-anchor");

const settings = ({ ink, muted, paper, rule }, font) => ({
  securityLevel: "strict",
  handDrawnSeed: 1,
  htmlLabels: false,
  flowchart: {
    htmlLabels: false, curve: "basis", padding: 7, nodeSpacing: 16, rankSpacing: 30,
    wrappingWidth: 320, subGraphTitleMargin: { top: 4, bottom: 10 },
  },
  theme: "base",
  themeVariables: {
    fontFamily: font, fontSize: "14px", background: paper, primaryColor: paper, primaryTextColor: ink,
    primaryBorderColor: muted, lineColor: muted, textColor: ink,
  },
  // Set outright, because mermaid derives shades of its own from each variable.
  themeCSS: `
    rect, circle, ellipse, polygon, .node path { fill: ${paper}; stroke: ${muted}; stroke-width: 1.2px; }
    text, tspan { fill: ${ink} !important; stroke: none !important; }
    .cluster rect { fill: ${rule}; fill-opacity: 0.3; stroke: ${rule}; }
    .edge-thickness-normal { stroke-width: 1.4px; }
    .edge-thickness-thick { stroke-width: 2.8px; }
    marker path, marker circle { fill: ${muted}; stroke: ${muted}; }
    .edgeLabel rect, .labelBkg { fill: ${paper}; stroke: none; }
  `,
});

const rounded = (value) => value.replace(/-?\d+\.\d{3,}/g, (number) => `${+Number(number).toFixed(2)}`);

// A group is said to paint only what its children would inherit, so shapes alone are asked.
function copy(element, above, variables) {
  const style = getComputedStyle(element);
  const name = element.tagName;
  if (!KEPT.has(name) || style.display === "none") return [];
  const clone = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const { name: key, value } of element.attributes) {
    if (GEOMETRY.has(key)) clone.setAttribute(key, rounded(value.replaceAll("url(#d_", "url(#")));
  }
  if (clone.id) clone.id = clone.id.replace(/^d_/, "");
  const current = { ...above };
  for (const key of PAINTED.has(name) ? Object.keys(INHERITED) : []) {
    if (FONTS.has(key) && !LETTERING.has(name)) continue;
    // Mermaid writes a solid line as dashes without gaps.
    const value = style.getPropertyValue(key).replace(/^(0|1, 0|0px|1px, 0px)$/, "none");
    if (value === above[key]) continue;
    current[key] = value;
    const color = (key === "fill" || key === "stroke") && value !== "none";
    if (color && !variables[value]) throw new Error(`${key} ${value} of <${name}> is none of the book's colors`);
    clone.setAttribute(key, color ? variables[value] : value.replaceAll("px", ""));
  }
  for (const child of element.childNodes) {
    if (child.nodeType === Node.ELEMENT_NODE) clone.append(...copy(child, current, variables));
    else if (LETTERING.has(name) || SPOKEN.has(name)) clone.append(child.data);
  }
  const flat = name === "rect" && !(element.width.baseVal.value * element.height.baseVal.value);
  const empty = !clone.hasChildNodes() && ["g", "defs", "text", "tspan"].includes(name);
  return flat || empty ? [] : [clone];
}

window.drawDiagram = async (source, palette) => {
  const font = "book-measure";
  await Promise.all(["", "bold "].map((weight) => document.fonts.load(`${weight}14px ${font}`)));
  const variables = {};
  const colors = {};
  for (const [hex, name] of Object.entries(palette)) {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    variables[`rgb(${r}, ${g}, ${b})`] = `var(${name})`;
    colors[name.replace("--book-", "")] = hex;
  }
  mermaid.initialize(settings(colors, font));
  const host = document.getElementById("host");
  host.innerHTML = (await mermaid.render("d", source)).svg;
  const svg = host.querySelector("svg");
  if (svg.querySelector("foreignObject")) throw new Error("a label that is HTML: use plain text");
  const [drawn] = copy(svg, INHERITED, variables);
  for (const key of ["width", "height"]) drawn.removeAttribute(key);
  drawn.setAttribute("role", "img");
  drawn.setAttribute("style", `--natural: ${Math.ceil(svg.viewBox.baseVal.width)}px`);
  // Names that nothing refers to are of no use on a page.
  const whole = drawn.outerHTML;
  for (const element of drawn.querySelectorAll("[id]")) {
    if (!SPOKEN.has(element.tagName) && !whole.includes(`url(#${element.id})`)) element.removeAttribute("id");
  }
  for (const unused of drawn.querySelectorAll("marker:not([id])")) unused.remove();
  host.innerHTML = "";
  return new XMLSerializer().serializeToString(drawn);
};
