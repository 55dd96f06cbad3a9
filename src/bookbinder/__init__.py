"""Bind the book to its library: make sure that everything a page shows has run.

A page passes through these steps, each of which is a module or a folder:

1. scan: `page` reads a page's Markdown once, for all other modules; `listings` finds
   sections of source files.
2. form: `rendering` turns the page into the site's HTML, and `audit` checks everything
   that is shown there; `names` resolves names of this project, `numbers` finds the
   source of numbers in the prose, `diagrams` compares shapes with a traced pass.
3. run: `running` runs the blocks, each in a fresh state; `outputs` compares their
   outputs as numbers, and writes them.
4. evidence: `evidence` checks which lines ran and which figures were drawn.
5. build: `drawing` puts formulas, diagrams and figures into the site; `wayfinding`
   links terms, chapters and the reference.
6. publish: `publishing` adds downloads, and what verified each page.

`pytest_plugin` connects these to pytest and pytest-codeblocks. `check` and `chapter`
are for contributors, `elsewhere` runs everything under other settings, the workflows
call `hosting`, and `environment` makes `.venv`.
"""
