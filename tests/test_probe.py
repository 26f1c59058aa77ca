from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from attnviz.attention import EVERYTHING, Rule, projected
from attnviz.collect import collect
from attnviz.errors import RequestError
from attnviz.maps import AttentionMap, Provenance
from attnviz.measures.collector import MeasureCollector
from attnviz.measures.heads import HeadTable, rank
from attnviz.sources.encoder import open_folder
from attnviz.sources.model import Model
from attnviz.sources.probe import PROBE_WORDS, ordinary, repeat_probe
from attnviz.sources.projected import Projected
from attnviz.sources.registry import open_model
from attnviz.sources.tokenizer import Encoded, encode, whole_words
from attnviz.tokens import Tokens
from tests.models import VOCABULARY, make_bert, wordpiece

Array = npt.NDArray[Any]


def pieces_of(model: Model, text: str) -> tuple[str, ...]:
    return ordinary(model.prepare(text).tokens)


@pytest.mark.parametrize("name", ["minilm", "scratch"])
@pytest.mark.parametrize("n_words", [1, 7, PROBE_WORDS])
def test_the_probe_is_different_tokens_and_the_same_again(name: str, n_words: int) -> None:
    model = open_model(name, {})
    pieces = pieces_of(model, repeat_probe(model, n_words))
    assert pieces[:n_words] == pieces[n_words:]
    assert len(set(pieces)) == n_words


def test_the_seed_makes_the_probe() -> None:
    model = open_model("minilm", {})
    assert repeat_probe(model, 9, seed=3) == repeat_probe(open_model("minilm", {}), 9, seed=3)
    assert repeat_probe(model, 9, seed=3) != repeat_probe(model, 9, seed=4)


def test_words_are_drawn_from_all_of_the_vocabulary() -> None:
    model = open_model("minilm", {})
    words = model.words
    places = [words.index(word) / len(words) for word in repeat_probe(model, 200).split()[:200]]
    assert 0.4 < np.mean(places) < 0.6
    assert min(places) < 0.05
    assert max(places) > 0.95


def test_whole_words_are_no_special_tokens_marks_or_parts() -> None:
    words = whole_words(wordpiece().get_vocab(with_added_tokens=False))
    assert words == tuple(piece for piece in VOCABULARY[5:] if piece.isalpha() and len(piece) > 1)
    assert not {"[CLS]", "##s", "a", "."} & set(words)


def test_words_that_the_tokenizer_takes_as_one_are_drawn_once(tmp_path: Path) -> None:
    model = open_folder(make_bert(tmp_path / "bert"))  # café and cafe are the same to it
    text = repeat_probe(model, 13)
    assert len(set(pieces_of(model, text))) == 13
    assert len({"café", "cafe"} & set(text.split())) <= 1


def test_a_model_of_few_words_says_how_many(tmp_path: Path) -> None:
    model = open_folder(make_bert(tmp_path / "bert"))
    with pytest.raises(RequestError, match=r"needs 50 words that are one token each, and model bert has \d\d: choose"):
        repeat_probe(model)


@pytest.mark.parametrize(
    ("n_words", "seed", "message"),
    [
        (0, 0, "needs at least 1 word, got 0"),
        (3, -1, "--seed must be 0 or more, got -1"),
        (300, 0, "at most 512"),
    ],
)
def test_probes_that_cannot_be_made_are_refused(n_words: int, seed: int, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        repeat_probe(open_model("minilm", {}), n_words, seed)


# a byte-level tokenizer, which sees a first word without a blank as another piece


@dataclass(frozen=True)
class Bytewise:
    """A model that only tokenizes."""

    tokenizer: Tokenizer
    name: str = "bytewise"
    n_layers: int = 1
    n_heads: int = 1
    gives_output: bool = False

    @property
    def attending(self) -> range:
        return range(self.n_layers)

    @property
    def provenance(self) -> Provenance:
        return {}

    @property
    def words(self) -> tuple[str, ...]:
        return whole_words(self.tokenizer.get_vocab(with_added_tokens=False))

    def prepare(self, text: str, *, truncate: bool = False) -> "Texts":
        return Texts(encode(self.tokenizer, text, 99, truncate=truncate))


@dataclass(frozen=True)
class Texts:
    encoded: Encoded
    notes: tuple[str, ...] = ()
    provenance: Provenance = field(default_factory=dict)

    @property
    def tokens(self) -> Tokens:
        return self.encoded.tokens

    @property
    def key_tokens(self) -> Tokens:
        return self.encoded.tokens

    def maps(
        self, layers: Collection[int], *, rule: Rule = EVERYTHING, single: bool = False, output: bool = False
    ) -> Iterator[AttentionMap]:
        return iter(())


def test_byte_level_probes_begin_with_a_blank() -> None:
    pieces = ["Ġ", "a", "b", "c", "d", "Ġa", "Ġc", "ab", "cd", "Ġab", "Ġcd", "Ġac"]
    merges = [("Ġ", "a"), ("Ġ", "c"), ("a", "b"), ("c", "d"), ("Ġa", "b"), ("Ġc", "d"), ("Ġa", "c")]
    tokenizer = Tokenizer(BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    model = Bytewise(tokenizer)
    assert model.words == ("ab", "cd", "ac")
    text = repeat_probe(model, 2)
    assert text.startswith(" ")
    found = pieces_of(model, text)
    assert found[:2] == found[2:]
    assert all(piece.startswith("Ġ") for piece in found)


# two layers made by hand: a previous-token head, and the induction head that reads from it


def heads_made_by_hand(pieces: tuple[str, ...]) -> list[AttentionMap]:
    """A causal model of two layers with three heads each, on a text that begins with a special token.

    The residual stream has three parts, each as wide as there are tokens: which word this is, where it is, and, after
    the first layer, which word was before it. Head 0.1 looks for the position before its own and copies the word from
    there; head 1.2 looks for the place where the word before is its own word. The other heads look at everything alike
    (0.0, 1.1), at their own position (0.2), or by seeded chance (1.0).
    """
    n = len(pieces)
    tokens = Tokens(pieces, pieces, ((0, 0),) * n, (True, *(False,) * (n - 1)))
    words = np.eye(n)[[pieces.index(piece) for piece in pieces]]
    nothing, same = np.zeros((n, n)), np.eye(n)
    strong = 40 * n**0.5 * same  # a score of 40 against 0, after the scale
    one_on = np.eye(n, k=1)  # what is at position p meets the query of position p + 1

    def layer(number: int, x: Array, q: list[Array], k: list[Array]) -> AttentionMap:
        queries, keys = (projected(x, np.concatenate(parts, axis=1), None) for parts in (q, k))
        weights = Projected(queries, keys, 3, Rule(causal=True)).weights()
        return AttentionMap(f"layer.{number}", number, (0, 1, 2), weights, tokens, tokens)

    def reads(word: Array, place: Array, before: Array) -> Array:
        return np.concatenate([word, place, before])

    blind, chance = reads(nothing, nothing, nothing), np.random.default_rng(0).standard_normal((2, 3 * n, n)) / n**0.5
    by_place, by_word = reads(nothing, strong, nothing), reads(strong, nothing, nothing)
    keys = [blind, reads(nothing, one_on, nothing), reads(nothing, same, nothing)]
    first = layer(0, np.concatenate([words, same, nothing], axis=1), [blind, by_place, by_place], keys)
    before = first.rows(0, n)[1] @ words
    keys = [chance[1], blind, reads(nothing, nothing, same)]
    second = layer(1, np.concatenate([words, same, before], axis=1), [chance[0], blind, by_word], keys)
    return [first, second]


@pytest.fixture(scope="module", params=[0, 1, 2])
def made_by_hand(request: pytest.FixtureRequest) -> HeadTable:
    model = open_model("scratch", {})
    collector = MeasureCollector()
    pieces = ("[BOS]", *pieces_of(model, repeat_probe(model, 60, request.param)))
    collect(heads_made_by_hand(pieces), [collector])
    (table,) = collector.result()
    return table


@pytest.mark.parametrize(("name", "head"), [("previous", (0, 1)), ("induction", (1, 2)), ("self", (0, 2))])
def test_known_heads_are_found_and_no_others(made_by_hand: HeadTable, name: str, head: tuple[int, int]) -> None:
    best, *others = rank(made_by_hand, name)
    assert (best.layer, best.head) == head
    assert best.value >= 0.99
    assert len(others) == 5
    assert all(one.value < 0.05 for one in others)


def test_no_head_made_by_hand_looks_at_copies_of_its_token(made_by_hand: HeadTable) -> None:
    assert made_by_hand.values["duplicate"].max() < 0.05
