"""The Markdown extension that draws a page's formulas and figures."""

from markdown import Extension, Markdown

from bookbinder.drawing.formulas import FormulaTreeprocessor
from bookbinder.drawing.inlined_figures import FigureTreeprocessor


class DrawingExtension(Extension):
    """Draw formulas, and put figures into the page."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register behind the inline patterns, which find formulas and images.

        MkDocs rewrites the addresses of images later (priority 0).
        """
        md.treeprocessors.register(FormulaTreeprocessor(md), "book-formulas", 15)
        md.treeprocessors.register(FigureTreeprocessor(md), "book-figures", 14)


def makeExtension(**kwargs: object) -> DrawingExtension:
    """Return the extension to Markdown, which looks for this name."""
    return DrawingExtension(**kwargs)
