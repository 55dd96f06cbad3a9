// The index of the search weighs more than all else that a page asks for. It comes, and
// what reads it starts, when a reader turns to the search, and not with every page.
// This runs before the theme's own script, which would have both at once.

{
  const wanted = new Promise((turn) => {
    const search = ".md-search, #__search, [for=__search]";
    const turned = ({ target }) => target.closest?.(search) && turn();
    for (const kind of ["focusin", "change", "pointerdown"]) addEventListener(kind, turned, true);
    if (new URLSearchParams(location.search).has("q")) turn();
  });

  const { open, send } = XMLHttpRequest.prototype;
  const waiting = new WeakSet();

  XMLHttpRequest.prototype.open = function (method, address, ...rest) {
    if (/\/search_index\.json$/.test(address)) waiting.add(this);
    // Where Zensical built the book, its search does not hear whoever comes before this.
    if (/\/search\.json$/.test(address)) window.Worker = NativeWorker;
    open.call(this, method, address, ...rest);
  };

  XMLHttpRequest.prototype.send = function (body) {
    if (waiting.has(this)) wanted.then(() => send.call(this, body));
    else send.call(this, body);
  };

  const NativeWorker = Worker;

  // No page from a disk may start a worker that is a file. There the file is a script,
  // whose function the worker is made of: see src/bookbinder/publishing/offline.py.
  async function start(address, ...rest) {
    if (location.protocol !== "file:") return new NativeWorker(address, ...rest);
    const script = Object.assign(document.createElement("script"), { src: address });
    document.head.append(script);
    await new Promise((loaded) => script.addEventListener("load", loaded));
    const code = new Blob([`(${window.__worker})()`], { type: "text/javascript" });
    return new NativeWorker(URL.createObjectURL(code), ...rest);
  }

  window.Worker = class extends EventTarget {
    constructor(...given) {
      super();
      this.started = wanted.then(async () => {
        const worker = await start(...given);
        worker.onmessage = ({ data }) => {
          this.dispatchEvent(new MessageEvent("message", { data }));
          answered = data.asked ?? answered;
          if (entered && entered === answered) document.querySelector(".md-search-result__link")?.click();
        };
        return worker;
      });
      addEventListener("keydown", enter, true);
    }

    async postMessage(...given) {
      (await this.started).postMessage(...given);
    }
  };

  // Enter leads to the best answer to what is written, even if that has yet to come.
  let answered, entered;
  function enter(event) {
    const { key, target } = event;
    if (!target.matches(".md-search__input")) return;
    entered = key === "Enter" && target.value !== answered ? target.value : undefined;
    if (!entered) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }
}
