// Copy buttons. What is copied runs: a run that goes on from others comes with them, and
// a listing with all that it needs of the library; so does a run that needs little of it,
// by a second button. A copy begins with lines that say what to install and where it comes
// from. Nothing here is needed to read.

const CONTINUES = "pytest-codeblocks:cont";
const SECONDS = 5;

const LIBRARY = /^\s*(?:from|import) (?:tested_transformer|transformer_book|attention_check)\b/m;

const codeOf = (block) => block.querySelector("pre > code").textContent;

// Before a run that goes on from the one before it, its page has a comment that says so.
function continues(block) {
  let before = block.previousSibling;
  while (before?.nodeType === Node.TEXT_NODE && !before.data.trim()) before = before.previousSibling;
  return before?.nodeType === Node.COMMENT_NODE && before.data.trim() === CONTINUES;
}

// A page of a finished site says what to install, and what its blocks ran with; a preview
// does not know.
const command = document.querySelector(".install > span")?.textContent;
const install = (code) => (command && LIBRARY.test(code) ? `# ${command}\n` : "");

function source(block) {
  if (!block.dataset.torch) return "";
  const address = new URL(`#${block.id}`, location.href);
  return `# ${address} (ran with PyTorch ${block.dataset.torch}; MIT License)\n`;
}

const blocks = (count) => (count === 1 ? "the block" : `the ${count} blocks`);

function run(block, index, runs) {
  let first = index;
  while (first && continues(runs[first])) first -= 1;
  const before = index - first;
  const alone = "alone" in block.dataset ? ", PyTorch alone" : "";
  const code = runs.slice(first, index + 1).map(codeOf).join("\n");
  const offer = {
    label: `${before ? `Copy with ${blocks(before)} before` : "Copy"}${alone}`,
    copied: before ? `Copied with ${blocks(before)} before` : "Copied",
    text: () => install(code) + source(block) + code,
  };
  const all = withAll(block, offer.text, "PyTorch alone");
  return all ? [offer, all] : offer;
}

// The file lies beside the built site. A book that is still being written has none, and
// a page that was opened from a disk may not ask for it.
function withAll(block, shown, label) {
  const address = block.dataset.copy;
  if (!address) return null;
  const offer = { label, copied: "Copied with all it needs" };
  offer.text = async () => {
    const answer = await fetch(address).catch(() => null);
    if (answer?.ok) return answer.text();
    offer.copied = "Copied as shown";
    return shown();
  };
  return offer;
}

function listing(block) {
  const shown = () => codeOf(block);
  const all = withAll(block, shown, "Copy with all it needs");
  return all ?? { label: "Copy", copied: "Copied as shown", text: shown };
}

// Of commands, what one types: neither the prompt nor what was answered.
function commands(block) {
  const lines = codeOf(block).split("\n").filter((line) => line.startsWith("$ "));
  return { label: "Copy", copied: "Copied", text: () => lines.map((line) => `${line.slice(2)}\n`).join("") };
}

const plain = (block) => ({ label: "Copy", copied: "Copied", text: () => codeOf(block) });

const KINDS = {
  ".language-python:not(.doc-signature)": run,
  ".language-py": listing,
  ".language-js": plain,
  ".language-console": commands,
  ".language-toml, .language-yaml, .language-json": plain,
};

async function put(text) {
  if (navigator.clipboard?.write && window.ClipboardItem) {
    // A promise is handed over at once: Safari takes only what comes with the click.
    const blob = Promise.resolve(text).then((words) => new Blob([words], { type: "text/plain" }));
    await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
    return;
  }
  // Where the page did not come by https there is no clipboard but this one.
  const area = document.createElement("textarea");
  area.value = await text;
  area.className = "copy-source";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("the browser does not copy");
}

const told = document.createElement("p");
told.className = "copy-status";
told.setAttribute("role", "status");

function addButton(block, place, offer) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = offer.label;
  let waiting = 0;
  button.addEventListener("click", async () => {
    clearTimeout(waiting);
    try {
      await put(offer.text());
      button.textContent = offer.copied;
    } catch {
      getSelection().selectAllChildren(block.querySelector("pre > code"));
      button.textContent = "Not copied: press Ctrl+C";
    }
    button.focus({ preventScroll: true });
    told.textContent = button.textContent;
    waiting = setTimeout(() => {
      button.textContent = offer.label;
      told.textContent = "";
    }, SECONDS * 1000);
  });
  place.append(button);
}

document.body.append(told);
for (const [kind, offerOf] of Object.entries(KINDS)) {
  const found = [...document.querySelectorAll(`article .highlight:is(${kind})`)];
  found.forEach((block, index) => {
    const place = document.createElement("div");
    place.className = "copies";
    for (const offer of [offerOf(block, index, found)].flat()) addButton(block, place, offer);
    block.append(place);
  });
}
