// Runs in a page of the finished site, from its first moment: what a reader would find
// wrong with it. Each function gives a list of messages.

window.looking = (() => {
  const moved = [];
  function note(shifts) {
    for (const { hadRecentInput, value, sources } of shifts) {
      const what = sources.map(({ node }) => (node?.parentElement ?? node)?.outerHTML?.slice(0, 80));
      if (!hadRecentInput) moved.push(`moved by ${value.toFixed(4)}: ${what.join("; ")}`);
    }
  }
  const shifts = new PerformanceObserver((list) => note(list.getEntries()));
  shifts.observe({ type: "layout-shift", buffered: true });

  // Says what has moved until now.
  const frame = () => new Promise(requestAnimationFrame);
  async function settled() {
    await document.fonts.ready;
    await frame();
    await frame();
    note(shifts.takeRecords());
    return [...moved];
  }

  const shown = (element) => element.checkVisibility();
  const all = (selector) => [...document.querySelectorAll(selector)].filter(shown);
  const start = (text) => text.trim().slice(0, 40);

  function scrolls(element) {
    for (let above = element.parentElement; above && above !== document.body; above = above.parentElement) {
      if (/auto|scroll/.test(getComputedStyle(above).overflowX)) return true;
    }
    return false;
  }

  // What a frame hides and cannot be scrolled to is as bad as what sticks out.
  function wide() {
    const { scrollWidth, clientWidth } = document.documentElement;
    const found = scrollWidth > clientWidth ? [`the page scrolls sideways: ${scrollWidth}`] : [];
    for (const element of all("article :not(svg *, .katex *, .headerlink)")) {
      const { width, right } = element.getBoundingClientRect();
      if (width && right > clientWidth + 1 && !scrolls(element)) found.push(`sticks out: ${start(element.outerHTML)}`);
    }
    return found;
  }

  // Formulas, tables and figures begin at the margin of the text. Formulas and figures
  // have its axis, too, and not that of code: only long formulas end beyond it.
  function askew() {
    const text = all("article > p")[0]?.getBoundingClientRect();
    return all("article > :is(div.arithmatex, div.table, figure)").filter((element) => {
      const { left, right } = element.getBoundingClientRect();
      const code = element.parentElement.getBoundingClientRect().right;
      const wide = code > text.right + 2 && right > code - 2 && element.scrollWidth <= element.clientWidth;
      return Math.abs(left - text.left) > 2 || (wide && !element.matches(".table"));
    }).map((element) => `beside the text: ${start(element.outerHTML)}`);
  }

  const mark = document.createRange();
  function lines(node, from, to) {
    mark.setStart(node, from);
    mark.setEnd(node, to);
    const tops = [...mark.getClientRects()].filter((box) => box.width > 1).map((box) => box.top);
    return tops.filter((top, at) => !at || top - tops[at - 1] > 15).length;
  }

  // A heading's word in two lines, a short piece of code too, prose in a column as narrow
  // as its words.
  function cramped() {
    const found = [];
    for (const heading of all("article :is(h1, h2, h3, h4)")) {
      for (const node of heading.childNodes) {
        for (const word of node.data?.matchAll(/[^\s-]+/g) ?? []) {
          if (lines(node, word.index, word.index + word[0].length) > 1) found.push(`a heading's word is broken: ${word[0]}`);
        }
      }
    }
    for (const code of all("article :is(p, li) code")) {
      if (code.textContent.length <= 26 && lines(code, 0, code.childNodes.length) > 1) found.push(`short code is broken: ${code.textContent}`);
    }
    for (const cell of all("article td")) {
      const words = [...cell.childNodes].flatMap((node) => node.data?.match(/[a-z]{2,}/gi) ?? []);
      if (words.length >= 6 && cell.clientWidth < 110) found.push(`a cell is ${cell.clientWidth} px wide: ${start(words.join(" "))}`);
    }
    return found;
  }

  function pictures() {
    const found = [];
    for (const svg of all("article figure > svg")) {
      const frame = svg.getBoundingClientRect();
      const scale = frame.width / svg.viewBox.baseVal.width;
      const texts = [...svg.querySelectorAll("text")].filter((text) => text.textContent.trim());
      const boxes = texts.map((text) => text.getBoundingClientRect());
      boxes.forEach((one, at) => {
        for (let next = at + 1; next < boxes.length; next += 1) {
          const other = boxes[next];
          const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
          const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
          // Lines of a name, and rows of a map, stand closer than their boxes.
          const letter = Math.min(one.width, one.height, other.width, other.height);
          if (Math.min(wide, high) > 0.4 * letter) found.push(`on each other: ${start(texts[at].textContent)}, ${start(texts[next].textContent)}`);
        }
      });
      for (const text of texts) {
        const { left, right, top, bottom } = text.getBoundingClientRect();
        if (left < frame.left - 2 || right > frame.right + 2 || top < frame.top - 2 || bottom > frame.bottom + 2) found.push(`cut off: ${start(text.textContent)}`);
        if (parseFloat(getComputedStyle(text).fontSize) * scale < 10.9) found.push(`too small to read: ${start(text.textContent)}`);
      }
    }
    return found;
  }

  // Axe looks at each element for a while: strokes of formulas and pictures stand behind
  // one name, most words of code look as others do, and most of the menu is not in sight,
  // neither beside the page nor on a phone.
  function thin() {
    for (const item of document.querySelectorAll("nav li")) {
      if (!item.checkVisibility({ visibilityProperty: true })) item.remove();
    }
    for (const formula of document.querySelectorAll(".katex")) formula.textContent = "formula";
    for (const part of document.querySelectorAll("svg[role=img] > :not(title, desc)")) part.remove();
    const seen = new Set();
    for (const word of document.querySelectorAll("pre code span")) {
      const look = `${word.closest(".highlight")?.className} ${word.className}`;
      if (seen.has(look)) word.replaceWith(...word.childNodes);
      else seen.add(look);
    }
  }

  return { settled, wide, askew, cramped, pictures, thin };
})();
