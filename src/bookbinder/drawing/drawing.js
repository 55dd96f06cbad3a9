// Runs in the browser that draws diagrams: mermaid's SVG, made fit for a page.
//
// What comes back has no style sheet, no classes and no colors of its own. Every
// element carries what it needs as attributes, in the book's colors.

window.drawDiagram = async (source, palette) => {
  const color = Object.fromEntries(
    Object.entries(palette).map(([hex, name]) => [name.replace("--book-", ""), hex]),
  );
  const { ink, muted, accent, paper, rule } = color;
  const font = "book-measure";
  // Some shapes are drawn with a little chance in them; here it is the same each time.
  let chance = 1;
  Math.random = () => (chance = (chance * 48271) % 2147483647) / 2147483647;
  await Promise.all([
    document.fonts.load(`14px ${font}`),
    document.fonts.load(`bold 14px ${font}`),
  ]);

  mermaid.initialize({
    startOnLoad: false,
    securityLevel: "strict",
    deterministicIds: true,
    htmlLabels: false,
    flowchart: { htmlLabels: false, curve: "basis", padding: 10, nodeSpacing: 30, rankSpacing: 34, wrappingWidth: 320, subGraphTitleMargin: { top: 4, bottom: 10 } },
    sequence: { mirrorActors: false, useMaxWidth: true, actorFontFamily: font, messageFontFamily: font, noteFontFamily: font },
    theme: "base",
    fontFamily: font,
    fontSize: 14,
    themeVariables: {
      fontFamily: font,
      fontSize: "14px",
      background: paper,
      primaryColor: paper,
      primaryTextColor: ink,
      primaryBorderColor: muted,
      lineColor: muted,
      textColor: ink,
      labelBoxBorderColor: muted,
    },
    // Set outright, because mermaid derives shades of its own from each variable.
    themeCSS: `
      rect, circle, ellipse, polygon, .node path { fill: ${paper}; stroke: ${muted}; stroke-width: 1.2px; }
      text, tspan { fill: ${ink} !important; stroke: none !important; }
      .label-container, .basic { fill: ${paper}; stroke: ${muted}; }
      .cluster rect { fill: ${rule}; fill-opacity: 0.3; stroke: ${rule}; }
      .edgePath path, .flowchart-link, .relation, .transition { stroke: ${muted}; fill: none; }
      .edge-thickness-normal { stroke-width: 1.4px; }
      .edge-thickness-thick { stroke-width: 2.8px; }
      marker path, marker circle, marker polygon { fill: ${muted}; stroke: ${muted}; }
      .edgeLabel rect, .edgeLabel .background, .labelBkg { fill: ${paper}; opacity: 1; stroke: none; }
      .actor, .actor-man line, .actor-man circle { fill: ${paper}; stroke: ${accent}; }
      line, .actor-line { stroke: ${muted}; stroke-width: 1.2px; }
      .actor-line { stroke: ${rule}; }
      .messageLine0, .messageLine1 { stroke: ${ink}; stroke-width: 1.2px; fill: none; }
      .activation0, .activation1, .activation2 { fill: ${rule}; stroke: ${muted}; }
      .note, .noteText rect { fill: ${rule}; fill-opacity: 0.3; stroke: ${rule}; }
      .labelBox { fill: ${paper}; stroke: ${muted}; }
      .loopLine { stroke: ${muted}; fill: none; }
      .sequenceNumber { fill: ${paper} !important; }
      #sequencenumber, [id$="sequencenumber"] circle { fill: ${ink}; }
    `,
  });

  const host = document.getElementById("host");
  host.innerHTML = (await mermaid.render("d", source)).svg;
  const svg = host.querySelector("svg");
  if (svg.querySelector("foreignObject")) throw new Error("a label that is HTML: use plain text");
  const width = svg.viewBox.baseVal.width;

  const variables = {};
  for (const [hex, name] of Object.entries(palette)) {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    variables[`rgb(${r}, ${g}, ${b})`] = `var(${name})`;
  }

  // Each is inherited, so an element carries it only where it differs from its parent.
  const inherited = {
    "fill": "rgb(0, 0, 0)",
    "fill-opacity": "1",
    "stroke": "none",
    "stroke-width": "1px",
    "stroke-dasharray": "none",
    "stroke-linecap": "butt",
    "stroke-linejoin": "miter",
    "stroke-opacity": "1",
    "font-size": "",
    "font-weight": "400",
    "font-style": "normal",
    "text-anchor": "start",
    "dominant-baseline": "auto",
    "visibility": "visible",
  };
  const fonts = new Set(["font-size", "font-weight", "font-style", "text-anchor", "dominant-baseline"]);
  const lettering = new Set(["text", "tspan"]);
  const geometry = new Set([
    "x", "y", "x1", "y1", "x2", "y2", "dx", "dy", "cx", "cy", "r", "rx", "ry", "d", "points",
    "width", "height", "transform", "viewBox", "refX", "refY", "orient", "markerWidth",
    "markerHeight", "markerUnits", "marker-start", "marker-mid", "marker-end", "id",
    "role", "aria-labelledby", "aria-describedby", "alignment-baseline",
  ]);
  const kept = new Set([
    "svg", "g", "defs", "marker", "title", "desc", "path", "rect", "line", "circle", "ellipse",
    "polygon", "polyline", "text", "tspan",
  ]);
  const paints = new Set(["path", "rect", "line", "circle", "ellipse", "polygon", "polyline", "text", "tspan"]);

  const painted = (name, value, element) => {
    if ((name !== "fill" && name !== "stroke") || value === "none") return value;
    if (variables[value]) return variables[value];
    throw new Error(`${name} ${value} of <${element.tagName}> is none of the book's colors`);
  };

  const rounded = (value) => value.replace(/-?\d+\.\d{3,}/g, (number) => `${+Number(number).toFixed(2)}`);

  // A group is said to paint only what its children would inherit; whether that is one
  // of the book's colors is asked of the shapes alone.
  const copy = (element, above) => {
    const style = getComputedStyle(element);
    const name = element.tagName;
    if (!kept.has(name) || style.display === "none") return null;
    const clone = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const { name: key, value } of element.attributes) {
      if (geometry.has(key)) clone.setAttribute(key, rounded(value.replaceAll("url(#d_", "url(#")));
    }
    if (clone.id) clone.id = clone.id.replace(/^d_/, "");
    const current = { ...above };
    if (name !== "title" && name !== "desc") {
      if (paints.has(name)) {
        for (const key of Object.keys(inherited)) {
          if (fonts.has(key) && !lettering.has(name)) continue;
          // Mermaid writes a solid line as dashes without gaps.
          const value = style.getPropertyValue(key).replace(/^(0|1, 0|0px|1px, 0px)$/, "none");
          if (value === above[key]) continue;
          clone.setAttribute(key, painted(key, value, element).replaceAll("px", ""));
          current[key] = value;
        }
      }
      if (style.opacity !== "1") clone.setAttribute("opacity", style.opacity);
      const moved = element.style.transform;
      if (moved) throw new Error(`a style that moves <${name}>: not supported`);
    }
    for (const child of element.childNodes) {
      if (child.nodeType === Node.TEXT_NODE) {
        const text = name === "text" || name === "tspan" || name === "title" || name === "desc";
        if (text && child.data) clone.append(child.data);
      } else if (child.nodeType === Node.ELEMENT_NODE) {
        const copied = copy(child, current);
        if (copied) clone.append(copied);
      }
    }
    const empty = !clone.hasChildNodes();
    if (empty && (name === "g" || name === "defs" || name === "text" || name === "tspan")) return null;
    if (name === "rect" && !(element.width.baseVal.value * element.height.baseVal.value)) return null;
    return clone;
  };

  const drawn = copy(svg, inherited);
  for (const key of ["width", "height", "x", "y"]) drawn.removeAttribute(key);
  drawn.setAttribute("role", "img");
  drawn.setAttribute("style", `--natural: ${Math.ceil(width)}px`);
  // Names that nothing refers to are of no use on a page.
  const whole = drawn.outerHTML;
  for (const element of drawn.querySelectorAll("[id]")) {
    const { id } = element;
    const spoken = element.tagName === "title" || element.tagName === "desc";
    if (!spoken && !whole.includes(`url(#${id})`)) element.removeAttribute("id");
  }
  for (const marker of drawn.querySelectorAll("marker:not([id])")) marker.remove();
  for (const defs of drawn.querySelectorAll("defs:empty")) defs.remove();
  host.innerHTML = "";
  return new XMLSerializer().serializeToString(drawn);
};
