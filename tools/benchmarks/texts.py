"""Real text of a given number of tokens, from what this repository holds."""

from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

ROOT = Path(__file__).parents[2]


def excerpt(folder: str | Path, n_tokens: int) -> str:
    """The beginning of our own documents and code that has so many tokens, for the tokenizer in `folder`.

    Raises:
        ValueError: there is not so much text.
    """
    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    text = ""
    for part in _documents():
        text += part
        encoded = tokenizer.encode(text)
        added = sum(encoded.special_tokens_mask)
        if len(encoded) >= n_tokens:
            places = [place for place, own in zip(encoded.offsets, encoded.special_tokens_mask, strict=True) if not own]
            return text[: places[n_tokens - added - 1][1]]
    raise ValueError(f"there is no text of {n_tokens} tokens")


def _documents() -> Iterator[str]:
    for path in [*(ROOT / "LICENSES").glob("*.txt"), *sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("attnviz/*.py"))]:
        yield path.read_text("utf-8")
