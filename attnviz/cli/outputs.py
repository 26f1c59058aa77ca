"""Which outputs were asked for: their formats, and where each goes."""

import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnviz.errors import RequestError
from attnviz.files import check_output, kind_at
from attnviz.render import FORMATS, Format, format_of

STDOUT = Path("-")
TERMINAL = "terminal"
PLACES = ("n", "layer", "head")
"""What may stand in braces in a file's name, to write a file for each: the input line from 1, a layer, a head."""


@dataclass(frozen=True)
class Output:
    """One output: a format, and the file or files it goes to."""

    format: Format | None
    """None for the terminal's own view."""
    path: Path
    """`-` for standard output; `{n}`, `{layer}` and `{head}` in its name write one file each."""

    @property
    def holds_numbers(self) -> bool:
        """Whether machines read it, rather than people."""
        return self.format is not None and self.format.holds == "numbers"

    @property
    def takes_several(self) -> bool:
        """Whether the results of several texts may go into it."""
        return self.format is None or self.format.several or "n" in self.places

    @property
    def places(self) -> frozenset[str]:
        """Which of `PLACES` its name holds."""
        return frozenset(place for place in PLACES if f"{{{place}}}" in str(self.path))

    def file_for(self, values: Mapping[str, object]) -> Path:
        """The path with the values put into their places.

        >>> Output(None, Path("p/{layer}.{head}.png")).file_for({"layer": 5, "head": 3}).name
        '5.3.png'
        """
        return Path(re.sub(r"\{(n|layer|head)\}", lambda match: str(values[match[1]]), str(self.path)))


def parse_outputs(
    paths: Sequence[Path],
    format_name: str | None,
    sources: Sequence[Path],
    *,
    places: Collection[str] = PLACES,
    formats: Collection[str] = tuple(FORMATS),
) -> list[Output]:
    """The outputs asked for; the terminal where none are.

    Args:
        paths: what came with -o.
        format_name: what came with --format, for standard output and for files whose suffix says nothing.
        sources: the files that are read, which no output may be.
        places: which of `PLACES` mean something for this command.
        formats: which of `FORMATS` the command's result can have.

    Raises:
        RequestError: a format is unknown or has no use, or a path will not do.
        AttnvizError: a path cannot be written to.
    """
    wanted = list(paths) or [STDOUT]
    for path in wanted:
        for name in re.findall(r"\{(\w+)\}", str(path)):
            if name not in places:
                there = ", ".join(f"{{{place}}}" for place in places) or "no such place in names here"
                raise RequestError(f"output {path}: {{{name}}} stands for nothing; there is {there}")
    if len({path if path == STDOUT else os.path.realpath(path) for path in wanted}) < len(wanted):
        raise RequestError("the same output is asked for twice")
    by_name = [path for path in wanted if path == STDOUT or path.suffix.lstrip(".").lower() not in FORMATS]
    if format_name is not None and not by_name:
        raise RequestError(f"--format {format_name} has no use here: each output has its format by its suffix")
    outputs = [Output(_format(path, format_name if path in by_name else None), path) for path in wanted]
    for output in outputs:
        if output.format is not None and output.format.name not in formats:
            raise RequestError(f"this has no {output.format.name}: choose one of {', '.join(formats)}")
        _check(output, sources)
    return outputs


def refuse_several(n_texts: int, outputs: Sequence[Output], what: str = "sentences") -> None:
    """See that the results of so many texts may go into each output; `what` they are called.

    Raises:
        RequestError: one of them takes a single text.
    """
    for output in outputs:
        if n_texts > 1 and not output.takes_several and output.format is not None:
            name = output.format.name
            raise RequestError(
                f"{n_texts} {what} cannot go into one {name}: use jsonl, or a name with {{n}} for a file each,"
                f" such as -o '{{n}}.{name}'"
            )


def _format(path: Path, format_name: str | None) -> Format | None:
    if path == STDOUT:
        return FORMATS.get(format_name or TERMINAL)
    if format_name == TERMINAL:
        raise RequestError(f"--format {TERMINAL} is for standard output only, not for {path}: use txt")
    return FORMATS[format_name] if format_name else format_of(path)


def _check(output: Output, sources: Sequence[Path]) -> None:
    if output.path == STDOUT:
        if output.format is not None and output.format.binary and sys.stdout.isatty():
            raise RequestError(f"{output.format.name} is not written to a terminal: name a file with -o")
        return
    if output.places:
        folder = output.path.parent  # the last folder of such a name is made when the first file is
        check_output(folder / "x" if folder.is_dir() else folder)
        return
    check_output(output.path)
    if kind_at(output.path) == "file":
        for source in sources:
            if kind_at(source) == "file" and output.path.samefile(source):
                raise RequestError(f"output {output.path} is also the input: name another file")
