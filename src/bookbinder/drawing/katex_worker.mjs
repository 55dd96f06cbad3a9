// Draws formulas: one JSON request a line on stdin, one JSON answer a line on stdout.

import readline from "node:readline";
import katex from "katex";

const options = {
  output: "htmlAndMathml",
  throwOnError: true,
  strict: "error",
  // KaTeX would draw what it does not trust in red, and go on.
  trust: ({ command }) => {
    throw new katex.ParseError(`${command} is not trusted: write it in Markdown`);
  },
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { tex, display } = JSON.parse(line);
  let answer;
  try {
    answer = { html: katex.renderToString(tex, { ...options, displayMode: display }) };
  } catch (error) {
    if (!(error instanceof katex.ParseError)) throw error;
    const where = error.position === undefined ? "" : ` at character ${error.position + 1}`;
    answer = { error: error.rawMessage + where };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
