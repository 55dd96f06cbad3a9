"""Proof by mutation: break the library, break the pages, and count who notices.

- The library: `operators` makes small mistakes in a module, `swapping` puts one into a
  running process, `library` runs the tests that execute its line, by `recording`.
- The pages: `slips` makes mistakes on a page, `formula_slips` those in its formulas,
  both in its `lines`; `judging` asks all that checks a page.
- Both: `forking` runs each in a process of its own, `report` writes what came of it,
  `__main__` is the command behind ``make mutants``.
"""
