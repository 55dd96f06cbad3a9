"""What binds the book to its library: what a page shows has run.

A page goes one way, and each step is a module or a folder:

1. scan: `page` reads a page's Markdown once, for everyone; `listings` finds sections of
   source files.
2. form: `rendering` turns the page into the site's HTML, and `audit` asks that all that
   is shown there is known; `names` resolves what is ours, `numbers` finds the strong
   numbers of the prose, `diagrams` compares shapes with a traced pass.
3. run: `running` runs the blocks, each in a fresh state; `outputs` compares what they
   print, as numbers, and writes it.
4. evidence: `evidence` asks what ran, and which figures were drawn.
5. build: `drawing` makes formulas, diagrams and figures part of the site; `wayfinding`
   links terms, chapters and the reference.
6. publish: `publishing` adds what readers take away, and what verified each page.

`pytest_plugin` binds these to pytest and pytest-codeblocks. `check` and `chapter` are a
contributor's, `elsewhere` runs it all under other settings, `hosting` is called by the
workflows, and `environment` makes `.venv`.
"""
