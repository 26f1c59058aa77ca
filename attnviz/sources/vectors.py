"""Token vectors from text files: csv with one token a row, and the text formats of word2vec and GloVe."""

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from attnviz.errors import RequestError
from attnviz.sources.datafiles import read_text

WHAT = "embeddings file"


@dataclass(frozen=True)
class Vectors:
    """A vector for each token."""

    rows: npt.NDArray[np.float64]
    """[token, d_model], not yet known to be finite."""
    tokens: tuple[str, ...] | None
    """None where the file holds numbers only."""


@dataclass(frozen=True)
class _Line:
    number: int
    cells: Sequence[str]


def read_csv(path: Path) -> Vectors:
    """One token a row: the token and then its numbers, or numbers only.

    A first row without numbers after its first cell is a heading. The first column holds tokens where one of
    them is no number, or where its heading is `token`.

    Raises:
        RequestError: a cell is no number, or the rows differ in length; the message names the line.
        AttnvizError: the file cannot be read.
    """
    reader = csv.reader(io.StringIO(read_text(path, WHAT), newline=""))
    try:
        lines = [_Line(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise RequestError(f"{WHAT} {path}, line {reader.line_num}: {error}") from error
    heading = lines.pop(0).cells if lines and _is_heading(lines[0].cells) else ()
    _refuse_nothing(lines, path)
    _check_widths(lines, path)
    named = bool(heading) and heading[0].strip().lower() in ("token", "tokens")
    with_tokens = named or not all(_is_number(line.cells[0]) for line in lines)
    if with_tokens and len(lines[0].cells) == 1:
        raise RequestError(f"{WHAT} {path} has tokens, but no numbers after them")
    tokens = tuple(line.cells[0] for line in lines) if with_tokens else None
    return Vectors(_numbers(lines, 1 if with_tokens else 0, path), tokens)


def _is_heading(cells: Sequence[str]) -> bool:
    return len(cells) > 1 and not any(_is_number(cell) for cell in cells[1:])


def _check_widths(lines: Sequence[_Line], path: Path) -> None:
    width = len(lines[0].cells)
    for line in lines:
        if len(line.cells) != width:
            there = f"{len(line.cells)} cells, where line {lines[0].number} has {width}"
            raise RequestError(f"{WHAT} {path}, line {line.number}: {there}")


def read_word_vectors(path: Path) -> Vectors:
    """One token a line: the token and then its numbers, with blanks between; the token may hold blanks too.

    word2vec begins with a line of two numbers, how many tokens and numbers a token; GloVe does without.

    Raises:
        RequestError: a line has too few numbers, or there are not as many lines as the first one says.
        AttnvizError: the file cannot be read.
    """
    content = read_text(path, WHAT)
    split = (re.split(r"[ \t]+", line.strip(" \t\r")) for line in content.split("\n"))
    lines = [_Line(number, cells) for number, cells in enumerate(split, 1) if cells != [""]]
    _refuse_nothing(lines, path)
    first = lines[0].cells
    if _is_count(first) and len(lines) > 1 and (len(lines) - 1 == int(first[0]) or len(lines[1].cells) > 2):
        count, width = map(int, lines.pop(0).cells)
        if len(lines) != count:
            raise RequestError(f"{WHAT} {path} says {count} tokens in line 1, but holds {len(lines)}")
    else:
        width = _usual_width(lines)
    for line in lines:
        if len(line.cells) <= width:
            there = f"a token and {width} numbers are expected, got {len(line.cells)} parts"
            raise RequestError(f"{WHAT} {path}, line {line.number}: {there}")
    tokens = tuple(" ".join(line.cells[: len(line.cells) - width]) for line in lines)
    numbers = [_Line(line.number, line.cells[len(line.cells) - width :]) for line in lines]
    return Vectors(_numbers(numbers, 0, path), tokens)


def _is_count(cells: Sequence[str]) -> bool:
    return len(cells) == 2 and all(re.fullmatch(r"[0-9]{1,9}", cell) for cell in cells)


def _usual_width(lines: Sequence[_Line]) -> int:
    """How many numbers most lines end with, each keeping a part for its token; the fewer where two are as usual."""
    counts: Counter[int] = Counter()
    for line in lines:
        numbers = 0
        for cell in reversed(line.cells[1:]):
            if not _is_number(cell):
                break
            numbers += 1
        counts[numbers] += 1
    most = max(counts.values())
    return max(1, min(width for width, times in counts.items() if times == most))


def _refuse_nothing(lines: Sequence[_Line], path: Path) -> None:
    if not lines:
        raise RequestError(f"{WHAT} {path} is empty: it gives no tokens")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(lines: Sequence[_Line], start: int, path: Path) -> npt.NDArray[np.float64]:
    rows = []
    for line in lines:
        try:
            rows.append(np.array([float(cell) for cell in line.cells[start:]]))
        except ValueError:
            bad = next(cell for cell in line.cells[start:] if not _is_number(cell))
            raise RequestError(f"{WHAT} {path}, line {line.number}: {bad!r} is no number") from None
    return np.stack(rows)
