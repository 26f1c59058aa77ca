"""Tokens of models of transformers, each kind of tokenizer from the folder to the output of a command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from tests.cli import error, run
from tests.families import FAMILIES
from tests.hub import save_family, save_tokenizer
from tests.models import wordpiece
from tests.test_huggingface import eager
from tests.test_pieces import metaspace

PIECES = ["[CLS]", "[SEP]", "[PAD]", "[UNK]", "the", "un", "##want", "##ed", "cat", "!"]


def save_with(folder: Path, tokenizer: Tokenizer, name: str = "GPT-2") -> Path:
    """A small model of a family, with as many embeddings as the tokenizer needs."""
    save_family(folder, name, tokenizer)
    return save_wide(folder, name, tokenizer.get_vocab_size())


def save_wide(folder: Path, name: str, n_pieces: int) -> Path:
    import transformers
    from transformers.utils import logging

    family, bars = FAMILIES[name], logging
    torch.manual_seed(0)
    config = getattr(transformers, family.config)(**{**family.sizes, **family.more, "vocab_size": n_pieces})
    bars.disable_progress_bar()  # type: ignore[no-untyped-call]
    getattr(transformers, family.model)(config).save_pretrained(folder)
    bars.enable_progress_bar()  # type: ignore[no-untyped-call]
    return folder


def shown(folder: Path, text: str, *more: str) -> dict[str, Any]:
    answer = run("heads", text, "--model", str(folder), "--layer", "all", "--format", "json", *more)
    assert answer.code == 0
    found: dict[str, Any] = answer.json
    n = len(found["query_text"])
    assert np.array(found["weights"]).shape == (3, 4, n, n)
    return found


def byte_level() -> Tokenizer:
    """A piece for each byte, and none for [CLS]."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byt5(folder: Path) -> None:
    import transformers

    transformers.ByT5Tokenizer().save_pretrained(folder)
    save_wide(folder, "GPT-2", 400)


def slow_wordpiece(folder: Path) -> None:
    import transformers

    (folder / "vocab.txt").write_text("\n".join([*PIECES, "[X_SEP]", "[MASK]"]), "utf-8")
    kind: Any = transformers.ProphetNetTokenizer
    kind(str(folder / "vocab.txt")).save_pretrained(folder)
    save_wide(folder, "GPT-2", 12)


def slow_subwords(folder: Path) -> None:
    import transformers

    pieces = ["<unk>", "the", "un@@", "w@@", "a@@", "n@@", "t@@", "e@@", "d", "cat"]
    (folder / "pieces.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}), "utf-8")
    (folder / "merges.given").write_text("#version: 0.2\nt h\nth e</w>\nu n\nc a\nca t</w>\n", "utf-8")
    kind: Any = transformers.CTRLTokenizer
    kind(str(folder / "pieces.json"), str(folder / "merges.given")).save_pretrained(folder)
    save_wide(folder, "GPT-2", len(pieces))


SLOW: dict[Callable[[Path], None], tuple[str, list[str], list[str]]] = {
    byt5: (
        "th é😀",
        ["t", "h", " ", "⟨C3⟩", "⟨A9⟩", "⟨F0⟩", "⟨9F⟩", "⟨98⟩", "⟨80⟩"],
        list("th é") + ["é"] + ["😀"] * 4,
    ),
    slow_wordpiece: ("The unwanted cat", ["The", "un", "##want", "##ed", "cat"], ["The", "un", "want", "ed", "cat"]),
    slow_subwords: (
        "the unwanted cat",
        ["the", "un@@", "w@@", "a@@", "n@@", "t@@", "e@@", "d", "cat"],
        ["the", "un", "w", "a", "n", "t", "e", "d", "cat"],
    ),
}


@pytest.mark.parametrize("save", SLOW, ids=lambda save: save.__name__)
def test_tokenizers_written_in_python(tmp_path: Path, save: Callable[[Path], None]) -> None:
    text, expected, characters = SLOW[save]
    save(tmp_path)
    found = shown(tmp_path, text)
    own = [i for i, special in enumerate(found["query_special"]) if not special]
    assert [found["query_text"][i] for i in own] == expected
    assert [text[slice(*found["query_spans"][i])] for i in own] == characters
    words = shown(tmp_path, text, "--words")
    if save is not byt5:
        assert [one for one in words["query_text"] if not one.startswith("[")] == text.split()
    else:
        assert "é" in words["query_text"] and "😀" in words["query_text"]


def test_bytes_of_a_character_are_shown_as_bytes(tmp_path: Path) -> None:
    text = "the é😀"
    found = shown(save_with(tmp_path, byte_level()), text)
    assert found["query_tokens"][-6:] == ["Ã", "©", "ð", "Ł", "ĺ", "Ģ"]
    assert found["query_text"] == ["t", "h", "e", " ", "⟨C3⟩", "⟨A9⟩", "⟨F0⟩", "⟨9F⟩", "⟨98⟩", "⟨80⟩"]
    assert found["query_spans"][-6:] == [[4, 5], [4, 5], [5, 6], [5, 6], [5, 6], [5, 6]]
    assert shown(tmp_path, text, "--words")["query_text"] == ["the", "é😀"]
    printed = run("heads", text, "--model", str(tmp_path)).text
    assert "\ufffd" not in printed and "Ã" not in printed
    ids = torch.tensor([byte_level().encode(text).ids])
    theirs = np.stack([one[0].numpy() for one in eager(tmp_path, input_ids=ids).attentions])
    np.testing.assert_allclose(np.array(found["weights"]), theirs, atol=1e-5)


def test_sentencepiece_keeps_blanks_and_falls_back_on_bytes(tmp_path: Path) -> None:
    found = shown(save_with(tmp_path, metaspace()), "the cat é")
    assert found["query_tokens"] == ["▁the", "▁cat", "▁", "<0xC3>", "<0xA9>"]
    assert found["query_text"] == ["the", " cat", " ", "⟨C3⟩", "⟨A9⟩"]
    assert shown(tmp_path, "the cat é", "--words")["query_text"] == ["the", "cat", "é"]


def test_a_text_without_tokens_is_refused_where_nothing_is_added(tmp_path: Path) -> None:
    folder = save_with(tmp_path, byte_level())
    out = tmp_path / "x.json"
    assert "it gives no tokens" in error("heads", "", "--model", str(folder), "-o", str(out), code=2)
    assert not out.exists()


def begun() -> Tokenizer:
    """One that begins each text with [CLS]."""
    tokenizer = wordpiece()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 2)])
    return tokenizer


@pytest.mark.parametrize("typed", ["", "[CLS]", "[CLS] "])
@pytest.mark.parametrize("name", ["Llama", "GPT-2"])
def test_a_special_token_that_was_typed_is_there_once(tmp_path: Path, name: str, typed: str) -> None:
    save_family(tmp_path, name, begun())
    save_tokenizer(tmp_path, begun())
    found = shown(tmp_path, f"{typed}the cat")
    assert found["query_text"] == ["[CLS]", "the", "cat"]
    assert found["query_special"] == [not typed, False, False]  # what was typed is of the text


def test_hidden_special_tokens_are_cut_out_of_the_matrix(tmp_path: Path) -> None:
    save_family(tmp_path, "Llama")
    whole = shown(tmp_path, "the cat")
    answer = run("heads", "the cat", "--model", str(tmp_path), "--layer", "all", "--format", "json", "--hide-special")
    assert answer.json["query_text"] == answer.json["key_text"] == ["the", "cat"]
    weights = np.array(answer.json["weights"])
    np.testing.assert_array_equal(weights, np.array(whole["weights"])[:, :, 1:3, 1:3])
    assert "[CLS], [SEP] are hidden: they take" in answer.err
