"""HeadTable: the measures of every head, and which heads have the most of one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attnviz.errors import RequestError
from attnviz.maps import Head, Kind, Stack
from attnviz.measures.table import measure

SINK_THRESHOLD = 0.3
"""ε of Gu et al. 2025."""


@dataclass(frozen=True)
class HeadTable:
    """Measures of the heads of one stack."""

    stack: Stack
    kind: Kind
    layers: tuple[int, ...]
    heads: tuple[Head, ...]
    """Every head that some layer has."""
    values: Mapping[str, npt.NDArray[np.float64]]
    """By the measure's name: [layer, head], NaN where a head is not there or none of its rows counts."""
    lacking: Mapping[str, str]
    """Measures that were asked for and that these maps do not have, with the reason."""
    n_texts: int
    n_rows: int
    """Rows seen of each head, over all texts."""
    left_out: npt.NDArray[np.int64]
    """[layer, head]: rows that attend to nothing or hold what is no number, and count in no measure."""
    n_compared: int
    """Rows of each head that were compared with those of the others, where that was asked."""

    def notes(self) -> tuple[str, ...]:
        """What the reader should know: which measures are not there, and which rows do not count."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.lacking.items():
            by_reason.setdefault(reason, []).append(name)
        lines = [f"without {', '.join(names)}: {reason}" for reason, names in by_reason.items()]
        if count := int(self.left_out.sum()):
            total = self.left_out.size * self.n_rows
            lines.append(
                f"{count} of {total} rows attend to nothing or hold what is no number: they count in no measure"
            )
        if "divergence" in self.values and self.n_compared < self.n_rows:
            lines.append(f"divergence is of {self.n_compared} of {self.n_rows} rows: --every-row compares them all")
        return tuple(lines)


class RankedHead(NamedTuple):
    """A head and its measure."""

    layer: int
    head: Head
    value: float


def rank(table: HeadTable, by: str, top: int | None = None, *, ascending: bool = False) -> tuple[RankedHead, ...]:
    """The heads in the order of a measure, the most of it first.

    Heads of equal value keep the order of layers and heads; those without a value are left out.

    Args:
        table: measures of heads.
        by: the name of one of them.
        top: how many; all unless given.
        ascending: the least first.

    Raises:
        RequestError: there is no such measure here, or `top` is below 1.
    """
    title = measure(by).name
    if title not in table.values:
        reason = table.lacking.get(title, "it was not measured")
        others = f"; there is {', '.join(table.values)}" if table.values else ""
        raise RequestError(f"no {title} here: {reason}{others}")
    if top is not None and top < 1:
        raise RequestError(f"--top must be at least 1, got {top}")
    values = table.values[title].ravel()
    order = np.argsort(values if ascending else -values, kind="stable")  # NaN comes last in either order
    n_heads = len(table.heads)
    there = order[: np.isfinite(values).sum()][:top].tolist()
    return tuple(RankedHead(table.layers[i // n_heads], table.heads[i % n_heads], float(values[i])) for i in there)


def sink_rate(table: HeadTable, threshold: float = SINK_THRESHOLD) -> float:
    """The share of heads whose α₀ is above `threshold`: 1 / (L H) · Σ 1[α₀ > ε], in 0..1.

    Source: Gu et al. 2025, "When Attention Sink Emerges in Language Models", with ε = 0.3 on texts of 64 tokens;
    over several texts this takes the mean α₀ of a head, not the mean of the comparisons.

    Raises:
        RequestError: `sink` was not measured.
    """
    values = [one.value for one in rank(table, "sink")]
    return sum(value > threshold for value in values) / max(1, len(values))


def head_rows(table: HeadTable) -> list[dict[str, Any]]:
    """One row for each head that is there: `stack`, `kind`, `layer`, `head`, and each measure by its name.

    A value that is not there is None.
    """
    return [
        {
            "stack": table.stack, "kind": table.kind, "layer": layer, "head": head,
            **{name: _number(values[i, h]) for name, values in table.values.items()},
        }
        for i, layer in enumerate(table.layers)
        for h, head in enumerate(table.heads)
        if any(np.isfinite(values[i, h]) for values in table.values.values()) or table.left_out[i, h]
    ]  # fmt: skip


def table_fields(table: HeadTable) -> dict[str, Any]:
    """The table for JSON, under names that stay.

    `stack`, `kind`, `layers`, `heads`, `n_texts`, `n_rows`; `measures`: for each its `unit` and `values`
    [layer][head], None where there is none; `lacking`: why others are not there; `rows_left_out` [layer][head];
    `rows_compared`: those of which divergence is; `sink_rate`, None where `sink` was not measured.
    """
    return {
        "stack": table.stack,
        "kind": table.kind,
        "layers": list(table.layers),
        "heads": list(table.heads),
        "n_texts": table.n_texts,
        "n_rows": table.n_rows,
        "measures": {
            name: {"unit": measure(name).unit, "values": [[_number(value) for value in layer] for layer in values]}
            for name, values in table.values.items()
        },
        "lacking": dict(table.lacking),
        "rows_left_out": table.left_out.tolist(),
        "rows_compared": table.n_compared,
        "sink_rate": sink_rate(table) if "sink" in table.values else None,
    }


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
