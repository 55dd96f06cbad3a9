// What scrolls in its own frame can be reached by the keyboard and has a name, and what
// the theme leaves unnamed gets one. Nothing here is needed to read.

const FRAMES = {
  "div.arithmatex": "Formula, scrolls sideways",
  "figure.diagram": "Diagram, scrolls sideways",
  "figure.figure": "Figure, scrolls sideways",
  ".md-typeset :is(.table, .md-typeset__scrollwrap)": "Table, scrolls sideways",
};

function nameFrames() {
  const frames = Object.entries(FRAMES).flatMap(([selector, label]) =>
    [...document.querySelectorAll(selector)].map((frame) => [frame, label, frame.scrollWidth > frame.clientWidth + 1]),
  );
  // All are measured before the first is changed, or each would be laid out by itself.
  for (const [frame, label, scrolls] of frames) {
    if (scrolls) {
      frame.tabIndex = 0;
      // A figure is one already, and may be nothing else where it has a caption.
      if (frame.tagName !== "FIGURE") frame.setAttribute("role", "group");
      frame.setAttribute("aria-label", label);
    } else if (frame.hasAttribute("tabindex")) {
      for (const name of ["tabindex", "role", "aria-label"]) frame.removeAttribute(name);
    }
  }
}

// The theme opens its menu by a label, which no keyboard can press.
function pressMenu() {
  const label = document.querySelector(".md-header [for=__drawer]");
  if (!label) return;
  const { className, control } = label;
  const button = Object.assign(document.createElement("button"), { className, type: "button" });
  button.classList.add("menu");
  button.setAttribute("aria-label", "Menu");
  const tell = () => button.setAttribute("aria-expanded", control.checked);
  button.addEventListener("click", () => control.click());
  control.addEventListener("change", tell);
  tell();
  button.append(...label.childNodes);
  label.replaceWith(button);
}

function nameControls() {
  document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
  // A part of the menu has two labels, that which opens it and that which leads back.
  // The browser looks for the labels of a box through the whole page, so begin with them.
  const named = new Set();
  for (const label of document.querySelectorAll("label[for]")) {
    const box = document.getElementById(label.htmlFor);
    if (!box?.matches(".md-nav__toggle") || named.has(box)) continue;
    named.add(box);
    box.setAttribute("aria-label", label.textContent.trim());
  }
}

let waiting = 0;
function soon() {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => {
    nameFrames();
    nameControls();
  });
}

pressMenu();
new ResizeObserver(soon).observe(document.body);
// Folds and tabs that open, and what the theme adds after the page has loaded.
document.addEventListener("toggle", soon, true);
document.addEventListener("change", soon, true);
new MutationObserver(soon).observe(document.body, { childList: true, subtree: true });
document.fonts?.ready.then(soon);
soon();
