"""Pairs of texts, chats, and texts that a model goes on with, against what transformers makes of them itself."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from attnviz import AttnvizError, RequestError, load
from attnviz.sources.encoder import open_folder
from attnviz.sources.huggingface import open_huggingface
from tests.cli import error, run
from tests.families import FAMILIES
from tests.hub import save_family, save_tokenizer
from tests.models import make_bert, wordpiece
from tests.test_huggingface import eager

Folder = Callable[[str], Path]
CHAT = (
    "{% for m in messages %}[CLS] {{ m['role'] }} {{ m['content'] }} [SEP]{% endfor %}"
    "{% if add_generation_prompt %} a{% endif %}"
)
PAIRS = [("the cat sat", "a bird"), ("my favorite fruit is orange .", "cafés")]


def plain() -> Tokenizer:
    """Without a token after the text, so that a text goes on."""
    tokenizer = wordpiece()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 2)])
    return tokenizer


WRITERS = {
    "T5": "T5ForConditionalGeneration",
    "GPT-2": "GPT2LMHeadModel",
    "Gemma 2": "Gemma2ForCausalLM",
    "gpt-oss": "GptOssForCausalLM",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A model of a family that writes, with a chat template; random, so that what it writes is too."""

    def write(name: str) -> Path:
        import transformers
        from transformers.utils import logging

        bars: Any = logging
        folder = tmp_path_factory.mktemp("models") / name
        family = FAMILIES[name]
        writer = WRITERS.get(name, f"{name}ForCausalLM")
        torch.manual_seed(1)
        sizes = {**family.sizes, **family.more, "vocab_size": 41, "eos_token_id": 40, "tie_word_embeddings": False}
        config = getattr(transformers, family.config)(**{**sizes, "decoder_start_token_id": 0, "pad_token_id": 0})
        bars.disable_progress_bar()
        getattr(transformers, writer)(config).save_pretrained(folder)
        bars.enable_progress_bar()
        save_tokenizer(folder, plain(), chat_template=CHAT)
        return folder

    return cache(write)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_pairs_are_read_as_pairs(tmp_path: Path, first: str, second: str) -> None:
    folder = make_bert(tmp_path / "bert")
    encoding = wordpiece().encode(first, second)
    theirs = eager(
        folder, input_ids=torch.tensor([encoding.ids]), token_type_ids=torch.tensor([encoding.type_ids])
    ).attentions
    whole = f"{first}\n{second}"
    for opened in (open_folder(folder), open_huggingface(folder)):
        prepared = opened.prepare_pair(first, second)
        assert prepared.provenance == {"pair": second}
        assert prepared.tokens.text.count("[SEP]") == 2
        read = [whole[slice(*span)] for span, added in zip(prepared.tokens.spans, prepared.tokens.special, strict=True)
                if not added]  # fmt: skip
        assert "".join(read) == whole.replace(" ", "").replace("\n", "")
        for one, weights in zip(prepared.maps(range(3)), theirs, strict=True):
            np.testing.assert_allclose(one.rows(0, len(one.query)), weights[0].numpy(), atol=1e-5)
    answer = run("heads", first, "--pair", second, "--model", str(folder), "--layer", "all", "--format", "json").json
    np.testing.assert_allclose(np.array(answer["weights"]), np.stack([one[0].numpy() for one in theirs]), atol=1e-5)
    assert (answer["provenance"]["text"], answer["provenance"]["pair"]) == (first, second)


def test_pairs_that_are_too_long_are_cut(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "bert")
    for opened in (open_folder(folder), open_huggingface(folder)):
        with pytest.raises(RequestError, match="has 43 tokens, special ones included, and the model takes at most 29"):
            opened.prepare_pair("cat " * 30, "dog " * 10)
        prepared = opened.prepare_pair("cat " * 30, "dog " * 10, truncate=True)
        assert len(prepared.tokens) == 29
        assert prepared.tokens.text.count("[SEP]") == 2
        assert "only the first 29" in prepared.notes[0]


@pytest.mark.parametrize("text", ["the cat", "is my dog a bird"])
def test_a_chat_is_put_into_the_models_template(folder: Folder, text: str) -> None:
    prompt = f"[CLS] user {text} [SEP] a"
    ids = wordpiece().encode(prompt, add_special_tokens=False).ids
    answer = run("heads", text, "--chat", "--model", str(folder("Llama")), "--layer", "all", "--format", "json").json
    theirs = eager(folder("Llama"), input_ids=torch.tensor([ids])).attentions
    np.testing.assert_allclose(np.array(answer["weights"]), np.stack([one[0].numpy() for one in theirs]), atol=1e-5)
    said = answer["provenance"]
    assert (said["text"], said["chat"], said["prompt"]) == (text, True, prompt)
    assert [piece for piece, one in zip(answer["query_tokens"], answer["query_special"], strict=True) if one] == [
        "[CLS]", "[SEP]",
    ]  # fmt: skip
    assert [prompt[slice(*span)] for span in answer["query_spans"]][-1] == "a"


@pytest.mark.parametrize("name", ["Llama", "GPT-2", "Gemma 2", "gpt-oss"])
@pytest.mark.parametrize(("text", "n_tokens"), [("the cat", 4), ("my dog is on the", 1)])
def test_a_text_goes_on_and_is_run_whole(folder: Folder, name: str, text: str, n_tokens: int) -> None:
    read = plain().encode(text).ids
    ids = [*read, *likeliest(folder(name), read, n_tokens)]
    asked = ("--generate", str(n_tokens), "--model", str(folder(name)), "--layer", "all", "--format", "json")
    answer = run("heads", text, *asked)
    weights = np.array(answer.json["weights"])
    theirs = eager(folder(name), input_ids=torch.tensor([ids])).attentions
    np.testing.assert_allclose(weights, np.stack([one[0].numpy() for one in theirs]), atol=1e-5)
    assert weights.shape == (3, 4, len(ids), len(ids))
    assert answer.json["query_tokens"] == [wordpiece().id_to_token(one) for one in ids]
    last = len(ids) - 1
    where = f"token {last} was" if n_tokens == 1 else f"tokens {len(read)} to {last} were"
    assert f"tokens 0 to {len(read) - 1} are the prompt; {where} generated: " in answer.json["notes"][0]
    said = answer.json["provenance"]
    assert (said["generate"], said["n_prompt_tokens"], said["text"]) == (n_tokens, len(read), text)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ((), [0, 0, 0, 0, 1, 1, 1]),
        (("--words",), [0, 0, 0, 1, 1, 1]),
        (("--hide-special",), [0, 0, 0, 1, 1, 1]),
        (("--query", "-1"), [1]),
    ],
)
def test_what_was_generated_is_marked_token_by_token(
    folder: Folder, tmp_path: Path, more: tuple[str, ...], expected: list[int]
) -> None:
    """The text is [CLS] un ##want cat, and three tokens are written after it."""
    files = [tmp_path / f"x.{name}" for name in ("json", "npz", "safetensors", "jsonl")]
    asked = ("--generate", "3", "--model", str(folder("Llama")), *more)
    assert run("heads", "unwant cat", *asked, *(f"-o{path}" for path in files)).code == 0
    written = json.loads(files[0].read_bytes())
    assert written["query_generated"] == [bool(one) for one in expected]
    for path in files:
        (first, *_) = load(path).maps
        assert first.query.generated == tuple(map(bool, expected))
        keys = expected if "--query" not in more else [0, 0, 0, 0, 1, 1, 1]
        assert first.key.generated == tuple(map(bool, keys))
    assert "query_generated" not in run("heads", "unwant cat", *asked[2:], "--format", "json").json


def test_what_an_encoder_decoder_generated_is_marked(folder: Folder) -> None:
    """It begins to write with a token that is given to it."""
    answer = run("heads", "the cat", "--generate", "3", "--model", str(folder("T5")), "--format", "json").json
    stacks, n_written = answer["stacks"], len(answer["stacks"]["decoder"]["query_tokens"])
    marks = [False] + [True] * (n_written - 1)
    assert stacks["decoder"]["query_generated"] == stacks["decoder"]["key_generated"] == marks
    assert stacks["cross"]["query_generated"] == marks
    assert "key_generated" not in stacks["cross"] and "query_generated" not in stacks["encoder"]


@pytest.mark.parametrize("name", ["Llama", "T5"])
def test_the_likeliest_tokens_are_written_whatever_the_model_prefers(folder: Folder, tmp_path: Path, name: str) -> None:
    """Beams and lots would make several texts, and steps of several rows."""
    asked = ("heads", "the cat", "--generate", "3", "--layer", "all", "--format", "json", "--model")
    plainly = run(*asked, str(folder(name))).json
    copy = tmp_path / name
    shutil.copytree(folder(name), copy)
    settings = json.loads((copy / "generation_config.json").read_text("utf-8"))
    settings |= {"num_beams": 3, "num_return_sequences": 2, "do_sample": True, "temperature": 9.0, "top_k": 5}
    settings |= {"return_dict_in_generate": True, "output_attentions": True}
    (copy / "generation_config.json").write_text(json.dumps(settings), "utf-8")
    again = run(*asked, str(copy))
    assert again.code == 0
    assert again.json["provenance"] == plainly["provenance"]
    assert again.json.get("weights") == plainly.get("weights") and again.json.get("stacks") == plainly.get("stacks")


def likeliest(folder: Path, ids: list[int], n_tokens: int) -> list[int]:
    """What a model writes, step by step, without a cache."""
    from transformers import AutoModelForCausalLM

    writer: Any = AutoModelForCausalLM
    model = writer.from_pretrained(folder, attn_implementation="eager").eval()
    written: list[int] = []
    with torch.no_grad():
        for _ in range(n_tokens):
            logits = model(input_ids=torch.tensor([[*ids, *written]]), use_cache=False).logits
            written.append(int(logits[0, -1].argmax()))
    return written


@pytest.mark.parametrize(("text", "n_tokens"), [("the cat", 3), ("a bird sat on my mat", 2)])
def test_what_a_model_of_two_parts_writes(folder: Folder, text: str, n_tokens: int) -> None:
    asked = ("--generate", str(n_tokens), "--model", str(folder("T5")), "--layer", "all", "--format", "json")
    answer = run("heads", text, *asked)
    stacks, read = answer.json["stacks"], plain().encode(text)
    assert stacks["encoder"]["query_tokens"] == read.tokens
    written = stacks["decoder"]["query_tokens"]
    assert written[0] == "[PAD]" and 2 <= len(written) <= n_tokens + 1
    ids = [wordpiece().token_to_id(piece) for piece in written]
    theirs = eager(folder("T5"), input_ids=torch.tensor([read.ids]), decoder_input_ids=torch.tensor([ids]))
    for name, layers in (("cross", theirs.cross_attentions), ("decoder", theirs.decoder_attentions)):
        found = np.array(stacks[name]["weights"])
        np.testing.assert_allclose(found, np.stack([one[0].numpy() for one in layers]), atol=1e-5)
    assert f"tokens 0 to {len(written) - 1} were generated: " in answer.json["notes"][0]


def test_a_chat_is_answered(folder: Folder) -> None:
    answer = run("heads", "the cat", "--chat", "--generate", "2", "--model", str(folder("Llama")), "--format", "json")
    said = answer.json["provenance"]
    assert said["prompt"] == "[CLS] user the cat [SEP] a"
    assert len(answer.json["query_tokens"]) == said["n_prompt_tokens"] + 2


def test_what_cannot_be_written_is_refused(folder: Folder, tmp_path: Path) -> None:
    bert, bare = str(make_bert(tmp_path / "bert")), str(save_family(tmp_path / "bare", "Llama"))
    assert "reads a text and writes none: leave out --generate" in error(
        "heads", "a", "--generate", "2", "--model", bert, code=2
    )
    asked = ("heads", "a", "--generate", "2", "--model")
    assert "does not tell which token comes next" in error(*asked, bert, "--source", "pytorch", code=2)
    assert "does not tell which token comes next" in error(*asked, bare, code=2)
    assert "the model has no chat template: leave out --chat" in error("heads", "a", "--chat", "--model", bare, code=2)
    llama = str(folder("Llama"))
    for both in (("--pair", "b", "--generate", "2"), ("--chat", "--pair", "b"), ("--target", "b", "--chat")):
        assert "do not go together" in error("heads", "a", *both, "--model", llama, code=2)
    assert "reads no pairs" in error("heads", "a", "--pair", "b", "--model", "scratch", code=2)
    with pytest.raises(RequestError, match="takes at most 40"):
        open_huggingface(folder("Llama")).prepare_written("cat " * 30, 20)


@pytest.mark.parametrize("name", ["Llama", "T5"])
def test_a_model_that_writes_is_loaded_once(folder: Folder, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from transformers import PreTrainedModel

    loads, own = [], PreTrainedModel.from_pretrained.__func__  # type: ignore[attr-defined]

    def counted(kind: Any, *given: Any, **more: Any) -> Any:
        loads.append(kind)
        return own(kind, *given, **more)

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", classmethod(counted))
    assert run("heads", "the cat", "--generate", "2", "--model", str(folder(name))).code == 0
    assert len(loads) == 1


def test_what_a_models_preferences_cannot_do_is_said(folder: Folder, tmp_path: Path) -> None:
    shutil.copytree(folder("Llama"), tmp_path / "Llama")
    settings = json.loads((tmp_path / "Llama" / "generation_config.json").read_text("utf-8"))
    settings |= {"constraints": 3, "force_words_ids": [[1]]}
    (tmp_path / "Llama" / "generation_config.json").write_text(json.dumps(settings), "utf-8")
    said = error("heads", "a", "--generate", "2", "--model", str(tmp_path / "Llama"), code=3)
    assert "Llama cannot go on with the text: " in said


def test_a_head_that_is_missing_is_said(folder: Folder, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    for path in folder("Llama").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    model = open_huggingface(tmp_path)
    assert len(list(model.prepare("the cat").maps(range(3)))) == 3
    with pytest.raises(AttnvizError, match=r"no lm_head\.weight \(1 missing\)"):
        model.prepare_written("the cat", 2)
