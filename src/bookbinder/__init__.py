"""What binds the book to its library: no page shows what has not run.

`audit` and `evidence` judge a page, before and after its blocks ran; `outputs` mends
it, `elsewhere` runs it as if on other machines; `pytest_plugin` and `__main__` call
these. They build on folders, one idea each:

- `installation` makes what the book needs on this machine. It uses nothing but the
  standard library, for nothing is installed yet.
- `reading` takes a page apart: blocks, chains, listings, prose, and its HTML.
- `running` runs blocks, and sees what of them never ran, what they drew, and what they
  left behind.
- `numbers`, `formulas`, `names` and `flows` ask what stands behind the numbers, the
  formulas, the names and the diagrams that a reader meets.
- `drawing` turns formulas, diagrams, figures and the live model into parts of the site,
  by Markdown extensions; `browser` looks at the built site.
- `wayfinding` links terms to the glossary, and chapters and the reference to one
  another, and gives the search what a page says.
- `copying` makes files of listings that run alone.
- `publishing` finishes the built site: notebooks, Markdown, one archive, a printed
  book, and at each page's foot what verified it.
- `mutation` is the proof: it breaks library and pages, and counts who notices.
- `contributing` begins a chapter, and tells what is wrong with a page.
- `hosting` is what the workflows of a public host call.
"""
