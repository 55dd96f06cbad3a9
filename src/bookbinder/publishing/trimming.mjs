// Called in the folder of a site, with stylesheets of it; prints, as JSON, what of each
// is ever used.

import { globSync, readFileSync } from "node:fs";
import { PurgeCSS } from "purgecss";

const styles = process.argv.slice(2);

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
    ...more,
  });

// Rules first: then it is known which variables are still asked for, in any stylesheet.
const ruled = await purge(styles);
const own = globSync("assets/css/*.css").map((file) => readFileSync(file, "utf-8"));
const asked = [...own, ...ruled.map(({ css }) => css)].join("").matchAll(/var\(\s*(--[\w-]+)/g);
const purged = await purge(
  ruled.map(({ css }) => ({ raw: css })),
  { variables: true, safelist: { variables: [...asked].map(([, name]) => name) } },
);

process.stdout.write(JSON.stringify(Object.fromEntries(purged.map(({ css }, index) => [ruled[index].file, css]))));
