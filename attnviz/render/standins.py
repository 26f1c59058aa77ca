"""Which characters of a board no font at hand has, so that pictures show their codes instead."""

from pathlib import Path

from attnviz.render.lettering import has_glyph
from attnviz.render.panels import Board
from attnviz.tokens import visible


def missing_glyphs(board: Board, font: Path | None = None) -> str:
    """The characters of the board's texts that are drawn as codes such as ⟨65E5⟩, each once, in order.

    Args:
        board: what is drawn.
        font: the font file that is used first.

    Raises:
        RequestError: `font` is no font file that can be used.

    >>> from attnviz.render.ranges import Range
    >>> missing_glyphs(Board("plain letters", (), Range(0.0, 1.0)))
    ''
    """
    texts = {board.caption: None}
    for group in board.groups:
        texts |= dict.fromkeys((group.title, *group.text))
    for panel in board.panels:
        texts |= dict.fromkeys((panel.title, *panel.rows.labels, *panel.columns.labels))
    characters = dict.fromkeys(c for text in texts if not text.isascii() for c in visible(text) if not c.isascii())
    return "".join(c for c in characters if not has_glyph(c, font))
