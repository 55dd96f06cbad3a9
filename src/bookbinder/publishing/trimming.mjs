// Called in the folder of a site, with stylesheets of it; prints, as JSON, what of each
// is ever used.

import { globSync, readFileSync } from "node:fs";
import { PurgeCSS } from "purgecss";

const styles = process.argv.slice(2);
const read = (file) => readFileSync(file, "utf-8");

// Some rules cost every page more than they give. The theme has them tried on each stroke
// of each formula: for rows of twenty tabs, where none here has so many, and, at the start
// and at each change of the palette, against a fade that lasts a quarter of a second.
const rows = globSync("**/*.html").flatMap((file) => [...read(file).matchAll(/ data-tabs="\d+:(\d+)"/g)]);
const most = Math.max(0, ...rows.map(([, tabs]) => Number(tabs)));
const withoutTabs = (css) =>
  css.replace(/\.tabbed-[^{},]*:nth-child\((\d+)\)/g, (tabs, n) => (n > most ? ".more-tabs-than-any-row" : tabs));
const blocklist = ["data-md-color-switching"];

// What stands in a tag of a page, and every word of a script: a script makes tags of it.
// The theme's knows of writing from right to left, which no page of the book is.
const inTags = (html) => [
  ...new Set((html.match(/<[a-z][^>]*>/gi) ?? []).flatMap((tag) => tag.match(/[\w-]+/g))),
];
const words = (script) => [...new Set(script.match(/[\w-]+/g))].filter((word) => word !== "rtl");

const purge = (css, more) =>
  new PurgeCSS().purge({
    content: ["**/*.html", "assets/javascripts/bundle*.js", "assets/js/**/*.js"],
    css,
    extractors: [
      { extractor: inTags, extensions: ["html"] },
      { extractor: words, extensions: ["js"] },
    ],
    keyframes: true,
    blocklist,
    ...more,
  });

// Rules first: then it is known which variables are still asked for, in any stylesheet.
const ruled = await purge(styles.map((file) => ({ raw: withoutTabs(read(file)) })));
const own = globSync("assets/css/*.css").map(read);
const asked = [...own, ...ruled.map(({ css }) => css)].join("").matchAll(/var\(\s*(--[\w-]+)/g);
const purged = await purge(
  ruled.map(({ css }) => ({ raw: css })),
  { variables: true, safelist: { variables: [...asked].map(([, name]) => name) } },
);

process.stdout.write(JSON.stringify(Object.fromEntries(purged.map(({ css }, index) => [styles[index], css]))));
