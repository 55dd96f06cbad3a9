// Ask the search worker of a site, without a browser: node searching.js SITE, with queries
// as JSON on stdin. Prints, for each, the pages that were found, in order.
const { readdirSync, readFileSync } = require("node:fs");

const [site] = process.argv.slice(2);
const folder = `${site}/assets/javascripts/workers/`;
const [file] = readdirSync(folder).filter((name) => name.endsWith(".js"));

const page = new EventTarget();
let heard;
globalThis.self = globalThis;
globalThis.addEventListener = page.addEventListener.bind(page);
globalThis.postMessage = (message) => heard(message);
(0, eval)(readFileSync(folder + file, "utf8"));

const send = (data, enough) =>
  new Promise((resolve) => {
    heard = (message) => enough(message) && resolve(message);
    page.dispatchEvent(Object.assign(new Event("message"), { data }));
  });

(async () => {
  const index = JSON.parse(readFileSync(`${site}/search/search_index.json`, "utf8"));
  await send({ type: 0, data: { ...index, options: { suggest: true } } }, () => true);
  const found = {};
  for (const query of JSON.parse(readFileSync(0, "utf8"))) {
    const { data } = await send({ type: 2, data: query }, ({ whole }) => whole);
    found[query] = data.items.map(([{ location }]) => location.split("#")[0]);
  }
  console.log(JSON.stringify(found));
})();
