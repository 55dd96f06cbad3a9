// What scrolls in its own frame can be reached by the keyboard and has a name, and what
// the theme leaves unnamed gets one. Nothing here is needed to read.

const FRAMES = {
  "div.arithmatex": "Formula, scrolls sideways",
  "figure.diagram": "Diagram, scrolls sideways",
  "figure.figure": "Figure, scrolls sideways",
  ".md-typeset__scrollwrap": "Table, scrolls sideways",
};

function nameFrames() {
  for (const [selector, label] of Object.entries(FRAMES)) {
    for (const frame of document.querySelectorAll(selector)) {
      if (frame.scrollWidth > frame.clientWidth + 1) {
        frame.tabIndex = 0;
        frame.setAttribute("role", "group");
        frame.setAttribute("aria-label", label);
      } else if (frame.hasAttribute("tabindex")) {
        for (const name of ["tabindex", "role", "aria-label"]) frame.removeAttribute(name);
      }
    }
  }
}

function nameLandmarks() {
  document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
  for (const buttons of document.querySelectorAll("nav.md-code__nav")) {
    // A landmark for each block of code would drown the real ones.
    buttons.setAttribute("role", "group");
    buttons.setAttribute("aria-label", "Code");
  }
}

let waiting = 0;
function soon() {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => {
    nameFrames();
    nameLandmarks();
  });
}

new ResizeObserver(soon).observe(document.body);
// Folds and tabs that open, and what the theme adds after the page has loaded.
document.addEventListener("toggle", soon, true);
document.addEventListener("change", soon, true);
new MutationObserver(soon).observe(document.body, { childList: true, subtree: true });
document.fonts?.ready.then(soon);
soon();
