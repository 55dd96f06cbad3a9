"""What binds the book to its library: no page shows what has not run.

- Pages: `pages` (with `syntax`, `inert`, `callouts`), `listings` and `rendering` read
  them, `audit`, `figures` and `evidence` judge, `running` runs, `outputs` mends;
  `pytest_plugin` and `__main__` call these.
- Numbers: `numbers` asks what stands behind each number that a reader meets;
  `numerals` reads them, `equations` computes formulas, `facts` are the numbers of
  runs, `bindings` tie prose to values, `works` are the works cited.
- The site: `formulas` (with `katex`), `diagrams` and `inlining` (figures) are Markdown
  extensions, `drawing` draws diagrams, `undrawn`, `palette` and `svg` serve all three;
  `vendor` copies what the site serves; `browsing` and `chromium` look at it.
- The setup: `bootstrap`, `environment`, `installing`, `reasons`. They use nothing but
  the standard library, for nothing is installed yet.
- What a block may do: `staying` keeps it from leaving the run and from changing it for
  others, `halves` finds the parts of a line that never run.
- Proof: `mutation` breaks library and pages and counts who notices; `places` runs every
  block elsewhere.
"""
