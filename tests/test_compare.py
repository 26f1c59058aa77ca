import json
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attnviz
import attnviz.maps
from attnviz.align import align
from attnviz.compare import HeadChange, compare, comparison_fields
from attnviz.errors import RequestError
from attnviz.maps import AttentionMap, AttentionRecord, Provenance
from attnviz.tokens import Tokens
from tests.saved import weights_of
from tests.test_measures import A, B, a_map

Array = npt.NDArray[Any]

ONE: Provenance = {"attnviz": "1", "model": "m", "text": "t"}


def record(*maps: AttentionMap, **more: Any) -> AttentionRecord:
    return AttentionRecord(maps, {**ONE, **more})


def of(weights: Array, pieces: tuple[str, ...] | None = None, **more: Any) -> AttentionRecord:
    """[layer, head, query, key]."""
    return record(*(a_map(one, pieces, layer=i, **more) for i, one in enumerate(weights)))


def number(change: HeadChange) -> int:
    """The head of a change, which has a number."""
    assert isinstance(change.head, int)
    return change.head


def changed(*places: tuple[int, int, int, int], by: float = 0.25, shape: tuple[int, ...] = (2, 3, 4, 4)) -> Array:
    weights = weights_of(*shape)
    for place in places:
        weights[place] += by
    return weights


# the same tokens


def test_the_same_record_has_not_changed() -> None:
    found = compare(of(weights_of(2, 3, 4, 4)), of(weights_of(2, 3, 4, 4)))
    assert len(found.changes) == 6
    assert {(one.largest, one.mean, one.divergence, one.unlike) for one in found.changes} == {(0.0, 0.0, 0.0, 0)}
    assert (found.same_tokens, found.notes, found.measures) == (True, (), None)
    assert found.exceeds(0) == ()


def test_one_changed_weight_is_found_where_it_is() -> None:
    found = compare(of(weights_of(2, 3, 4, 4)), of(changed((1, 2, 3, 0))))
    first, *others = found.changes
    assert (first.place, first.head, first.query, first.key) == (("encoder", "self", 1), 2, (3, 3), (0, 0))
    assert [first.largest, first.mean] == pytest.approx([0.25, 0.25 / 16])
    before = weights_of(2, 3, 4, 4)[1, 2, 3, 0]
    assert first.weights == pytest.approx((before, before + 0.25))
    assert all(one.largest == 0 for one in others)
    assert found.exceeds(0.2) == (first,)
    assert found.exceeds(0.26) == ()


def test_differences_and_divergences_are_what_loops_make_of_them() -> None:
    a, b = weights_of(2, 3, 4, 5), weights_of(2, 3, 4, 5, seed=1)
    found = compare(of(a), of(b))
    for one in found.changes:
        x, y = a[one.place[2], number(one)], b[one.place[2], number(one)]
        m = (x + y) / 2
        rows = ((x * np.log(x / m)) + (y * np.log(y / m))).sum(axis=1) / 2
        assert one.largest == pytest.approx(np.abs(x - y).max())
        assert one.mean == pytest.approx(np.abs(x - y).mean())
        assert one.rows == pytest.approx(rows)
        assert one.divergence == pytest.approx(rows.mean())
        assert abs(y[one.query[1], one.key[1]] - x[one.query[0], one.key[0]]) == one.largest
    assert [one.largest for one in found.changes] == sorted((one.largest for one in found.changes), reverse=True)
    assert [one.mean for one in found.ranked("mean")] == sorted((one.mean for one in found.changes), reverse=True)
    by_divergence = [one.divergence for one in found.ranked("divergence")]
    assert by_divergence == sorted(by_divergence, reverse=True)


def test_the_divergence_of_matrices_worked_out_by_hand() -> None:
    (one,) = compare(of(np.array([[A]])), of(np.array([[B]]))).changes
    assert one.rows == pytest.approx([0, 0.101749, 0.195311, 0.218447], abs=1e-6)
    assert one.divergence == pytest.approx(0.515507 / 4, abs=1e-6)
    assert one.largest == pytest.approx(0.6)


@given(seed=st.integers(0, 99))
def test_turning_the_comparison_round_turns_the_signs(seed: int) -> None:
    a, b = of(weights_of(1, 2, 4, 4, seed=seed)), of(weights_of(1, 2, 4, 4, seed=seed + 1))
    there, back = compare(a, b), compare(b, a)
    assert [one.largest for one in there.changes] == [one.largest for one in back.changes]
    for one, other in zip(there.changes, back.changes, strict=True):
        assert one.divergence == pytest.approx(other.divergence)
        assert there.difference(one).rows(0, 4) == pytest.approx(-back.difference(other).rows(0, 4))


def test_difference_maps_are_second_minus_first() -> None:
    a, b = weights_of(2, 3, 4, 5), weights_of(2, 3, 4, 5, seed=1)
    found = compare(of(a), of(b))
    for one in found.changes:
        shown = found.difference(one)
        layer = one.place[2]
        assert (shown.layer, shown.heads) == (layer, (one.head,))
        assert shown.rows(1, 3)[0] == pytest.approx(b[layer, number(one), 1:3] - a[layer, number(one), 1:3])


@pytest.mark.parametrize("block_rows", [1, 3, 256])
def test_blocks_of_any_size_give_the_same(block_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = weights_of(1, 2, 9, 7), weights_of(1, 2, 9, 7, seed=1)
    whole = comparison_fields(compare(of(a), of(b)))
    monkeypatch.setattr(attnviz.maps, "BLOCK_ROWS", block_rows)
    blocks = comparison_fields(compare(of(a), of(b)))
    for one, other in zip(whole["heads"], blocks["heads"], strict=True):
        assert one.pop("mean") == pytest.approx(other.pop("mean"))
        assert one == other


# what is no number


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_number_beside_none_is_always_reported(bad: float) -> None:
    broken = changed((0, 1, 2, 3), by=bad)
    broken[1, 0, 0, 0] += 0.5
    for a, b in ((weights_of(2, 3, 4, 4), broken), (broken, weights_of(2, 3, 4, 4))):
        found = compare(of(a), of(b))
        first, second, *_ = found.changes
        assert (first.place[2], first.head, first.query, first.key, first.unlike) == (0, 1, (2, 2), (3, 3), 1)
        assert second.largest == pytest.approx(0.5)
        assert found.exceeds(1e9) == (first,)
        assert first.largest == 0
        assert np.isnan(first.rows).tolist() == [False, False, True, False]
        assert first.divergence == 0
        assert not np.isfinite(found.difference(first).rows(2, 3)[0, 0, 3])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_in_both_has_not_changed(bad: float) -> None:
    broken = changed((0, 1, 2, 3), by=bad)
    found = compare(of(broken), of(broken.copy()))
    assert all((one.largest, one.unlike) == (0, 0) for one in found.changes)
    assert found.exceeds(0) == ()
    assert (found.difference(found.changes[0]).rows(0, 4) == 0).all()


def test_heads_without_numbers_have_no_mean() -> None:
    a, b = weights_of(1, 1, 2, 2), np.full((1, 1, 2, 2), np.nan)
    found = compare(of(a), of(b))
    assert found.changes[0].unlike == 4
    fields = comparison_fields(found, 0.1)
    assert fields["heads"][0]["mean"] is None
    assert fields["heads"][0]["row_divergence"] == [None, None]
    json.dumps(fields, allow_nan=False)


@pytest.mark.parametrize("tolerance", [-1e-9, np.nan, np.inf])
def test_a_tolerance_is_a_number_of_0_or_more(tolerance: float) -> None:
    found = compare(of(weights_of(1, 1, 2, 2)), of(weights_of(1, 1, 2, 2)))
    with pytest.raises(RequestError, match="--tolerance must be a number of 0 or more, got "):
        found.exceeds(tolerance)


# different layers and heads


def test_layers_and_heads_that_both_have_are_compared_and_the_others_said() -> None:
    a = record(*(a_map(weights_of(3, 4, 4), layer=i) for i in (0, 1, 2)))
    b = record(*(a_map(weights_of(2, 4, 4), layer=i, heads=(1, 4)) for i in (1, 2, 5)))
    found = compare(a, b)
    assert sorted((one.place[2], one.head) for one in found.changes) == [(1, 1), (2, 1)]
    assert found.notes == ("only A has layer 0", "only B has layer 5", "only A has head 0, 2", "only B has head 4")
    expected = np.abs(weights_of(3, 4, 4)[1] - weights_of(2, 4, 4)[0]).max()
    assert found.changes[0].largest == pytest.approx(expected)


def test_records_with_nothing_in_common_are_refused() -> None:
    a = of(weights_of(1, 2, 4, 4))
    with pytest.raises(RequestError, match="there is nothing to compare: A holds layer 0, and B holds layer 7"):
        compare(a, record(a_map(weights_of(2, 4, 4), layer=7)))
    with pytest.raises(RequestError, match="only A has head 0, 1 in layer 0; only B has head 5, 6 in layer 0"):
        compare(a, record(a_map(weights_of(2, 4, 4), heads=(5, 6))))
    with pytest.raises(RequestError, match="no token of layer 0 is in both A and B"):
        compare(a, of(weights_of(1, 2, 3, 3), ("x", "y", "z")))
    with pytest.raises(RequestError, match="A holds layer 0, and B holds cross layer 0"):
        compare(a, record(a_map(weights_of(2, 4, 4), kind="cross", stack="decoder")))
    with pytest.raises(RequestError, match="B holds nothing"):
        compare(a, record())


def test_the_only_stack_of_each_record_is_compared_with_the_other() -> None:
    a, b = weights_of(2, 3, 4, 4), weights_of(2, 3, 4, 4, seed=1)
    found = compare(of(a), of(b, stack="decoder"))
    assert [one.place for one in found.pairs] == [("decoder", "self", 0), ("decoder", "self", 1)]
    assert found.changes[0].largest == pytest.approx(np.abs(a - b).max())
    assert found.notes == ()
    both = record(a_map(a[0]), a_map(a[1], stack="decoder"))
    found = compare(both, of(b, stack="decoder"))
    assert [one.place for one in found.pairs] == [("decoder", "self", 0)]
    assert found.changes[0].largest == pytest.approx(np.abs(a[1] - b[0]).max())
    assert found.notes == ("only A has layer 0", "only B has decoder layer 1")


@pytest.mark.parametrize("lone", [{"heads": ("single",)}, {"n_heads": 1}])
def test_a_lone_head_is_compared_with_every_head(lone: dict[str, Any]) -> None:
    several = weights_of(3, 4, 4)
    one = weights_of(1, 4, 4, seed=1)
    alone = record(a_map(one, heads=lone.get("heads", (0,))), n_heads=lone.get("n_heads", 4))
    for a, b, name in ((alone, of(several[None]), "A"), (of(several[None]), alone, "B")):
        found = compare(a, b)
        assert found.notes == (f"the one head of {name} is compared with each head of {'AB'.replace(name, '')}",)
        assert sorted(change.head for change in found.changes) == [0, 1, 2]
        for change in found.changes:
            assert change.largest == pytest.approx(np.abs(one[0] - several[number(change)]).max())
            sign = 1 if name == "A" else -1
            assert found.difference(change).rows(0, 4)[0] == pytest.approx(sign * (several[number(change)] - one[0]))
            assert change.heads["BA".index(name)] == change.head


def test_a_head_that_was_selected_is_compared_with_itself() -> None:
    several = weights_of(3, 4, 4)
    found = compare(record(a_map(several[:1])), of(several[None]))
    assert [(one.head, one.largest) for one in found.changes] == [(0, 0.0)]


# different tokens

CAT, DOG = ("[CLS]", "the", "cat", "sat", "[SEP]"), ("[CLS]", "the", "old", "dog", "sat", "[SEP]")


def test_tokens_that_agree_are_aligned_and_the_others_said() -> None:
    a, b = weights_of(1, 2, 5, 5), weights_of(1, 2, 6, 6, seed=1)
    found = compare(of(a, CAT), of(b, DOG))
    assert not found.same_tokens
    assert found.notes == (
        "4 of 5 tokens of A (not cat) and 4 of 6 tokens of B (not old, dog) are aligned: differences are of these"
        " alone, and nothing is renormalised",
    )
    x, y = a[:, :, [0, 1, 3, 4]][..., [0, 1, 3, 4]], b[:, :, [0, 1, 4, 5]][..., [0, 1, 4, 5]]
    for one in found.changes:
        gaps = np.abs(x[0, number(one)] - y[0, number(one)])
        assert [one.largest, one.mean] == pytest.approx([gaps.max(), gaps.mean()])
        assert a[0, number(one), one.query[0], one.key[0]] == one.weights[0]
        assert b[0, number(one), one.query[1], one.key[1]] == one.weights[1]
        assert found.difference(one).query.pieces == ("[CLS]", "the", "sat", "[SEP]")


def test_measures_of_both_sides_are_given_where_tokens_differ() -> None:
    found = compare(of(weights_of(1, 2, 5, 5), CAT), of(weights_of(1, 2, 6, 6), DOG))
    assert found.measures is not None
    (first,), (second,) = found.measures
    assert (first.n_rows, second.n_rows) == (5, 6)
    fields = json.loads(json.dumps(comparison_fields(found), allow_nan=False))
    assert fields["aligned"][0]["queries"] == fields["aligned"][0]["keys"] == [[0, 0], [1, 1], [3, 4], [4, 5]]
    assert fields["measures"]["a"][0]["measures"]["entropy"]["values"] == first.values["entropy"].tolist()


def test_keys_of_cross_attention_are_aligned_on_their_own() -> None:
    query, key, other = (Tokens.of(text.split()) for text in ("a b", "x y z", "x w z"))
    one = a_map(weights_of(2, 2, 3), kind="cross")
    maps = [
        replace(one, query=query, key=key),
        replace(a_map(weights_of(2, 2, 3, seed=1), kind="cross"), query=query, key=other),
    ]
    found = compare(record(maps[0]), record(maps[1]))
    assert found.pairs[0].queries.same
    assert (found.pairs[0].keys.first, found.pairs[0].keys.second) == ((0, 2), (0, 2))
    assert found.notes[0].startswith("2 of 3 keys of A (not y) and 2 of 3 keys of B (not w) are aligned")
    gaps = np.abs(weights_of(2, 2, 3)[..., [0, 2]] - weights_of(2, 2, 3, seed=1)[..., [0, 2]])
    assert found.changes[0].largest == pytest.approx(gaps.max())


def test_special_tokens_are_not_pieces_written_alike() -> None:
    special = Tokens(("[SEP]",), ("[SEP]",), ((0, 0),), (True,))
    assert align(special, Tokens.of(["[SEP]"])).first == ()
    assert align(special, special).same


@given(first=st.lists(st.sampled_from("abc"), max_size=12), second=st.lists(st.sampled_from("abc"), max_size=12))
def test_aligned_tokens_are_the_same_and_in_order(first: list[str], second: list[str]) -> None:
    found = align(Tokens.of(first), Tokens.of(second))
    assert [first[i] for i in found.first] == [second[i] for i in found.second]
    for positions in (found.first, found.second):
        assert list(positions) == sorted(set(positions))
    assert found.same == (first == second)


def test_unaligned_tokens_act_on_no_terminal_and_are_not_listed_for_ever() -> None:
    a = of(weights_of(1, 1, 14, 14), ("x", "\x1b[2J", *map(str, range(12))))
    (note,) = compare(a, of(weights_of(1, 1, 1, 1), ("x",))).notes
    assert "\x1b" not in note
    assert note.startswith("1 of 14 tokens of A (not ␛[2J, 0, 1, 2, 3, 4, 5, 6, 7, 8, …) and 1 of 1 tokens of B are")


# as fields, and of models


def test_fields_have_names_that_stay() -> None:
    found = compare(of(weights_of(2, 3, 4, 4)), of(changed((1, 2, 3, 0))))
    fields = json.loads(json.dumps(comparison_fields(found, 0.1), allow_nan=False))
    assert list(fields) == ["same_tokens", "tolerance", "exceeds", "largest", "mean", "divergence", "heads"]
    assert (fields["exceeds"], fields["largest"]) == (1, pytest.approx(0.25))
    first = fields["heads"][0]
    assert list(first) == [
        "stack", "kind", "layer", "head", "head_a", "head_b", "largest", "query_a", "key_a", "query_b", "key_b",
        "weight_a", "weight_b", "mean", "divergence", "row_divergence", "unlike", "exceeds",
    ]  # fmt: skip
    assert (first["layer"], first["head"], first["query_a"], first["key_a"], first["exceeds"]) == (1, 2, 3, 0, True)
    assert [one["exceeds"] for one in fields["heads"][1:]] == [False] * 5


def test_a_model_under_two_settings() -> None:
    text = "The cat sat on the mat"
    one, other = (attnviz.attend(text, model="scratch", n_heads=n) for n in (1, 4))
    assert len(compare(one, other).changes) == 4
    scaled = attnviz.attend(text, model="scratch", n_heads=4, scale=False)
    assert compare(other, scaled).exceeds(1e-3)
    assert not compare(other, attnviz.attend(text, model="scratch", n_heads=4)).exceeds(0)
    with pytest.raises(RequestError, match="no token"):
        compare(other, attnviz.attend("Zebras!", model="scratch"))
