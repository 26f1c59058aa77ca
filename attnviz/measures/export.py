"""Measures as names and values, for files."""

from collections.abc import Sequence
from typing import Any

from attnviz.arrays import Floats
from attnviz.maps import Provenance
from attnviz.measures.heads import HeadTable, RankedHead, head_rows, table_fields
from attnviz.measures.table import measure
from attnviz.schema import Fields, Table

SCHEMA = "attnviz-metrics/1"
"""A change of what a name means is a new number."""


def measures_fields(
    tables: Sequence[HeadTable],
    ranking: Sequence[RankedHead],
    by: str,
    provenance: Provenance,
    notes: Sequence[str],
    *,
    ascending: bool = False,
    rollout: Floats | None = None,
) -> Fields:
    """The measures for json, npz and safetensors.

    `by` and `ranking`, the heads that have most of it, or where `ascending` least; of one table its `stack`,
    `kind`, `layers`, `heads`, `n_texts`, `n_rows`, `lacking`, `rows_left_out`, `rows_compared`, `sink_rate`, `units`,
    and each measure as an array [layer, head] of its own name, and `rollout` [query, key] where it was made; of
    several tables, as encoder-decoders have, all that under `stacks`.
    """
    plain: dict[str, Any] = {
        "schema": SCHEMA,
        "provenance": dict(provenance),
        "notes": list(notes),
        "by": by,
        "ascending": ascending,
        "ranking": [{"layer": one.layer, "head": one.head, "value": one.value} for one in ranking],
    }
    if len(tables) != 1:
        stacks = {"cross" if table.kind == "cross" else table.stack: table_fields(table) for table in tables}
        return Fields({**plain, "stacks": stacks}, {})
    (table,) = tables
    described = table_fields(table)
    described.pop("measures")
    units = {name: measure(name).unit for name in table.values}
    rolled = {} if rollout is None else {"rollout": rollout}
    return Fields({**plain, **described, "units": units}, {**table.values, **rolled})


def measures_table(tables: Sequence[HeadTable]) -> Table:
    """The measures for csv: one row for each head."""
    rows = [row for table in tables for row in head_rows(table)]
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    return Table(columns, [[row.get(name) for name in columns] for row in rows])
