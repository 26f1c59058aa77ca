"""The table of measures: what each is, where it comes from, and what rows add to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from attnviz.errors import RequestError
from attnviz.measures import folds
from attnviz.measures.divergence import between_heads
from attnviz.measures.rows import Ratio, Rows, Setting
from attnviz.near import meant

Needs = Literal["nothing", "positions", "repeats", "special", "heads"]


@dataclass(frozen=True)
class Measure:
    """A number for each head: Σ value / Σ weight over the rows that are counted."""

    name: str
    title: str
    unit: str
    """`nats`, `tokens`, or `weight`, a share of the attention in 0..1."""
    low: float
    high: float | None
    """The range; None where it grows with the number of tokens."""
    meaning: str
    formula: str
    source: str
    """Who defined it, and where this differs from them."""
    rows: Callable[[Rows], Ratio]
    needs: Needs = "nothing"

    def lacks(self, setting: Setting) -> str | None:
        """Why a map has no such measure; None where it has."""
        if not setting.n_queries or not setting.n_keys:
            return "there are no queries or no keys"
        if self.needs in ("positions", "repeats") and not setting.placed:
            return "queries and keys are not the same tokens"
        if self.needs == "repeats" and not setting.copies.ranks.any():
            return "no token is repeated"
        if self.needs == "special" and not setting.special.any():
            return "there are no special tokens"
        if self.needs == "heads" and setting.n_heads < 2:
            return "one head has no other to differ from"
        return None


_ALL = (
    Measure(
        "entropy", "entropy", "nats", 0, None,
        "how evenly a row is spread: 0 for one key, ln n for all n alike",
        "mean over i of −Σⱼ A[i, j] ln A[i, j]",
        "Clark et al. 2019; not smoothed, where their code mixes in 0.0001 / n",
        folds.entropy,
    ),
    Measure(
        "span", "effective span", "tokens", 1, None,
        "how many keys a row is spread over: 1 for one key, n for all n alike",
        "mean over i of exp(entropy of row i)",
        "the exponential of Clark's entropy (perplexity), of each row and then averaged; not smoothed",
        folds.span,
    ),
    Measure(
        "distance", "mean distance", "tokens", 0, None,
        "how many tokens away the weight lies",
        "Σᵢⱼ A[i, j] |i − j| / Σᵢⱼ A[i, j]",
        "Vig and Belinkov 2019, eq. 3: one ratio over all rows of all texts; |i − j| also counts keys after the query",
        folds.distance, "positions",
    ),
    Measure(
        "self", "on itself", "weight", 0, 1,
        "weight on the token itself",
        "mean over i of A[i, i]",
        "Clark et al. 2019",
        folds.self_weight, "positions",
    ),
    Measure(
        "previous", "on the previous token", "weight", 0, 1,
        "weight on the token before",
        "mean over i ≥ 1 of A[i, i − 1]",
        "Clark et al. 2019, whose code divides by n; here by the n − 1 rows that have a token before",
        folds.previous, "positions",
    ),
    Measure(
        "next", "on the next token", "weight", 0, 1,
        "weight on the token after",
        "mean over i < n − 1 of A[i, i + 1]",
        "Clark et al. 2019, whose code divides by n; here by the n − 1 rows that have a token after",
        folds.following, "positions",
    ),
    Measure(
        "first", "on the first token", "weight", 0, 1,
        "weight on the first token, from those after it",
        "mean over i ≥ 1 of A[i, 0]",
        "row 0 is left out, which a causal mask forces to 1; sink keeps it",
        folds.first, "positions",
    ),
    Measure(
        "sink", "sink (α₀)", "weight", 0, 1,
        "weight on the first key, from every row",
        "α₀ = mean over i of A[i, 0]",
        "Gu et al. 2025, α of the first token; their sink rate is the share of heads with α₀ > 0.3, there of 64 tokens",
        folds.sink,
    ),
    Measure(
        "special", "on special tokens", "weight", 0, 1,
        "weight on what the tokenizer added, such as [CLS] and [SEP]",
        "mean over i of Σⱼ A[i, j] over special j",
        "Clark et al. 2019, all special tokens together",
        folds.special, "special",
    ),
    Measure(
        "duplicate", "on earlier copies", "weight", 0, 1,
        "weight on earlier copies of the same token",
        "mean over i with an earlier copy of Σⱼ A[i, j] over j < i, tⱼ = tᵢ",
        "TransformerLens' duplicate-token head, of the rows with a copy; on the repeat probe the stripe j = i − n",
        folds.duplicate, "repeats",
    ),
    Measure(
        "induction", "after earlier copies", "weight", 0, 1,
        "weight on what followed earlier copies of the same token",
        "mean over i with an earlier copy of Σⱼ A[i, j + 1] over j < i, tⱼ = tᵢ",
        "prefix matching of Olsson et al. 2022; on the repeat probe the stripe j = i − n + 1 of the second copy",
        folds.induction, "repeats",
    ),
    Measure(
        "largest", "row maximum", "weight", 0, 1,
        "the largest weight of a row: 1 for one key, 1 / n for all n alike",
        "mean over i of maxⱼ A[i, j]",
        "mean confidence, as of Voita et al. 2019, who leave out the end-of-sentence token",
        folds.largest,
    ),
    Measure(
        "divergence", "divergence from the other heads", "nats", 0, 0.6931471805599453,
        "how differently the other heads of its layer look: 0 for the same rows, ln 2 for no common key",
        "mean over i and the other heads B of ½ Σⱼ [A ln(A / M) + B ln(B / M)], M = (A + B) / 2",
        "Clark et al. 2019, who sum over rows and smooth; the divergence, not its root; of texts of more than 256"
        " tokens at most 32 evenly spaced rows are compared unless --every-row is given",
        between_heads, "heads",
    ),
)  # fmt: skip

MEASURES = {one.name: one for one in _ALL}
"""Each measure by its name, in the order in which they are listed."""


def measure(name: str) -> Measure:
    """The measure of that name.

    Raises:
        RequestError: there is none.
    """
    if name not in MEASURES:
        raise RequestError(f"no measure {name!r}: there are {', '.join(MEASURES)}{meant(name, MEASURES)}")
    return MEASURES[name]
