"""The model of the lessons: seeded embeddings and projections, nothing trained, every number reproducible."""

import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from attnviz._version import __version__
from attnviz.arrays import Array, Floats
from attnviz.attention import EVERYTHING, Projections, Rule, heads_message
from attnviz.backend import NUMPY, Place, Placing
from attnviz.errors import RequestError
from attnviz.maps import AttentionMap, Provenance
from attnviz.memory import check_room
from attnviz.positions import sinusoidal
from attnviz.sources.model import checked_text
from attnviz.sources.projected import TokenVectors, layer_map
from attnviz.tokens import Tokens


@dataclass(frozen=True)
class ScratchOptions:
    """What can be varied."""

    n_heads: int = 4
    d_model: int = 32
    seed: int = 0
    positions: bool = True
    """Add sinusoidal positions to the embeddings."""
    scale: bool = True
    """Divide the scores by √d_head."""
    shared_projections: bool = False
    """Every head uses the first head's projections."""

    def __post_init__(self) -> None:
        if self.d_model < 1:
            raise RequestError(f"--d-model must be at least 1, got {self.d_model}")
        if self.n_heads < 1:
            raise RequestError(f"--n-heads must be at least 1, got {self.n_heads}")
        needed = 20 * self.d_model**2  # three float32 matrices, one of them also as float64
        check_room(needed, f"the projections of --d-model {self.d_model}", "choose a smaller one")
        if self.d_model % self.n_heads:
            raise RequestError(heads_message(self.d_model, self.n_heads))
        check_seed(self.seed)


class Scratch:
    """One layer of multi-head self-attention with seeded weights.

    Args:
        options: sizes, seed and what to leave out.
        placing: where the maths runs.
    """

    name = "scratch"
    n_layers = 1
    attending = range(1)
    gives_output = True

    def __init__(self, options: ScratchOptions, placing: Placing = NUMPY) -> None:
        self.options = options
        self.placing = placing

    @property
    def n_heads(self) -> int:
        """How many heads the layer has."""
        return self.options.n_heads

    @property
    def provenance(self) -> Provenance:
        """The options, and where the maths runs."""
        what = {"attnviz": __version__, "source": "scratch", "model": "scratch"}
        return {**what, **asdict(self.options), **self.placing.provenance()}

    @property
    def words(self) -> tuple[str, ...]:
        """Two syllables each: to this model any word is one token."""
        syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
        return tuple(first + second for first in syllables for second in syllables)

    def prepare(self, text: str, *, truncate: bool = False) -> "ScratchRun":
        """Split `text` into words and marks; any length will do, so `truncate` has nothing to cut.

        Raises:
            RequestError: the text has no tokens.
        """
        tokens = _tokens_of(text, "text")
        return ScratchRun(self, tokens, tokens)

    def prepare_cross(self, source: str, target: str) -> "ScratchRun":
        """Two texts, of which the target attends to the source: its tokens are the queries.

        Embeddings and projections are those of self-attention, and positions count from 0 in each text.

        Raises:
            RequestError: one of the texts has no tokens.

        >>> run = Scratch(ScratchOptions()).prepare_cross("the cat sat", "o gato")
        >>> next(run.maps([0])).weights.shape
        (4, 2, 3)
        """
        return ScratchRun(self, _tokens_of(target, "target"), _tokens_of(source, "source"))

    def projections(self) -> Projections:
        """Query, key and value matrices [d_model, d_model] from the seed."""
        o = self.options
        return seeded_projections(o.d_model, o.n_heads, o.seed, self.placing, shared=o.shared_projections)

    def embeddings(self, tokens: Tokens) -> Array:
        """A vector [d_model] for each token, from the seed and its piece alone, plus its position's encoding."""
        vectors = {piece: _vector(piece, self.options.seed, self.options.d_model) for piece in set(tokens.pieces)}
        x = np.stack([vectors[piece] for piece in tokens.pieces])
        if self.options.positions:
            x += sinusoidal(np.arange(len(tokens), dtype=np.float64), self.options.d_model)
        return self.placing(x.astype(np.float32))


def _tokens_of(text: str, what: str) -> Tokens:
    tokens = split_words(checked_text(text))
    if not tokens:
        raise RequestError(f"the {what} is empty: it gives no tokens")
    return tokens


def check_seed(seed: int) -> None:
    """See that numbers can be drawn from `seed`.

    Raises:
        RequestError: it is negative.
    """
    if seed < 0:
        raise RequestError(f"--seed must be 0 or more, got {seed}")


def seeded_projections(d_model: int, n_heads: int, seed: int, place: Place, *, shared: bool = False) -> Projections:
    """Query, key and value matrices [d_model, d_model], drawn in that order from a normal distribution.

    Its variance is 1/d_model, so that scores divided by √d_head keep about unit variance.

    Args:
        d_model, n_heads: the sizes.
        seed: 0 or more.
        place: puts each matrix where the maths is to run.
        shared: every head uses the first head's columns.

    Raises:
        RequestError: the seed is negative.
    """
    check_seed(seed)
    rng = np.random.Generator(np.random.PCG64(seed))
    matrices = [(rng.standard_normal((d_model, d_model)) / d_model**0.5).astype(np.float32) for _ in range(3)]
    if shared:
        matrices = [first_head_for_all(matrix, n_heads) for matrix in matrices]
    return Projections(*(place(matrix) for matrix in matrices))


def first_head_for_all(x: npt.NDArray[Any], n_heads: int) -> npt.NDArray[Any]:
    """The first head's columns of a matrix or bias, once for each head.

    >>> first_head_for_all(np.arange(4), 2).tolist()
    [0, 1, 0, 1]
    """
    return np.concatenate([x[..., : x.shape[-1] // n_heads]] * n_heads, axis=-1)


def open_scratch(placing: Placing = NUMPY, **options: int) -> Scratch:
    """The scratch model with these fields of `ScratchOptions`.

    Raises:
        RequestError: the sizes do not go together.
    """
    return Scratch(ScratchOptions(**options), placing)  # type: ignore[arg-type]  # a bool is an int too


@dataclass(frozen=True)
class ScratchRun:
    """A text made ready for the scratch model, or two of which one attends to the other."""

    model: Scratch
    tokens: Tokens
    key_tokens: Tokens
    """The very same tokens in self-attention."""
    notes: tuple[str, ...] = ()
    provenance: Provenance = field(default_factory=dict)

    def maps(
        self, layers: Collection[int], *, rule: Rule = EVERYTHING, single: bool = False, output: bool = False
    ) -> Iterator[AttentionMap]:
        """The one layer's map; its output is the heads' outputs joined."""
        if 0 not in layers:
            return
        model = self.model
        query = TokenVectors(model.embeddings(self.tokens), self.tokens)
        crossing = self.key_tokens is not self.tokens
        yield layer_map(
            query,
            TokenVectors(model.embeddings(self.key_tokens), self.key_tokens) if crossing else query,
            model.projections(),
            model.n_heads,
            rule=rule.placed(model.placing),
            scale=None if model.options.scale else 1.0,
            single=single,
            output=output,
        )


def _vector(piece: str, seed: int, d_model: int) -> Floats:
    digest = hashlib.blake2b(f"{seed}\0{piece}".encode(), digest_size=16).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))
    return rng.standard_normal(d_model)


_JOINING = "'’-.,_·"
"""Between two letters or digits these stay inside the word: don't, well-known, 3.14."""


def split_words(text: str) -> Tokens:
    """Words and marks of `text`, upper case kept, nothing lost but blanks.

    A word is a run of letters and digits, with apostrophes, hyphens, dots and commas inside it; a Chinese
    or Japanese character is a word of its own; any other mark or emoji too. Combining marks, and what joins
    or colours emoji, stay with the character they belong to.

    >>> split_words("Don't pay $3.14, ok?").pieces
    ("Don't", 'pay', '$', '3.14', ',', 'ok', '?')
    """
    spans: list[tuple[int, int]] = []
    for i, character in enumerate(text):
        if character.isspace():
            continue
        joins = bool(spans) and spans[-1][1] == i and _joins(text, spans[-1][0], i)
        if joins:
            spans[-1] = (spans[-1][0], i + 1)
        else:
            spans.append((i, i + 1))
    words = Tokens.of(text[first:last] for first, last in spans)
    return replace(words, spans=tuple(spans))


def _joins(text: str, first: int, i: int) -> bool:
    """Whether the character at `i` goes on with the token that began at `first` and ends just before it."""
    here = text[i]
    if _is_mark(here) or _is_skin_tone(here) or text[i - 1] == "\u200d":
        return True
    if _is_flag_half(here):
        return _is_flag_half(text[i - 1]) and i - first == 1
    base = i - 1
    while base > first and _is_mark(text[base]):
        base -= 1
    if here in _JOINING:
        return _is_letter(text[base]) and i + 1 < len(text) and _is_letter(text[i + 1])
    inside = base > first and text[base] in _JOINING
    return _is_letter(here) and (inside or _is_letter(text[base]))


def _is_mark(character: str) -> bool:
    """A combining mark, or a character that only says how its neighbours are written."""
    return unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf")


def _is_skin_tone(character: str) -> bool:
    return "\U0001f3fb" <= character <= "\U0001f3ff"


def _is_flag_half(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


_ONE_EACH = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def _is_letter(character: str) -> bool:
    """A letter, digit or mark of a script that writes words together."""
    return not _ONE_EACH.match(character) and (character.isalnum() or _is_mark(character))
