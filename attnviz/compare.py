"""Whether attention changed: two records head by head, the most changed first."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from attnviz.align import Alignment, align, describe_alignment
from attnviz.arrays import Floats
from attnviz.collect import collect
from attnviz.errors import RequestError
from attnviz.maps import AttentionMap, AttentionRecord, Head, Kind, Stack, Weights, block_ranges
from attnviz.measures.collector import MeasureCollector
from attnviz.measures.divergence import js_divergence
from attnviz.measures.heads import HeadTable, table_fields

Place: TypeAlias = tuple[Stack, Kind, int]
"""Where a map is in a model: stack, kind, layer."""
By: TypeAlias = Literal["largest", "mean", "divergence"]


@dataclass(frozen=True)
class DifferenceWeights:
    """Second minus first, row by row: −1 to 1, above 0 where the second gives more weight."""

    first: Weights
    second: Weights

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries, keys."""
        return max(self.first.shape, self.second.shape)

    def rows(self, start: int, stop: int) -> Floats:
        """The difference of rows `start` to `stop`; 0 where neither is a number."""
        a, b = self.first.rows(start, stop), self.second.rows(start, stop)
        with np.errstate(invalid="ignore"):
            return np.where(_alike(a, b), 0, b - a)


@dataclass(frozen=True)
class Pair:
    """Two maps of the same place, cut down to the heads and tokens that both have; either may have one head alone."""

    first: AttentionMap
    second: AttentionMap
    queries: Alignment
    keys: Alignment

    @property
    def place(self) -> Place:
        """Where in the model."""
        return self.second.stack, self.second.kind, self.second.layer

    @property
    def heads(self) -> tuple[Head, ...]:
        """The heads of the one that has more."""
        return max(self.first.heads, self.second.heads, key=len)

    def difference(self) -> AttentionMap:
        """The map of second minus first."""
        weights = DifferenceWeights(self.first.weights, self.second.weights)
        return replace(self.second, heads=self.heads, weights=weights, output=None)


@dataclass(frozen=True)
class HeadChange:
    """How much one head changed."""

    place: Place
    head: Head
    heads: tuple[Head, Head]
    """In A and in B: not the same where a lone head is compared with several."""
    largest: float
    """max |B − A|, over the weights that are numbers in both."""
    query: tuple[int, int]
    """Where that is: the position in A and in B. Where `unlike` is not 0, where the first such weight is."""
    key: tuple[int, int]
    weights: tuple[float, float]
    """What A and B have there."""
    mean: float
    """mean |B − A|, over the weights that are numbers in both; NaN where there are none."""
    divergence: float
    """Mean over the rows of their Jensen-Shannon divergence in nats; NaN where no row is of numbers in both."""
    rows: npt.NDArray[np.float64]
    """[query]: each row's divergence, NaN where a row is not of numbers."""
    unlike: int
    """Weights that are a number in A or in B and not in the other."""

    def exceeds(self, tolerance: float) -> bool:
        """Whether the head changed by more than `tolerance`; a number beside none always is more."""
        return self.unlike > 0 or self.largest > tolerance


@dataclass(frozen=True)
class Comparison:
    """Two records, head by head."""

    changes: tuple[HeadChange, ...]
    """The largest change first."""
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]
    """What was left out, and what was aligned."""
    measures: tuple[tuple[HeadTable, ...], tuple[HeadTable, ...]] | None
    """Of A and of B whole, where their tokens differ."""

    @property
    def same_tokens(self) -> bool:
        """Whether A and B are of the same tokens."""
        return all(pair.queries.same and pair.keys.same for pair in self.pairs)

    def ranked(self, by: By = "largest") -> tuple[HeadChange, ...]:
        """The most changed heads first; before all others those with weights that are numbers in one record only."""
        return tuple(sorted(self.changes, key=lambda one: (not one.unlike, -_number_or(getattr(one, by), -1.0))))

    def exceeds(self, tolerance: float) -> tuple[HeadChange, ...]:
        """The heads that changed by more than `tolerance`, each with the place of its largest change.

        Raises:
            RequestError: the tolerance is no number of 0 or more.
        """
        check_tolerance(tolerance)
        return tuple(one for one in self.changes if one.exceeds(tolerance))

    def difference(self, change: HeadChange) -> AttentionMap:
        """The map [1 head] of B minus A of a head, in −1..1."""
        pair = next(pair for pair in self.pairs if pair.place == change.place)
        return pair.difference().pick(heads=[pair.heads.index(change.head)])


def check_tolerance(tolerance: float) -> None:
    """See that a tolerance is one.

    Raises:
        RequestError: it is no number of 0 or more.
    """
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise RequestError(f"--tolerance must be a number of 0 or more, got {tolerance}")


def compare(first: AttentionRecord, second: AttentionRecord) -> Comparison:
    """Compare record A with record B.

    Layers and heads are compared by their numbers, tokens that are not all the same where they agree in order. Of two
    records of one stack each it does not matter which: a file may not say that it is of a decoder. The
    full-width head alone, or the one head of a model of one, is compared with every head of the other record.

    Raises:
        RequestError: the records have no layers, heads or tokens in common.
    """
    sides = _by_place(first, second)
    common = [place for place in sides[0] if place in sides[1]]
    if not common:
        layers = [", ".join(_named(place) for place in side) or "nothing" for side in sides]
        raise RequestError(f"there is nothing to compare: A holds {layers[0]}, and B holds {layers[1]}")
    notes = [
        f"only {name} has {', '.join(left)}"
        for name, own, other in (("A", sides[0], sides[1]), ("B", sides[1], sides[0]))
        if (left := [_named(place) for place in own if place not in other])
    ]
    lone = _is_lone(first) or _is_lone(second)
    pairs: list[Pair] = []
    for place in common:
        pair, said = _pair(sides[0][place], sides[1][place], lone=lone)
        notes += [line for line in said if line not in notes]
        if pair is not None:
            pairs.append(pair)
    if not pairs:
        raise RequestError(f"there is nothing to compare: {'; '.join(notes)}")
    changes = [change for pair in pairs for change in _changes(pair)]
    whole = Comparison(tuple(changes), tuple(pairs), tuple(notes), None)
    measures = None if whole.same_tokens else (_measured(first), _measured(second))
    return replace(whole, changes=whole.ranked(), measures=measures)


def _by_place(first: AttentionRecord, second: AttentionRecord) -> list[dict[Place, AttentionMap]]:
    """The maps of each record by their places, where each has but one stack those of B's."""
    sides = [{(one.stack, one.kind, one.layer): one for one in record.maps} for record in (first, second)]
    stacks = [{stack for stack, kind, _ in side if kind == "self"} for side in sides]
    if all(len(some) == 1 for some in stacks):
        (stack,) = stacks[1]
        sides[0] = {
            (stack if kind == "self" else own, kind, layer): one for (own, kind, layer), one in sides[0].items()
        }
    return sides


def _named(place: Place) -> str:
    stack, kind, layer = place
    return f"{'cross ' if kind == 'cross' else 'decoder ' if stack == 'decoder' else ''}layer {layer}"


def _number_or(value: float, other: float) -> float:
    return other if math.isnan(value) else value


def _measured(record: AttentionRecord) -> tuple[HeadTable, ...]:
    collector = MeasureCollector()
    collect(record.maps, [collector])
    return collector.result()


def _is_lone(record: AttentionRecord) -> bool:
    """Whether each layer has but one head, and that is no selection: the full-width one, or all the model has."""
    heads = {one.heads for one in record.maps}
    return heads == {("single",)} or (heads == {(0,)} and record.provenance.get("n_heads") == 1)


def _pair(first: AttentionMap, second: AttentionMap, *, lone: bool) -> tuple[Pair | None, list[str]]:
    """What two maps have in common, None where that is nothing; and what is to be said of it."""
    where, notes = _named((second.stack, second.kind, second.layer)), []
    if lone and len(first.heads) != len(second.heads):
        single, other = ("A", "B") if len(first.heads) < len(second.heads) else ("B", "A")
        notes.append(f"the one head of {single} is compared with each head of {other}")
    else:
        both = [head for head in first.heads if head in second.heads]
        for name, own in (("A", first), ("B", second)):
            if left := [str(head) for head in own.heads if head not in both]:
                notes.append(f"only {name} has head {', '.join(left)}" + ("" if both else f" in {where}"))
        if not both:
            return None, notes
        first, second = (one.pick(heads=[one.heads.index(head) for head in both]) for one in (first, second))
    queries = align(first.query, second.query)
    one_axis = first.key == first.query and second.key == second.query
    keys = queries if one_axis else align(first.key, second.key)
    if not queries.first or not keys.first:
        return None, [*notes, f"no token of {where} is in both A and B"]
    if not queries.same:
        notes.append(describe_alignment(queries, first.query, second.query, "tokens"))
    if not one_axis and not keys.same:
        notes.append(describe_alignment(keys, first.key, second.key, "keys"))
    if not (queries.same and keys.same):
        first = first.pick(queries=queries.first, keys=keys.first)
        second = second.pick(queries=queries.second, keys=keys.second)
    return Pair(first, second, queries, keys), notes


def _alike(a: Floats, b: Floats) -> npt.NDArray[np.bool_]:
    """Where two values are the same, or neither is a number."""
    alike: npt.NDArray[np.bool_] = (a == b) | (np.isnan(a) & np.isnan(b))
    return alike


def _changes(pair: Pair) -> Iterator[HeadChange]:
    """How much each head of a pair changed, in one pass over its rows."""
    folds = [_HeadFold() for _ in pair.heads]
    n_heads, n_queries, n_keys = len(folds), len(pair.second.query), len(pair.second.key)
    for start, stop in block_ranges((2 * n_heads, n_queries, n_keys)):
        a, b = (
            np.broadcast_to(one.rows(start, stop), (n_heads, stop - start, n_keys)).astype(np.float64)
            for one in (pair.first, pair.second)
        )
        for fold, rows_a, rows_b in zip(folds, a, b, strict=True):
            fold.add(start, rows_a, rows_b)
    for i, fold in enumerate(folds):
        heads = [one.heads[i if len(one.heads) > 1 else 0] for one in (pair.first, pair.second)]
        yield fold.change(pair, pair.heads[i], (heads[0], heads[1]))


class _HeadFold:
    """What is known of one head's change after some of its rows."""

    def __init__(self) -> None:
        self.largest, self.total = -1.0, 0.0
        self.place = (0, 0)
        self.weights = (math.nan, math.nan)
        self.compared = self.unlike = 0
        self.rows: list[npt.NDArray[np.float64]] = []

    def add(self, start: int, a: Floats, b: Floats) -> None:
        """Fold in rows [row, key] from `start` on, in float64."""
        with np.errstate(invalid="ignore"):
            gaps = np.where(_alike(a, b), 0.0, np.abs(b - a))
        numbers = np.isfinite(gaps)
        if not numbers.all():
            if not self.unlike:
                self._at(start, int(numbers.argmin()), a, b)
            self.unlike += int((~numbers).sum())
            gaps = np.where(numbers, gaps, -1.0)
        top = int(gaps.argmax())
        if gaps.flat[top] > self.largest:
            self.largest = float(gaps.flat[top])
            if not self.unlike:
                self._at(start, top, a, b)
        self.total += float(gaps.sum(where=numbers))
        self.compared += int(numbers.sum())
        self.rows.append(js_divergence(a, b).astype(np.float64))

    def _at(self, start: int, index: int, a: Floats, b: Floats) -> None:
        row, key = divmod(index, a.shape[1])
        self.place = start + row, key
        self.weights = float(a[row, key]), float(b[row, key])

    def change(self, pair: Pair, head: Head, heads: tuple[Head, Head]) -> HeadChange:
        """The result."""
        query, key = self.place
        rows = np.concatenate(self.rows)
        there = rows[np.isfinite(rows)]
        return HeadChange(
            place=pair.place,
            head=head,
            heads=heads,
            largest=max(self.largest, 0.0),
            query=(pair.queries.first[query], pair.queries.second[query]),
            key=(pair.keys.first[key], pair.keys.second[key]),
            weights=self.weights,
            mean=self.total / self.compared if self.compared else math.nan,
            divergence=float(there.mean()) if there.size else math.nan,
            rows=rows,
            unlike=self.unlike,
        )


def comparison_fields(comparison: Comparison, tolerance: float | None = None) -> dict[str, Any]:
    """The comparison for JSON, under names that stay; a value that is no number is None.

    `same_tokens`; `largest`, `mean` and `divergence`, the largest of any head; `heads`, most changed first: for each
    `stack`, `kind`, `layer`, `head`, `head_a`, `head_b`, `largest` with `query_a`, `key_a`, `query_b`, `key_b`,
    `weight_a`, `weight_b` where that is, `mean`, `divergence`, `row_divergence` [query], `unlike`; `aligned`, where
    tokens differ: for each layer pairs of positions of `queries` and `keys`; `measures`, there too: of `a` and of `b`
    one table for each stack. With a `tolerance` also that, and `exceeds`: how many heads changed by more, and in each
    head `exceeds`.
    """
    fields: dict[str, Any] = {"same_tokens": comparison.same_tokens}
    if tolerance is not None:
        fields |= {"tolerance": tolerance, "exceeds": len(comparison.exceeds(tolerance))}
    for by in ("largest", "mean", "divergence"):
        values = [value for one in comparison.changes if math.isfinite(value := getattr(one, by))]
        fields[by] = max(values, default=None)
    fields["heads"] = [_change_fields(one, tolerance) for one in comparison.changes]
    if comparison.measures is not None:
        fields["aligned"] = [_aligned_fields(pair) for pair in comparison.pairs]
        sides = zip("ab", comparison.measures, strict=True)
        fields["measures"] = {name: [table_fields(table) for table in tables] for name, tables in sides}
    return fields


def _change_fields(one: HeadChange, tolerance: float | None) -> dict[str, Any]:
    stack, kind, layer = one.place
    plain = {
        "stack": stack, "kind": kind, "layer": layer,
        "head": one.head, "head_a": one.heads[0], "head_b": one.heads[1],
        "largest": one.largest,
        "query_a": one.query[0], "key_a": one.key[0], "query_b": one.query[1], "key_b": one.key[1],
        "weight_a": _plain(one.weights[0]), "weight_b": _plain(one.weights[1]),
        "mean": _plain(one.mean), "divergence": _plain(one.divergence),
        "row_divergence": [_plain(value) for value in one.rows.tolist()],
        "unlike": one.unlike,
    }  # fmt: skip
    return plain if tolerance is None else {**plain, "exceeds": one.exceeds(tolerance)}


def _aligned_fields(pair: Pair) -> dict[str, Any]:
    stack, kind, layer = pair.place
    axes = (("queries", pair.queries), ("keys", pair.keys))
    aligned = {name: _pairs(one.first, one.second) for name, one in axes}
    return {"stack": stack, "kind": kind, "layer": layer, **aligned}


def _pairs(first: Sequence[int], second: Sequence[int]) -> list[list[int]]:
    return [list(pair) for pair in zip(first, second, strict=True)]


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
