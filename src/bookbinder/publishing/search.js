// The first lines of the theme's search worker, put there by search.py. Words that no page
// has are taken for the nearest that one has, and titles and tags answer first: to read all
// texts takes six times as long.
{
  const [SETUP, READY, QUERY, RESULT] = [0, 1, 2, 3];
  // The index knows none of these words, and the theme takes each for the beginning of
  // another: "in" would be any word like "input". The last of them may still become one.
  const little = /(?<!\S)(?:a|an|and|are|at|by|do|does|for|from|how|i|in|is|it|my|of|on|or|the|to|what|why|with)\s+(?=\S)/gi;

  const { addEventListener, postMessage } = self;
  let setup, words, later, complete, told;
  let asked = "";

  // The number of letters to add, remove, replace or swap; Infinity if more than most.
  function distance(one, other, most) {
    let before = [];
    let above = [...other, ""].map((_, column) => column);
    for (let row = 1; row <= one.length; row++) {
      const here = [row];
      for (let column = 1; column <= other.length; column++) {
        const replaced = above[column - 1] + (one[row - 1] !== other[column - 1]);
        here[column] = Math.min(above[column] + 1, here[column - 1] + 1, replaced);
        if (one[row - 1] === other[column - 2] && one[row - 2] === other[column - 1])
          here[column] = Math.min(here[column], before[column - 2] + 1);
      }
      if (Math.min(...here) > most) return Infinity;
      [before, above] = [above, here];
    }
    return above[other.length];
  }

  // The nearest word, and of equally near ones that of most sections.
  function corrected(word) {
    const written = word.toLowerCase();
    if (word.length < 4 || words.some(([known]) => known.startsWith(written))) return word;
    let [best, least, most] = [word, word.length < 8 ? 1 : 2, 0];
    for (const [known, sections] of words) {
      if (Math.abs(known.length - word.length) > least) continue;
      const far = distance(written, known, least);
      if (far < least || (far === least && sections > most)) [best, least, most] = [known, far, sections];
    }
    return best;
  }

  // A word itself counts more than one that begins with it.
  function asWanted(query) {
    if (/["*~^+]/.test(query)) return query;
    const separator = lunr.tokenizer.separator;
    const wanted = query.replace(little, "").split(separator).filter(Boolean).map(words ? corrected : String);
    return [...wanted.map((word) => `${word}^10`), ...wanted].join(" ");
  }

  function countWords() {
    const { build } = lunr.Builder.prototype;
    lunr.Builder.prototype.build = function () {
      const sections = ({ _index, ...fields }) =>
        Object.values(fields).reduce((sum, found) => sum + Object.keys(found).length, 0);
      words = Object.entries(this.invertedIndex).map(([word, found]) => [word, sections(found)]);
      return build.call(this);
    };
  }

  self.addEventListener = (kind, listen) => {
    const answer = () => listen({ data: { type: QUERY, data: asWanted(asked) } });
    complete = async () => {
      clearTimeout(later);
      const all = setup;
      setup = undefined;
      countWords();
      await listen({ data: all });
      if (asked) answer();
    };
    addEventListener(kind, async ({ data: message }) => {
      if (message.type === SETUP) {
        setup = message;
        const { config, docs } = setup.data;
        const { title, tags } = config.fields;
        const short = { ...setup.data, config: { ...config, fields: { title, tags } } };
        short.docs = docs.map((section) => ({ ...section, text: "" }));
        await listen({ data: { type: SETUP, data: short } });
      } else {
        asked = message.data;
        await answer();
      }
      // Whoever types on is not to wait.
      clearTimeout(later);
      if (setup) later = setTimeout(complete, 250);
    });
  };

  self.postMessage = (message) => {
    if (message.type === READY) {
      if (!told) postMessage(message);
      told = true;
    } else if (message.type === RESULT && setup && asked && !message.data.items.length) complete();
    else postMessage({ ...message, asked, whole: !setup });
  };
}
