"""What binds the book to its library: no page shows what has not run.

Reading (`pages`, `listings`, `rendering`), judging (`audit`, `figures`), running
(`running`) and mending (`outputs`) are plain functions; `pytest_plugin`, the Markdown
extensions (`formulas`, `diagrams`, `inlining`) and `__main__` only call them.
"""
