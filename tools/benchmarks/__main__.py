"""Measure attnviz against its budgets, each figure a ratio within one run: two things take turns.

Printed are the median of the ratios of each turn and both medians. Absolute times say little, on a busy machine
nothing. The development set must be installed: torch, transformers and matplotlib are what some rows compare with. Rows
of SmolLM2-135M need its checkpoint: python -m tools.benchmarks.checkpoint FILE.gguf FOLDER writes one.
"""

import argparse
import os
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path

from tools.benchmarks import attention, files, long, pictures, running, smollm2, start
from tools.benchmarks.rows import Row

PACKAGES = ("numpy", "typer", "rich", "pillow", "matplotlib", "torch", "transformers")
HEADING = "| what | attnviz | against | ratio | budget | kept |\n| --- | --- | --- | --- | --- | --- |"


def every_row(folder: Path, checkpoint: Path | None) -> list[Row]:
    """All that can be measured.

    Args:
        folder: for files on the way.
        checkpoint: of SmolLM2-135M, where there is one.
    """
    return [
        *start.rows(folder),
        *pictures.rows(folder),
        *files.rows(folder),
        *running.rows(),
        *attention.rows(),
        *long.rows(),
        *([] if checkpoint is None else smollm2.rows(checkpoint, folder)),
    ]


def machine() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {packages}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="tools/bench.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="rows whose name or comparison holds this word")
    parser.add_argument("--list", action="store_true", help="name the rows and leave")
    parser.add_argument("--smollm2", type=Path, help="a folder with SmolLM2-135M")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = every_row(Path(name), chosen.smollm2 and chosen.smollm2.resolve())
        wanted = [row for row in rows if chosen.only in f"{row.name} {row.against}"]
        if chosen.list:
            print(*(f"{row.name} | {row.against}" for row in wanted), sep="\n")
            return
        print(f"{machine()}\n\n{HEADING}")
        for row in wanted:
            for line in row.lines(chosen.rounds):
                print(line, flush=True)


if __name__ == "__main__":
    main()
