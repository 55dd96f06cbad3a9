"""Bind the book to its library: make sure that everything a page shows has run.

A page passes through these steps, in this order:

1. read: ``page`` reads its Markdown once, for all other modules.
2. audit: ``audit`` renders it, and checks that what is shown is what was read: code,
   listings (``listings``), ``numbers`` in the prose, ``names`` of this project, and
   ``shapes`` in diagrams, by a ``tracing`` of the library.
3. run: ``evidence`` runs each chain of its blocks, in the fresh state of ``running``,
   and keeps what was printed, which lines ran, and what was drawn.
4. compare: ``outputs`` compares what was printed as numbers, and writes it;
   ``evidence`` compares lines with listings, and pictures (``running.figures``).
5. report: ``check`` gathers the problems for ``make page``, ``pytest_plugin`` for
   pytest. ``chapter`` starts a chapter, and says what it lacks.

``drawing`` puts formulas, diagrams and figures into the site, ``wayfinding`` links
terms, chapters and the reference, and ``publishing`` finishes the site. ``environment``
makes ``.venv``.
"""
