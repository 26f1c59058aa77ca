import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.errors import RequestError
from attnviz.maps import AttentionMap, Head, StoredWeights
from attnviz.select import Selection, without_special
from attnviz.tokens import Tokens

N_LAYERS, N_HEADS = 6, 12


def parse(layer: str | None = None, head: str | None = None) -> Selection:
    return Selection.parse(layer, head, range(N_LAYERS), range(N_HEADS))


def a_map(layer: int = 0, heads: tuple[Head, ...] = tuple(range(N_HEADS))) -> AttentionMap:
    weights = np.arange(len(heads) * 9, dtype=np.float32).reshape(len(heads), 3, 3)
    return AttentionMap("m", layer, heads, StoredWeights(weights), Tokens.of("abc"), Tokens.of("abc"))


# layers


@pytest.mark.parametrize(
    ("typed", "layers"),
    [
        ("0", (0,)),
        ("5", (5,)),
        ("-1", (5,)),
        ("-6", (0,)),
        ("all", (0, 1, 2, 3, 4, 5)),
        ("0,3", (0, 3)),
        ("3,0", (0, 3)),
        ("0,0,0", (0,)),
        ("2-4", (2, 3, 4)),
        ("2-2", (2,)),
        ("0,3-5", (0, 3, 4, 5)),
        ("1-3,2-5", (1, 2, 3, 4, 5)),
        ("-2-5", (4, 5)),
        ("4,-1", (4, 5)),
        (" 1 , 3 - 4".replace(" - ", "-"), (1, 3, 4)),
        ("all,2", (0, 1, 2, 3, 4, 5)),
        ("007", None),
        ("005", (5,)),
    ],
)
def test_layers(typed: str, layers: tuple[int, ...] | None) -> None:
    if layers is None:
        with pytest.raises(RequestError, match="no layer 007: layers are counted from 0, here 0 to 5"):
            parse(typed)
    else:
        assert parse(typed).layers == layers


def test_only_what_is_there_is_counted() -> None:
    there = [2, 5, 6, 9]
    for typed, layers in {"all": (2, 5, 6, 9), "-1": (9,), "-4": (2,), "5-9": (5, 6, 9), "2,6": (2, 6)}.items():
        assert Selection.parse(typed, None, there, [1, 3]).layers == layers
    assert Selection.parse(None, "9.3,5.-2", there, [1, 3]) == Selection((5, 9), frozenset({(9, 3), (5, 1)}))
    for typed in ("0", "3", "-5", "3-6"):
        with pytest.raises(RequestError, match="layers are counted from 0, here 2, 5, 6, 9"):
            Selection.parse(typed, None, there, [1])
    with pytest.raises(RequestError, match="no head 0: heads are counted from 0, here only 3"):
        Selection.parse(None, "0", there, [3])


def test_nothing_said_leaves_the_choice_open() -> None:
    assert parse().layers is None
    assert parse().heads is None
    assert parse().layers_or([2]) == (2,)
    assert parse("1").layers_or([2]) == (1,)


@pytest.mark.parametrize("number", ["6", "-7", "100", "0,6", "3-6", "9" * 30, "9" * 5000, "-" + "9" * 5000])
def test_a_layer_that_is_not_there_is_refused_with_those_that_are(number: str) -> None:
    with pytest.raises(RequestError, match="layers are counted from 0, here 0 to 5") as error:
        parse(number)
    assert len(str(error.value)) < 200
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    "typed", ["", " ", ",", "0,", "a", "1.0", "0-", "--1", "1--2", "1-2-3", "0;1", "0 1", "ALL", "+1", "1e0", "0x1"]
)
def test_what_is_no_list_is_refused_with_how_to_type_one(typed: str) -> None:
    with pytest.raises(RequestError, match="type numbers such as 0,3-5, -1 or all") as error:
        parse(typed)
    assert f"--layer {typed!r} is no list of layers" in str(error.value)


@pytest.mark.parametrize(("typed", "right"), [("3-1", "1-3"), ("5-0", "0-5"), ("-1-2", "2-5")])
def test_a_range_that_runs_backwards_is_turned_round(typed: str, right: str) -> None:
    with pytest.raises(RequestError, match=f"runs backwards: type {right}"):
        parse(typed)


numbers = st.integers(0, N_LAYERS - 1)


@given(st.lists(st.one_of(numbers, st.tuples(numbers, numbers).map(sorted)), min_size=1))
def test_any_list_gives_its_numbers_in_order(parts: list[int | list[int]]) -> None:
    typed = ",".join(str(part) if isinstance(part, int) else f"{part[0]}-{part[1]}" for part in parts)
    expected = {
        number
        for part in parts
        for number in ([part] if isinstance(part, int) else range(part[0], part[1] + 1))
    }  # fmt: skip
    assert parse(typed).layers == tuple(sorted(expected))


# heads


@pytest.mark.parametrize(
    ("layer", "head", "layers", "heads"),
    [
        (None, "3", None, {(None, 3)}),
        (None, "0,3", None, {(None, 0), (None, 3)}),
        (None, "-1", None, {(None, 11)}),
        (None, "all", None, {(None, head) for head in range(12)}),
        (None, "5.3", (5,), {(5, 3)}),
        (None, "5.3,0.11", (0, 5), {(5, 3), (0, 11)}),
        (None, "-1.-1", (5,), {(5, 11)}),
        (None, "2.all", (2,), {(2, head) for head in range(12)}),
        (None, "2.3-5", (2,), {(2, 3), (2, 4), (2, 5)}),
        ("all", "2.3", (2,), {(2, 3)}),
        ("0,2", "2.3", (2,), {(2, 3)}),
        ("0,2", "1", (0, 2), {(None, 1)}),
        ("0,2", "1,2.3", (0, 2), {(None, 1), (2, 3)}),
        (None, " 5.3 , 1", None, {(5, 3), (None, 1)}),
    ],
)
def test_heads(
    layer: str | None, head: str, layers: tuple[int, ...] | None, heads: set[tuple[int | None, int]]
) -> None:
    selection = parse(layer, head)
    assert selection.layers == layers
    assert selection.heads == frozenset(heads)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("12", "no head 12: heads are counted from 0, here 0 to 11"),
        ("-13", "no head -13: heads are counted from 0, here 0 to 11"),
        ("5.12", "no head 12: heads are counted from 0, here 0 to 11"),
        ("6.0", "no layer 6: layers are counted from 0, here 0 to 5"),
        ("-7.0", "no layer -7: layers are counted from 0, here 0 to 5"),
        ("3-12", "no head 12"),
        ("x", "--head 'x' is no list of heads: type numbers such as 0,3-5, -1 or all"),
        ("", "--head '' is no list of heads"),
        ("5.", "--head '5.' is no list of heads"),
        (".3", "--head '.3' is no list of heads"),
        ("5.3.1", "is no list of heads"),
        ("all.3", "--head 'all.3' is no list of heads"),
        ("4-2", "--head '4-2' runs backwards: type 2-4"),
        ("9" * 5000 + ".0", "layers are counted from 0, here 0 to 5"),
    ],
)
def test_a_head_that_cannot_be_is_refused(head: str, words: str) -> None:
    with pytest.raises(RequestError) as error:
        parse(None, head)
    assert words in str(error.value)
    assert error.value.exit_code == 2


def test_a_head_of_a_layer_that_is_left_out_is_refused() -> None:
    with pytest.raises(RequestError, match=r"a head of layer 5 is asked for, but only layer 0, 2: add it to --layer"):
        parse("0,2", "5.3")


def test_a_model_of_one_layer_and_head_has_its_numbers() -> None:
    assert Selection.parse("-1", "0.0", range(1), range(1)) == Selection((0,), frozenset({(0, 0)}))
    with pytest.raises(RequestError, match="no layer 1: layers are counted from 0, here only 0"):
        Selection.parse("1", None, range(1), range(1))


def test_numbers_are_selected_as_they_are_typed() -> None:
    assert Selection.of([0, -1], [3], range(N_LAYERS), range(N_HEADS)) == parse("0,-1", "3")
    assert Selection.of(None, None, range(N_LAYERS), range(N_HEADS)) == parse()
    assert Selection.of(range(2, 4), {1}, range(N_LAYERS), range(N_HEADS)) == parse("2-3", "1")


@pytest.mark.parametrize(("layers", "heads"), [([6], None), (None, [12]), ([], None), (None, [])])
def test_numbers_that_are_not_there_are_refused(layers: list[int] | None, heads: list[int] | None) -> None:
    with pytest.raises(RequestError):
        Selection.of(layers, heads, range(N_LAYERS), range(N_HEADS))


def test_layers_of_single_heads_go_with_the_layers_shown_anyway() -> None:
    assert parse(None, "5.3,1").layers_or([0]) == (0, 5)
    assert parse(None, "5.3").layers_or([0]) == (5,)
    assert parse("2", "1").layers_or([0]) == (2,)


# of a map


def test_a_map_keeps_the_heads_asked_for() -> None:
    assert parse().heads_of(a_map()).heads == a_map().heads
    assert parse(None, "3,1").heads_of(a_map()).heads == (1, 3)
    assert parse(None, "5.3,1").heads_of(a_map(layer=5)).heads == (1, 3)
    assert parse(None, "5.3,1").heads_of(a_map(layer=4)).heads == (1,)
    picked = parse(None, "5.3").heads_of(a_map(layer=5))
    assert np.array_equal(picked.rows(0, 3), a_map().rows(0, 3)[[3]])


def test_the_single_head_stays() -> None:
    one = a_map(heads=("single", *range(N_HEADS)))
    picked = parse(None, "2").heads_of(one)
    assert picked.heads == ("single", 2)
    assert np.array_equal(picked.rows(0, 3), one.rows(0, 3)[[0, 3]])


@pytest.mark.parametrize("special", [(True, False, True), (False, False, False), (True, True, True)])
def test_without_special_tokens_rows_and_columns_go_together(special: tuple[bool, ...]) -> None:
    tokens = Tokens(("a", "b", "c"), ("a", "b", "c"), ((0, 0),) * 3, special)
    weights = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
    kept = [i for i in range(3) if not special[i]]
    one = without_special(AttentionMap("m", 0, (0, 1), StoredWeights(weights), tokens, tokens))
    assert one.query == one.key == tokens.pick(kept)
    assert np.array_equal(one.rows(0, len(kept)), weights[:, kept][:, :, kept])
    assert one.cut == any(special)
