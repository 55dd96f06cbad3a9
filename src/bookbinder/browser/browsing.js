// Runs in a page of the finished site: what a reader would find wrong with it.
// Each function gives a list of messages.

window.book = (() => {
  const DRAWN = "pre, code, svg, .katex, .book-error, script, style, noscript";

  // In pixels. No letter of a picture is smaller, on whatever screen.
  const LEAST_LETTERS = 9;

  const excerpt = (text, at) => text.slice(Math.max(0, at - 15), at + 25).trim().replace(/\s+/g, " ");

  function openAll() {
    for (const details of document.querySelectorAll("details")) details.open = true;
  }

  function proseOf(root) {
    const clone = root.cloneNode(true);
    for (const element of clone.querySelectorAll(DRAWN)) element.remove();
    return clone.textContent;
  }

  function leftovers() {
    const text = `${document.title}\n${proseOf(document.body)}`;
    const marks = {
      "raw TeX": /\$|\\[([\])]|\\[a-zA-Z]{2,}/g,
      "diagram source": /\b(flowchart|graph) (LR|RL|TD|TB|BT)\b|\b(sequenceDiagram|accTitle|accDescr)\b|-->|-\.->|==>/g,
      "Markdown": /```|^\s*\/\/\/|--8<--|\]\(|\*\*/gm,
    };
    return Object.entries(marks).flatMap(([what, pattern]) =>
      [...text.matchAll(pattern)].map((found) => `${what} is left: ${excerpt(text, found.index)}`),
    );
  }

  const size = (element) => {
    const { width, height } = element.getBoundingClientRect();
    return width * height;
  };

  const shown = (element) => element.checkVisibility();
  const left = (place) => place.getBoundingClientRect().left;
  const mark = document.createRange();

  function drawings() {
    const found = [];
    for (const formula of document.querySelectorAll(".arithmatex")) {
      const html = formula.querySelector(".katex-html");
      if (!html || !formula.querySelector("math")) found.push(`formula not drawn: ${formula.textContent.slice(0, 40)}`);
      else if (shown(formula) && !size(html)) found.push(`formula without size: ${formula.textContent.slice(0, 40)}`);
    }
    for (const error of document.querySelectorAll(".book-error, .katex-error")) found.push(`error shown: ${error.textContent}`);
    for (const diagram of document.querySelectorAll(".mermaid, [data-undrawn]")) found.push(`diagram not drawn: ${diagram.textContent.trim().slice(0, 40)}`);
    for (const image of document.querySelectorAll("article img")) found.push(`a picture that cannot follow the palette: ${image.getAttribute("src").slice(0, 60)}`);
    for (const figure of document.querySelectorAll("figure.diagram, figure.figure")) {
      const svg = figure.querySelector("svg");
      if (!svg) found.push("a figure without a picture");
      else if (shown(figure)) found.push(...picture(svg));
    }
    return found;
  }

  function nameOf(element) {
    const ids = element.getAttribute("aria-labelledby")?.split(/\s+/) ?? [];
    const text = ids.map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
    return (element.getAttribute("aria-label") ?? text).trim();
  }

  function picture(svg) {
    const name = nameOf(svg);
    const found = [];
    if (svg.getAttribute("role") !== "img" || !name) found.push("a picture without a name for those who cannot see it");
    const frame = svg.getBoundingClientRect();
    if (!frame.width || !frame.height) return [...found, `a picture without size: ${name}`];
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      if (box.left < frame.left - 2 || box.right > frame.right + 2 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2) {
        found.push(`text is cut off in ${name}: ${text.textContent}`);
      }
    }
    return found;
  }

  const frame = () => new Promise(requestAnimationFrame);

  // What the theme moves when a page has come, or the window changes, is given time.
  async function settled() {
    await document.fonts.ready;
    await frame();
    await frame();
  }

  async function shifts() {
    await settled();
    const { shift, moved } = window.noted;
    return shift ? [`what was shown moved by ${shift.toFixed(4)}: ${[...new Set(moved)].join("; ")}`] : [];
  }

  async function width() {
    await settled();
    const { scrollWidth, clientWidth } = document.documentElement;
    const found = scrollWidth > clientWidth ? [`the page scrolls sideways: ${scrollWidth} in ${clientWidth}`] : [];
    for (const name of document.querySelectorAll(".md-footer .md-ellipsis, .md-header__topic:first-child .md-ellipsis")) {
      if (shown(name) && name.scrollWidth > name.clientWidth + 1) found.push(`a name is cut short: ${name.textContent.trim()}`);
    }
    for (const svg of document.querySelectorAll("figure svg")) {
      if (!shown(svg)) continue;
      const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
      const small = [...svg.querySelectorAll("text")].find((text) => parseFloat(getComputedStyle(text).fontSize) * scale < LEAST_LETTERS);
      if (small) found.push(`letters too small to read in ${nameOf(svg)}: ${small.textContent.trim()}`);
    }
    for (const { lastChild: end, children: [formula] } of document.querySelectorAll("article var.arithmatex")) {
      const last = [...(formula?.querySelectorAll(".katex-base") ?? [])].at(-1);
      mark.selectNodeContents(end);
      if (last && end !== formula && shown(formula) && left(mark) <= left(last)) found.push(`a line begins with ${end.data} behind a formula: ${last.textContent}`);
    }
    // What a frame hides cannot be scrolled to, and is as bad.
    for (const element of document.querySelectorAll("article *")) {
      if (element.closest("svg, .katex, .headerlink") || !shown(element)) continue;
      const box = element.getBoundingClientRect();
      if (box.width && box.right > clientWidth + 1 && !scrollable(element)) {
        found.push(`<${element.tagName.toLowerCase()}> sticks out of the page: ${element.textContent.trim().slice(0, 30)}`);
      }
    }
    return found;
  }

  function scrollable(element) {
    for (let above = element.parentElement; above && above !== document.body; above = above.parentElement) {
      if (/auto|scroll/.test(getComputedStyle(above).overflowX)) return true;
    }
    return false;
  }

  function structure() {
    const found = [];
    const ids = new Set();
    for (const { id } of document.querySelectorAll("[id]")) {
      if (ids.has(id)) found.push(`two elements have the id ${id}`);
      ids.add(id);
    }
    for (const link of document.querySelectorAll('a[href^="#"]')) {
      const id = decodeURIComponent(link.getAttribute("href").slice(1));
      if (id && !ids.has(id)) found.push(`a link to #${id}, which is not there`);
    }
    const headings = [...document.querySelectorAll("article :is(h1, h2, h3, h4, h5, h6)")];
    const levels = headings.map((heading) => Number(heading.tagName[1]));
    if (levels.filter((level) => level === 1).length !== 1) found.push("not one h1");
    levels.forEach((level, index) => {
      if (index && level > levels[index - 1] + 1) found.push(`a heading skips a level: ${headings[index].textContent}`);
    });
    for (const link of document.querySelectorAll("a[href], button:not([aria-hidden=true])")) {
      const named = link.textContent.trim() || link.title || nameOf(link) || link.querySelector("img[alt]");
      if (!named) found.push(`a link or button without a name: ${link.outerHTML.slice(0, 60)}`);
    }
    for (const control of document.querySelectorAll("a[href], button, summary, input, select, textarea")) {
      // What else is in a row of tabs is for the mouse; the keyboard moves from tab to tab.
      // What empties the search, or leads back to the top, the keyboard has of its own.
      const spared = ".tabbed-labels, .tabbed-control, .md-top, [type=reset]";
      if (control.tabIndex < 0 && shown(control) && !control.closest(spared)) found.push(`no keyboard reaches ${control.outerHTML.slice(0, 60)}`);
    }
    for (const label of document.querySelectorAll("article label")) {
      if (shown(label) && label.control && !shown(label.control)) found.push(`no keyboard reaches ${label.outerHTML.slice(0, 60)}`);
    }
    for (const image of document.querySelectorAll("img:not([alt])")) found.push(`an image without alt: ${image.src}`);
    if (!document.documentElement.lang) found.push("the page does not say its language");
    return found;
  }

  // Whoever opens pages here has asked that nothing moves.
  function motion() {
    const slow = (times) => times.split(",").some((time) => parseFloat(time) > 0.001);
    const moves = (element) => {
      const { scrollBehavior, transitionDuration, animationName, animationDuration } = getComputedStyle(element);
      return scrollBehavior === "smooth" || slow(transitionDuration) || (animationName !== "none" && slow(animationDuration));
    };
    const found = [...document.querySelectorAll("html, body :not(.katex *, svg *)")].find(moves);
    return found ? [`it moves for who asked that nothing does: ${found.outerHTML.slice(0, 60)}`] : [];
  }

  function channels(color) {
    const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  }
  const cache = new Map();
  const parse = (color) => {
    if (!cache.has(color)) cache.set(color, channels(color));
    return cache.get(color);
  };

  const over = ([r, g, b, a], below) => [r, g, b].map((value, i) => value * a + below[i] * (1 - a)).concat(1);

  // What each element stands on, in the palette that is shown: thousands of words share it.
  let grounds = new Map();
  function background(element) {
    if (!element) return [255, 255, 255, 1];
    if (!grounds.has(element)) {
      const color = parse(getComputedStyle(element).backgroundColor);
      grounds.set(element, color[3] === 1 ? color : over(color, background(element.parentElement)));
    }
    return grounds.get(element);
  }

  function luminance(color) {
    const [r, g, b] = color.map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  function contrast(one, other) {
    const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  }

  function palette() {
    grounds = new Map();
    const body = document.body;
    const paper = background(body);
    const ink = parse(getComputedStyle(document.querySelector("article") ?? body).color);
    return luminance(paper) < luminance(ink) ? "dark" : "light";
  }

  function contrasts() {
    const found = new Set();
    const ask = (element, style, what) => {
      const below = background(element);
      const value = contrast(over(parse(style.color), below), below);
      if (value < 4.5) found.add(`contrast ${value.toFixed(1)} of ${what}`);
    };
    const walker = document.createTreeWalker(document.querySelector("article") ?? document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const element = walker.currentNode.parentElement;
      const text = walker.currentNode.data.trim();
      if (!text || element.closest("svg, script, style, .headerlink, .katex-mathml") || !shown(element)) continue;
      ask(element, getComputedStyle(element), `"${text.slice(0, 20)}"`);
    }
    for (const element of document.querySelectorAll("article .highlight, article .filename")) {
      const style = getComputedStyle(element, "::before");
      if (/^"/.test(style.content) && shown(element)) ask(element, style, `the cue ${style.content}`);
    }
    const paper = background(document.body);
    for (const text of document.querySelectorAll("figure.diagram text, figure.diagram tspan")) {
      const value = contrast(parse(getComputedStyle(text).fill), paper);
      if (shown(text) && value < 4.5) found.add(`contrast ${value.toFixed(1)} in a diagram: ${text.textContent}`);
    }
    return [...found];
  }

  function everything() {
    openAll();
    return [...leftovers(), ...drawings(), ...structure(), ...motion()];
  }

  // A change of the palette may fade; what is asked is how it ends.
  async function colors() {
    await settled();
    for (const fade of document.getAnimations()) fade.finish();
    return { palette: palette(), contrasts: contrasts() };
  }

  // Marks each element whose text is seen as that of another is: to judge the colors of
  // one of them is enough, if axe does judge that one. Of a single letter it says nothing.
  function markAlike() {
    const stands = new Map();
    const looks = new Set();
    for (const element of document.body.querySelectorAll("*")) {
      const style = getComputedStyle(element);
      const look = [style.color, style.fontSize, style.fontWeight, style.textShadow, standing(element, style, stands)].join();
      const text = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE).map((node) => node.data.trim()).join("");
      element.toggleAttribute("data-alike", looks.has(look) || text.length < 2);
      if (!looks.has(look) && judged(element, text)) looks.add(look);
    }
  }

  // What a text is seen on: each color and picture behind it, how faded, and as what it
  // lies over others, if it does.
  function standing(element, style, stands) {
    const above = stands.get(element.parentElement) ?? "";
    const { backgroundColor, backgroundImage, opacity, filter, position, mixBlendMode } = style;
    const own = [backgroundColor, backgroundImage, opacity, filter, mixBlendMode].join();
    let all = own === "rgba(0, 0, 0, 0),none,1,none,normal" ? above : `${above}/${own}`;
    if (["absolute", "fixed", "sticky"].includes(position)) all += `@${element.getAttribute("class")}`;
    stands.set(element, all);
    return all;
  }

  // Of what nobody sees, and of what cannot be used, axe says nothing either.
  function judged(element, text) {
    if (!/[\p{L}\p{N}]{2}/u.test(text) || element.closest(":disabled, [aria-disabled=true], [inert], [aria-hidden=true]")) return false;
    if (element.closest("label")?.control?.disabled) return false;
    const { left, right, bottom, width, height } = element.getBoundingClientRect();
    return element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && width > 1 && height > 1 && right > 0 && bottom > 0 && left < innerWidth;
  }

  return { settled, shifts, everything, width, palette, colors, markAlike };
})();
