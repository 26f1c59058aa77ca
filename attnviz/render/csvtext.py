"""CSV for spreadsheets, R and pandas: records in long form, one weight a line; other results a row a line."""

import csv
import io
from typing import BinaryIO

import numpy as np

from attnviz.maps import AttentionMap, AttentionRecord
from attnviz.schema import Table, stacks_of

COLUMNS = ("layer", "head", "query", "key", "query_text", "key_text", "weight")
STACK = "stack"


def write_csv(record: AttentionRecord, stream: BinaryIO) -> None:
    """Write `record` to `stream` as UTF-8: queries and keys by position in the text and as shown, weights as in json.

    A value that is not a number is `nan`. Texts are quoted where they hold commas, quotes or line ends. Where one array
    cannot hold all maps, a first column tells their stack.
    """
    stacks = stacks_of(record.maps)
    columns = COLUMNS if len(stacks) == 1 else (STACK, *COLUMNS)
    stream.write((",".join(columns) + "\n").encode())
    names = {place: f"{stack}," for stack, places in stacks.items() for place in places} if len(stacks) > 1 else {}
    for i, one in enumerate(record.maps):
        _write_map(one, names.get(i, ""), stream)


def _write_map(one: AttentionMap, stack: str, stream: BinaryIO) -> None:
    keys = [f"{one.key.position(j)}," for j in range(len(one.key))]
    texts = [f",{quoted(text)}," for text in one.key.text]
    for start, block in one.blocks():
        digits = "%.17g" if block.dtype == np.float64 else "%.9g"
        for h, head in enumerate(one.heads):
            for i, row in enumerate(block[h].tolist(), start):
                before = f"{stack}{one.layer},{head},{one.query.position(i)},"
                query = quoted(one.query.text[i])
                parts = zip(keys, texts, row, strict=True)
                lines = "".join(f"{before}{key}{query}{text}{digits % weight}\n" for key, text, weight in parts)
                stream.write(lines.encode(errors="backslashreplace"))


def csv_of(table: Table, stream: BinaryIO) -> None:
    """Write a table to `stream` as UTF-8: its columns' names, then its rows; None is empty, numbers read back exactly.

    >>> sheet = io.BytesIO()
    >>> csv_of(Table(("head", "entropy"), (("0.1", 0.5), ("0.2", None))), sheet)
    >>> sheet.getvalue().decode().splitlines()
    ['head,entropy', '0.1,0.5', '0.2,']
    """
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    stream.write(sheet.getvalue().encode(errors="backslashreplace"))


def quoted(text: str) -> str:
    """`text` as a CSV field.

    >>> print(quoted("cat"), quoted('a"b'), quoted("a, b"))
    cat "a""b" "a, b"
    """
    special = set(text) & {",", '"', "\n", "\r"} or text != text.strip() or text == ""
    return '"' + text.replace('"', '""') + '"' if special else text
