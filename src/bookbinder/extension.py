"""The Markdown extension of the book: what it draws, links and typesets.

Both engines that build the book load it by its name.
"""

from markdown import Extension, Markdown

from bookbinder.drawing.formulas import FormulaTreeprocessor
from bookbinder.drawing.inlined_figures import FigureTreeprocessor
from bookbinder.wayfinding.glossary import TermTreeprocessor
from bookbinder.wayfinding.references import NameTreeprocessor, TitlePostprocessor
from bookbinder.wayfinding.typesetting import TypesettingTreeprocessor


class BookExtension(Extension):
    """Draw formulas and figures, link terms and names, and set code and tables."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register behind the inline patterns (20), which find formulas and images.

        MkDocs turns the addresses of images and links into those of the site (0).
        """
        names = NameTreeprocessor(md)
        for processor, name, priority in (
            (FormulaTreeprocessor(md), "book-formulas", 15),
            (FigureTreeprocessor(md), "book-figures", 14),
            (TermTreeprocessor(md), "book-terms", 12),
            (names, "book-names", 11),
            (TypesettingTreeprocessor(md), "book-typesetting", 5),
        ):
            md.treeprocessors.register(processor, name, priority)
        md.postprocessors.register(TitlePostprocessor(md, names), "book-titles", 5)


def makeExtension(**kwargs: object) -> BookExtension:
    """Return the extension to Markdown, which looks for this name."""
    return BookExtension(**kwargs)
