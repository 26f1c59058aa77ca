"""What stands above the panels: the caption, the range of the values and how to read the cells."""

from collections.abc import Iterable, Sequence

import numpy as np
from rich.cells import cell_len
from rich.segment import Segment

from attnviz.render.digits import one_of
from attnviz.render.labels import elide
from attnviz.render.panels import Board, Panel
from attnviz.render.scale import DEFAULT_SCALE, MINUS, brief, ends_of, quantity, range_of, ticks, value_at
from attnviz.render.terminal_cells import Pen, color_bar, no_value_cell
from attnviz.render.terminal_lines import BOLD, Line, line_width, text_line, wrapped
from attnviz.render.terminal_panels import Mode, digits
from attnviz.render.terminal_style import TerminalStyle
from attnviz.translation import Say

_BAR = 32
_KEEP = "\N{NO-BREAK SPACE}"
"""Between words that stay on one line."""


def heading(board: Board, panels: Sequence[Panel], facts: Iterable[str], style: TerminalStyle) -> list[Line]:
    """The caption, cut where it is longer than two lines, what the board's range and `facts` are, and a blank line.

    Args:
        board: what is drawn.
        panels: those of its panels that have the board's range.
        facts: how to read them.
        style: how they are drawn.
    """
    caption = prose(elide(style.own(board.caption), 2 * style.columns, style.signs.ellipsis), style, bold=True)
    if board.groups and not panels:
        return [*caption, []]
    return [*caption, *legend(panels, facts, Pen(style, board.range, board.scale)), []]


def legend(panels: Sequence[Panel], facts: Iterable[str], pen: Pen) -> list[Line]:
    """The colour range of some panels, in colours or in words, and how to read them."""
    style = pen.style
    missing = any(not np.isfinite(panel.values).all() for panel in panels)
    if style.color:
        scale = [] if pen.scale == DEFAULT_SCALE else [style.own(range_of(pen.scale, pen.span, style.say))]
        return [*_bar_lines(pen, missing=missing), *prose("; ".join([*scale, *facts]), style)]
    first = style.own(" ".join(filter(None, (quantity(pen.span, style.say), _ends(pen)))))
    no_number = style.own(style.say("is not a number"))
    last = [f"?{_KEEP}{no_number}"] if missing else []
    return prose("; ".join([first, *facts, *last]), style)


def _ends(pen: Pen) -> str:
    say, top = pen.style.say, f"{pen.span.top:g}"
    return say("{first} to {last}", first=0, last=top) if pen.span.of_weights else ends_of(pen.span, say)


def _bar_lines(pen: Pen, *, missing: bool) -> list[Line]:
    style = pen.style
    (_, first), *_, (_, last) = ticks(pen.scale, pen.span, style.say)
    what = elide(style.own(quantity(pen.span, style.say)), style.columns // 2, style.signs.ellipsis)
    before, after = style.own(" ".join(filter(None, (what, first)))) + " ", f" {style.own(last)}"
    cells = max(1, min(_BAR, style.columns - cell_len(before) - cell_len(after)))
    bar: Line = [Segment(before), *color_bar(pen.tints, cells), Segment(after)]
    no_number = style.say("not a number")
    sign: Line = [no_value_cell(pen.tints), Segment(f" {style.own(no_number)}")]
    if not missing:
        return [bar]
    one: Line = [*bar, Segment("   "), *sign]
    return [one] if line_width(one) <= style.columns else [bar, sign]


def prose(text: str, style: TerminalStyle, *, bold: bool = False) -> list[Line]:
    """`text` on as many lines as it needs."""
    words = [word.replace(_KEEP, " ") for word in text.split(" ") if word]
    return [text_line(line, BOLD if bold and style.color else None) for line in wrapped(words, style.columns)]


def text_lines(text: Iterable[str], style: TerminalStyle) -> list[Line]:
    """The prose of a group, each of its lines on as many as it needs; an empty one is a blank line."""
    return [line for one in text for line in prose(style.prose(one), style) or [[]]]


def axes_facts(panel: Panel, style: TerminalStyle) -> list[str]:
    """What the rows and columns are, where they have names."""
    say = style.say
    named = ((say("rows"), panel.rows.name), (say("columns"), panel.columns.name))
    said = ", ".join(f"{style.own(which)}:{_KEEP}{style.own(name)}" for which, name in named if name)
    return [said] if said else []


def pooled_facts(panels: Sequence[Panel], style: TerminalStyle) -> list[str]:
    """That cells stand for several tokens, where they do."""
    steps = sorted({(panel.rows.step, panel.columns.step) for panel in panels})
    if all(step == (1, 1) for step in steps):
        return []
    either = style.say("or")
    sizes = f" {either} ".join(f"{rows} × {columns}" for rows, columns in steps)
    if panels[0].pool == "max":
        return [style.own(style.say("each cell is the largest weight of {sizes} tokens", sizes=sizes))]
    return [style.own(style.say("each cell is the mean of {sizes} tokens", sizes=sizes))]


def cell_facts(panels: Sequence[Panel], mode: Mode, pen: Pen) -> list[str]:
    """How to read the cells of a mode."""
    style = pen.style
    if mode is Mode.FINE or (mode is Mode.WIDE and style.color):
        return [] if style.color else [_shades_fact(pen)]
    if not pen.span.of_weights:
        return []
    facts = [] if style.color else _digit_facts(panels, digits(mode, style), pen.span.top, style)
    blank = style.own(style.say("blank is exactly 0"))
    return [*facts, blank] if any((panel.values == 0).any() for panel in panels) else facts


def _digit_facts(panels: Sequence[Panel], precision: int, top: float, style: TerminalStyle) -> list[str]:
    half = 0.5 * 10.0**-precision  # of the last digit
    example = f"{0.2143:.{precision}f}"
    say = style.say
    facts = [say("{sign} means {number}", sign=example[2:], number=example)]
    if top <= 1 and any((panel.values >= 1 - half).any() for panel in panels):
        facts.append(say("{sign} means {number}", sign=one_of(precision), number=1))
    if any(((panel.values > 0) & (panel.values <= half)).any() for panel in panels):
        facts.append(say("{sign} is below {number}", sign=style.signs.speck, number=format(half, "g")))
    return [style.own(fact).replace(" ", _KEEP) for fact in facts]


def _shades_fact(pen: Pen) -> str:
    signs, meaning, say = pen.style.signs, _meaning(pen), pen.style.say
    if not pen.span.signed:
        ends = [brief(value_at(end, pen.span, pen.scale), 4) for end in [*signs.steps, 1.0]]
        blank = pen.style.own(say("blank below"))
        return f"{meaning}{blank}{_KEEP}{ends[0]}, {_shade_list(signs.shades, ends, say)}"
    sizes = [0.5 + end / 2 for end in [*signs.sizes, 1.0]]
    above, below = (
        [brief(value_at(0.5 + sign * (share - 0.5), pen.span, pen.scale), 4) for share in sizes] for sign in (1, -1)
    )
    middle = say("blank from {first} to {last}", first=below[0], last=above[0]).replace(" ", _KEEP)
    middle = middle.replace(_KEEP, " ", 1)  # only the numbers stay together
    sides = (say("above"), _shade_list(signs.above, above, say)), (say("below"), _shade_list(signs.below, below, say))
    lists = ", ".join(f"{side}: {listed}" for side, listed in sides)
    return f"{meaning}{middle}, {lists}".replace(MINUS, signs.minus)


def _shade_list(shades: str, ends: Sequence[str], say: Say) -> str:
    pairs = zip(shades[1:], ends[1:], strict=True)
    return ", ".join(say("{sign} to {number}", sign=shade, number=end).replace(" ", _KEEP) for shade, end in pairs)


def _meaning(pen: Pen) -> str:
    """What comes before the list of shades."""
    if pen.scale == DEFAULT_SCALE:
        return ""
    said = [pen.style.say("{scale} scale", scale=pen.scale), *_shares(pen)]
    return pen.style.own(", ".join(said)) + ": "


def _shares(pen: Pen) -> list[str]:
    """What the shades are shares of, in scales that have no range of their own."""
    say, signed = pen.style.say, pen.span.signed
    if pen.scale == "row":
        most = say("as shares of each row's largest magnitude")
        return [most if signed else say("as shares of each row's maximum")]
    if pen.scale != "rank":
        return []
    if signed:
        return [say("as shares of the panel's magnitudes in order")]
    weights = say("as shares of the panel's weights in order")
    return [weights if pen.span.of_weights else say("as shares of the panel's values in order")]
