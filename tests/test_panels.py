import numpy as np
import pytest

from attnviz.arrays import Floats
from attnviz.collect import HeatmapCollector
from attnviz.heatmap import Heatmap
from attnviz.maps import AttentionMap, Head, Kind, Provenance, Stack, StoredWeights
from attnviz.pooling import tile_edges
from attnviz.render.panels import (
    Axis,
    Board,
    Group,
    Panel,
    caption_of,
    describe,
    head_title,
    heads_board,
    layer_title,
    queries_board,
    token_axis,
)
from attnviz.render.ranges import Range, weight_range
from attnviz.render.scale import SCALES
from attnviz.tokens import Tokens, visible

QUERY, KEY = Tokens.of(["the", "cat", "\n", "the", "mat"]), Tokens.of("abcdefg")
HEADS, QUERIES, KEYS = 3, len(QUERY), len(KEY)


def weights(seed: int = 0) -> Floats:
    drawn: Floats = np.random.default_rng(seed).random((HEADS, QUERIES, KEYS))
    drawn /= drawn.sum(-1, keepdims=True)
    return drawn.astype(np.float32)


def map_of(
    array: Floats,
    layer: int = 0,
    heads: tuple[Head, ...] = (0, 1, 2),
    stack: Stack = "encoder",
    kind: Kind = "self",
) -> AttentionMap:
    return AttentionMap("attention", layer, heads, StoredWeights(array), QUERY, KEY, stack, kind)


def heatmaps(*maps: AttentionMap, rows: int = 9, columns: int = 9) -> tuple[Heatmap, ...]:
    collector = HeatmapCollector(rows, columns)
    for one in maps:
        collector.add(one)
    return collector.result()


# names


@pytest.mark.parametrize(("head", "title"), [(0, "head 0"), (11, "head 11"), ("single", "single head")])
def test_a_head_is_called_by_its_number(head: Head, title: str) -> None:
    assert head_title(head) == title


@pytest.mark.parametrize(
    ("stack", "kind", "title"),
    [
        ("encoder", "self", "layer 4"),
        ("decoder", "self", "decoder layer 4"),
        ("decoder", "cross", "cross layer 4"),
        ("encoder", "cross", "cross layer 4"),
    ],
)
def test_a_layer_is_called_by_its_number_and_stack(stack: Stack, kind: Kind, title: str) -> None:
    assert layer_title(map_of(weights(), 4, stack=stack, kind=kind)) == title


def test_an_axis_has_each_token_where_it_fits() -> None:
    assert token_axis("query", QUERY, tile_edges(5, 5)) == Axis("query", QUERY.text)


@pytest.mark.parametrize(
    ("most", "labels", "step"),
    [(4, ("0–1", "2–3", "4–5", "6"), 2), (3, ("0–2", "3–5", "6"), 3), (2, ("0–3", "4–6"), 4), (1, ("0–6",), 7)],
)
def test_an_axis_of_tiles_has_the_positions_of_each(most: int, labels: tuple[str, ...], step: int) -> None:
    assert token_axis("key", KEY, tile_edges(KEYS, most)) == Axis("key", labels, step)


@pytest.mark.parametrize(
    ("text", "n_tokens", "caption"),
    [
        ("The cat", 4, "minilm · 4 tokens · The cat"),
        ("a", 1, "minilm · 1 token · a"),
        ("\x1b[2J", 3, "minilm · 3 tokens · ␛[2J"),
        ("", 6, "minilm · 6 tokens"),
    ],
)
def test_the_caption_is_one_visible_line(text: str, n_tokens: int, caption: str) -> None:
    assert caption_of({"model": "minilm", "text": text}, n_tokens) == caption


def test_a_description_has_all_but_the_text_and_the_start_of_hashes() -> None:
    place: Provenance = {"backend": "torch", "device": "cuda:1", "dtype": "float64", "text": "secret"}
    model: Provenance = {"attnviz": "0.1.0", "model": "minilm", "model_sha256": "0123456789abcdef", "scale": False}
    said = "minilm, sha256 0123456789ab, scale false"
    assert describe({**model, **place}) == f"attnviz 0.1.0 · {said} · torch float64 on cuda:1"


def test_a_description_keeps_names_whole_and_nothing_in_it_acts_on_a_terminal() -> None:
    place: Provenance = {"backend": "numpy", "device": "cpu\n", "dtype": "float32", "text": ""}
    model: Provenance = {"attnviz": "\x1b[1m", "model": "A\x1b[2J.npz", "array": "Cross Attention 1", "stored": ""}
    saved: Provenance = {"shape": [12, 1, 144, 128, 128], "saved_sha256": "0123456789abcdef"}
    said = "A␛[2J.npz, array Cross Attention 1, shape 12 × 1 × 144 × 128 × 128, saved_sha256 0123456789ab"
    assert describe({**model, **saved, **place}) == f"attnviz ␛[1m · {said} · numpy float32 on cpu␊"
    assert caption_of({**model, **place}, 2) == "A␛[2J.npz · 2 tokens"


# boards


def test_a_board_of_heads_has_a_panel_a_head_with_queries_down() -> None:
    first, second = weights(1), weights(2)
    board = heads_board(heatmaps(map_of(first), map_of(second, 3, ("single", 1, 5))), "a caption")
    assert board.caption == "a caption"
    assert [group.title for group in board.groups] == ["layer 0", "layer 3"]
    assert [[panel.title for panel in group.panels] for group in board.groups] == [
        ["head 0", "head 1", "head 2"],
        ["single head", "head 1", "head 5"],
    ]
    for group, array in zip(board.groups, (first, second), strict=True):
        for panel, wanted in zip(group.panels, array, strict=True):
            assert (panel.rows, panel.columns) == (Axis("query", QUERY.text), Axis("key", KEY.text))
            np.testing.assert_array_equal(panel.values, wanted)
    assert board.panels == board.groups[0].panels + board.groups[1].panels
    assert board.range == weight_range([first, second])
    assert board.step == 1
    assert board.view == "heads"


def test_a_board_of_queries_has_a_panel_a_query_with_heads_down() -> None:
    array = weights()
    board = queries_board(heatmaps(map_of(array, 2, ("single", 0, 4))), "a caption")
    (group,) = board.groups
    assert group.title == "layer 2"
    assert [panel.title for panel in group.panels] == [f"query {visible(text)}" for text in QUERY.text]
    for i, panel in enumerate(group.panels):
        assert (panel.rows, panel.columns) == (Axis("head", ("single head", "head 0", "head 4")), Axis("key", KEY.text))
        np.testing.assert_array_equal(panel.values, array[:, i])
    assert board.view == "queries"


@pytest.mark.parametrize(("rows", "columns", "step"), [(2, 7, 3), (5, 2, 4), (2, 2, 4), (9, 9, 1)])
def test_a_board_knows_how_many_tokens_its_tiles_stand_for(rows: int, columns: int, step: int) -> None:
    pooled = heatmaps(map_of(weights()), rows=rows, columns=columns)
    board = heads_board(pooled, "", "overview")
    assert board.step == step
    assert board.view == "overview"
    for panel in board.panels:
        assert panel.values.shape == (len(panel.rows.labels), len(panel.columns.labels))
    titles = {2: "query 0–2", 5: "query 0 the", 9: "query the"}  # where keys are pooled, with its position
    assert queries_board(pooled, "").panels[0].title == titles[rows]


def test_an_empty_board_draws_weights_one_by_one() -> None:
    assert Board("", (), Range(0.0, 1.0)).step == 1
    assert Board("", (Group("", ()),), Range(0.0, 1.0)).panels == ()
    assert heads_board((), "").groups == ()


def test_mass_on_hidden_keys_is_said_in_each_title() -> None:
    array = np.zeros((HEADS, QUERIES, KEYS), np.float32)
    array[0, :, 0] = 1
    array[1, :, 6] = 1
    array[2, :, 0], array[2, :, 6] = 0.75, 0.25
    cut = map_of(array).pick(keys=range(6))
    titles = [panel.title for panel in heads_board(heatmaps(cut), "").panels]
    assert titles == ["head 0 · 0% hidden", "head 1 · 100% hidden", "head 2 · 25% hidden"]


def test_where_no_key_is_hidden_nothing_is_said_of_rows_that_sum_to_less() -> None:
    assert heads_board(heatmaps(map_of(weights() / 2)), "").panels[0].title == "head 0"


def test_a_panel_keeps_what_is_no_number() -> None:
    array = weights()
    array[1, 2, 3] = np.nan
    panel: Panel = heads_board(heatmaps(map_of(array)), "").panels[1]
    assert np.argwhere(np.isnan(panel.values)).tolist() == [[2, 3]]


@pytest.mark.parametrize("scale", SCALES)
def test_boards_keep_the_scale_that_is_asked_for(scale: str) -> None:
    one = heatmaps(map_of(weights()))
    assert heads_board(one, "", scale=scale).scale == queries_board(one, "", scale=scale).scale == scale
    assert heads_board(one, "").scale == queries_board(one, "").scale == "linear"
