"""Checkpoint folders as transformers writes them, opened without a network, against the weights that it gives."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from attnviz import AttnvizError, RequestError
from attnviz.attention import Rule
from attnviz.backend import placing
from attnviz.maps import ComputedWeights
from attnviz.sources.encoder import open_folder
from attnviz.sources.huggingface import HuggingFace, open_huggingface
from tests.cli import run
from tests.families import GROUPED, PICTURES, SEEN, VOCABULARY
from tests.hub import save_family, save_tokenizer
from tests.models import make_bert, wordpiece
from tests.test_pieces import byte_pairs

TEXT = "The unwanted cat sat!"
READERS = ["BERT", "DistilBERT", "ALBERT", "RoBERTa", "ModernBERT", "GPT-2", "Llama", "Mistral", "Gemma 2", "gpt-oss"]
READERS += ["MiMo-V2", "Privacy Filter"]
MORE_READERS = ["DeBERTa-v2", "GPT-NeoX", "OPT", "Bloom", "Gemma 3", "Qwen3", "Phi-3", "Mixtral", "DeepSeek-V3"]
WRITERS = ["T5", "BART", "Marian", "T5Gemma"]

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Writes a small model of a family, with a tokenizer, as transformers does."""
    return lambda name, *given, **more: save_family(tmp_path / name, name, *given, **more)


def eager(folder: Path, **given: Any) -> Any:
    from transformers import AutoModel

    model: Any = AutoModel.from_pretrained(folder, attn_implementation="eager", dtype="auto")
    with torch.no_grad():
        return model.eval()(**given, output_attentions=True)


def ids_of(text: str, tokenizer: Tokenizer | None = None) -> torch.Tensor:
    return torch.tensor([(tokenizer or wordpiece()).encode(text).ids])


@pytest.mark.parametrize("name", READERS + MORE_READERS)
def test_a_text_gives_the_models_own_weights(save: Save, name: str) -> None:
    folder = save(name)
    model = open_huggingface(folder)
    assert (model.name, model.n_layers, model.n_heads, model.writes) == (name, 3, 4, False)
    prepared = model.prepare(TEXT)
    assert prepared.tokens.text == ("[CLS]", "The", "un", "##want", "##ed", "cat", "sat", "!", "[SEP]")
    assert prepared.key_tokens is prepared.tokens
    maps = list(prepared.maps(range(3)))
    expected = eager(folder, input_ids=ids_of(TEXT)).attentions
    assert [one.layer for one in maps] == [0, 1, 2]
    for one, theirs in zip(maps, expected, strict=True):
        np.testing.assert_allclose(one.rows(0, 9), theirs[0].numpy(), atol=1e-5)
    if name in MORE_READERS:
        return
    assert {type(one.weights) for one in maps} == {ComputedWeights}


def test_only_a_model_that_keeps_its_weights_is_refused_for_them(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    """9 tokens take 2 · 4 · 4 · 9² = 2,592 bytes."""
    models = [(name, open_huggingface(save(name))) for name in ("Bloom", "Gemma 2", "gpt-oss", "Llama")]
    monkeypatch.setattr("attnviz.memory.physical_memory", lambda: 2592)
    for name, model in models:
        if name == "Bloom":
            with pytest.raises(RequestError, match="one layer of this model, which makes 4 maps of 9 × 9, would take"):
                list(model.prepare(TEXT).maps([0]))
        else:
            assert len(list(model.prepare(TEXT).maps([0]))) == 1


@pytest.mark.parametrize("name", [*READERS, *MORE_READERS, "Jamba"])
@pytest.mark.parametrize("text", [TEXT, "cat"])
def test_decoders_are_those_whose_tokens_see_none_after_them(save: Save, name: str, text: str) -> None:
    folder = save(name)
    layers = [one[0].numpy() for one in eager(folder, input_ids=ids_of(TEXT)).attentions if one is not None]
    looks_ahead = any(np.triu(weights, 1).any() for weights in layers)
    stacks = {one.stack for one in open_huggingface(folder).prepare(text).maps(range(4))}
    assert stacks == {"encoder" if looks_ahead else "decoder"}


@pytest.mark.parametrize("is_decoder", [False, True])
def test_an_encoder_that_was_made_a_decoder(tmp_path: Path, is_decoder: bool) -> None:
    folder = make_bert(tmp_path / "bert")
    rewrite(folder, is_decoder=is_decoder)
    (one,) = open_huggingface(folder).prepare(TEXT).maps([0])
    assert one.stack == ("decoder" if is_decoder else "encoder")
    assert np.triu(one.rows(0, 9), 1).any() != is_decoder


@pytest.mark.parametrize("name", WRITERS)
def test_two_texts_give_three_kinds_of_attention(save: Save, name: str) -> None:
    folder = save(name)
    model = open_huggingface(folder)
    source, target = "the cat sat on the mat", "a bird"
    run = model.prepare_both(source, target)
    assert (len(run.key_tokens), run.tokens.text) == (8, ("[CLS]", "a", "bird", "[SEP]"))
    maps = list(run.maps(range(3)))
    theirs = eager(folder, input_ids=ids_of(source), decoder_input_ids=ids_of(target))
    kinds = [("encoder", "self"), ("decoder", "self"), ("decoder", "cross")]
    expected = [theirs.encoder_attentions, theirs.decoder_attentions, theirs.cross_attentions]
    for (stack, kind), layers in zip(kinds, expected, strict=True):
        found = [one for one in maps if (one.stack, one.kind) == (stack, kind)]
        for one, weights in zip(found, layers, strict=True):
            np.testing.assert_allclose(one.rows(0, len(one.query)), weights[0].numpy(), atol=1e-5)
            assert one.query is (run.key_tokens if stack == "encoder" else run.tokens)
            assert one.key is (run.tokens if (stack, kind) == ("decoder", "self") else run.key_tokens)
    parts = [(one.stack, one.kind, one.layer) for one in run.maps([1])]
    assert parts == [("encoder", "self", 1), ("decoder", "self", 1), ("decoder", "cross", 1)]
    with pytest.raises(RequestError, match=f"{name} reads one text and writes another: give both"):
        model.prepare(source)


def test_only_the_layers_asked_for_are_kept(save: Save) -> None:
    model = open_huggingface(save("Llama"))
    prepared = model.prepare(TEXT)
    assert [one.name for one in prepared.maps([2, 0])] == ["layers.0.self_attn", "layers.2.self_attn"]
    ran: list[int] = []
    for layer, module in enumerate(model._model.layers):
        module.register_forward_hook(lambda *_, layer=layer: ran.append(layer))
    assert [one.layer for one in prepared.maps([1])] == [1]
    assert ran == [0, 1]  # and nothing after the last one


def test_layers_without_attention_have_no_map(save: Save) -> None:
    model = open_huggingface(save("Jamba"))
    assert model.n_layers == 4
    assert [one.layer for one in model.prepare(TEXT).maps(range(4))] == [1, 3]
    with pytest.raises(AttnvizError, match="no attention ran in the modules asked for"):
        list(model.prepare(TEXT).maps([0]))
    assert list(model.attending) == [1, 3]
    folder = str(model._path)
    assert "layer 1" in run("heads", TEXT, "--model", folder).text
    assert run("heads", TEXT, "--model", folder, "--format", "json").json["layers"] == [1, 3]
    assert run("heads", TEXT, "--model", folder, "--layer", "0").code == 2


@pytest.mark.parametrize("name", ["Mamba", "Mamba2"])
def test_models_without_attention_are_refused(tmp_path: Path, name: str) -> None:
    import transformers

    folder = tmp_path / name
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}
    more = {"num_heads": 4, "head_dim": 8, "n_groups": 1, "chunk_size": 4} if name == "Mamba2" else {}
    config = getattr(transformers, f"{name}Config")(**sizes, **more)
    getattr(transformers, f"{name}Model")(config).save_pretrained(folder)
    save_tokenizer(folder, wordpiece())
    with pytest.raises(AttnvizError, match=r"models without attention have none to show|no attention ran"):
        model = open_huggingface(folder)
        list(model.prepare("the cat").maps(range(model.n_layers)))
    answer = run("heads", "the cat", "--model", str(folder))
    assert (answer.code, answer.out) == (3, b"")


def test_our_own_maths_and_captured_attention_agree(tmp_path: Path) -> None:
    folder = make_bert(tmp_path / "bert")
    own, captured = open_folder(folder).prepare(TEXT), open_huggingface(folder).prepare(TEXT)
    assert own.tokens == captured.tokens
    for one, other in zip(own.maps(range(3)), captured.maps(range(3)), strict=True):
        assert (one.name, one.layer, one.heads) == (other.name, other.layer, other.heads)
        np.testing.assert_allclose(one.rows(0, 9), other.rows(0, 9), atol=1e-5)


@pytest.mark.parametrize(("dtype", "atol"), [("bfloat16", 2e-2), ("float16", 4e-3)])
def test_a_model_runs_in_the_dtype_in_which_it_was_stored(save: Save, dtype: str, atol: float) -> None:
    folder = save("Llama", dtype=getattr(torch, dtype))
    model = open_huggingface(folder)
    assert model.provenance["dtype"] == dtype
    expected = eager(folder, input_ids=ids_of(TEXT)).attentions
    for one, theirs in zip(model.prepare(TEXT).maps(range(3)), expected, strict=True):
        rows = one.rows(0, 9)
        assert rows.dtype == np.float32
        np.testing.assert_allclose(rows, theirs[0].float().numpy(), atol=atol)
    wide = open_huggingface(folder, placing("torch", "cpu", "float64"))
    assert wide.provenance["dtype"] == "float64"
    assert next(iter(wide.prepare(TEXT).maps([0]))).rows(0, 9).dtype == np.float64


def test_the_same_text_gives_the_same_numbers(save: Save) -> None:
    model = open_huggingface(save("BERT"))
    first, second = (next(iter(model.prepare(TEXT).maps([2]))).rows(0, 9) for _ in range(2))
    assert np.array_equal(first, second)


def test_provenance_names_the_weights_and_no_path(save: Save) -> None:
    folder = save("BERT")
    provenance = open_huggingface(folder).provenance
    assert (provenance["model"], provenance["source"], provenance["device"]) == ("BERT", "huggingface", "cpu")
    assert len(str(provenance["model_sha256"])) == 64
    assert str(folder.parent) not in json.dumps(provenance)


def test_byte_level_tokens(save: Save) -> None:
    tokenizer = byte_pairs()
    assert tokenizer.get_vocab_size() > VOCABULARY  # the letters of GPT-2 are among the first
    few = Tokenizer.from_str(json.dumps(_with_few_pieces(tokenizer)))
    model = open_huggingface(save("GPT-2", few))
    prepared = model.prepare("a b!")
    assert prepared.tokens.text == ("a", " ", "b", "!")
    assert prepared.tokens.pieces == ("a", "Ġ", "b", "!")


def _with_few_pieces(tokenizer: Tokenizer) -> Any:
    """The tokenizer with letters for as many bytes as a small model has embeddings for."""
    written = json.loads(tokenizer.to_str())
    letters = ["Ġ", *(chr(byte) for byte in range(0x21, 0x21 + VOCABULARY - 1))]
    written["model"] |= {"vocab": {letter: i for i, letter in enumerate(letters)}, "merges": []}
    return written


def test_texts_that_are_too_long_or_empty(save: Save) -> None:
    model = open_huggingface(save("BERT"))
    with pytest.raises(RequestError, match="the text has 62 tokens, special ones included, and the model takes at mo"):
        model.prepare("cat " * 60)
    prepared = model.prepare("cat " * 60, truncate=True)
    assert prepared.notes == ("the text has 62 tokens; only the first 40 are used",)
    assert (len(prepared.tokens), prepared.tokens.text[-1]) == (40, "[SEP]")
    assert len(next(iter(prepared.maps([0]))).query) == 40
    for empty in ("", "  "):
        with pytest.raises(RequestError, match="the text is empty"):
            model.prepare(empty)
    with pytest.raises(RequestError, match="NUL"):
        model.prepare("a\0b")


def test_positions_that_are_counted_after_the_padding(save: Save) -> None:
    """RoBERTa of 40 positions and padding 1 has room for 38 tokens."""
    model = open_huggingface(save("RoBERTa"))
    assert len(list(model.prepare("cat " * 36).maps([0]))) == 1
    with pytest.raises(RequestError, match="at most 38"):
        model.prepare("cat " * 37)


def test_what_only_our_own_models_give_is_refused(save: Save) -> None:
    prepared = open_huggingface(save("BERT")).prepare(TEXT)
    for asked, message in (
        ({"rule": Rule(causal=True)}, "--causal, --window or --mask"),
        ({"single": True}, "--single"),
        ({"output": True}, "--with-output"),
    ):
        with pytest.raises(RequestError, match=f"{message} is only for models that attnviz runs itself, not for BERT"):
            list(prepared.maps([0], **asked))
    with pytest.raises(RequestError, match="has no cross-attention"):
        open_huggingface(prepared.model._path).prepare_both("a", "b")


def rewrite(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | settings), "utf-8")


def no_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


def no_vocabulary(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-2000])


def one_missing(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["encoder.layer.1.attention.self.key.weight"]
    save_file(tensors, path, {"format": "pt"})


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def own_code(folder: Path) -> None:
    (folder / "canary.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()\n", "utf-8")
    rewrite(folder, model_type="own", auto_map={"AutoConfig": "canary.Config", "AutoModel": "canary.Model"})


def own_kernel(folder: Path) -> None:
    rewrite(folder, text_config={"_attn_implementation": "someone/kernel"})


def unknown_type(folder: Path) -> None:
    rewrite(folder, model_type="nobody-knows")


DAMAGE: dict[Callable[[Path], None], str] = {
    no_tokenizer: "has no tokenizer",
    no_vocabulary: "the tokenizer has no vocabulary|cannot be loaded",
    cut: "the weight file is damaged or incomplete",
    one_missing: r"the weights are incomplete: no encoder\.layer\.1\.attention\.self\.key\.weight \(1 missing\)",
    pickled: r"no weights in safetensors format, the only one read unasked \(pytorch_model.bin: a pickle can run code\)"
    r"; to read the weights in pytorch_model\*.bin, and run nothing, add --allow-bin",
    own_code: "asks for its own Python code",
    own_kernel: "an attention kernel from elsewhere .*'someone/kernel'",
    unknown_type: "'nobody-knows', which transformers does not support itself",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_what_is_damaged_or_unsafe_is_refused(save: Save, damage: Callable[[Path], None]) -> None:
    folder = save("BERT")
    damage(folder)
    with pytest.raises(AttnvizError, match=DAMAGE[damage]) as caught:
        open_huggingface(folder)
    assert caught.value.exit_code == 3
    assert not (folder / "ran").exists()


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="does not exist"):
        open_huggingface(tmp_path / "nothing")
    with pytest.raises(RequestError, match="it has no config"):
        open_huggingface(tmp_path)


def test_nothing_is_printed(save: Save) -> None:
    folder = save("Llama")
    program = f"""
from pathlib import Path
from attnviz.sources.huggingface import open_huggingface
model = open_huggingface(Path({str(folder)!r}))
assert len(list(model.prepare("the cat " * 30, truncate=True).maps([0]))) == 1
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("imported", [False, True])
def test_no_code_is_taken_through_the_package_for_kernels(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imported: bool
) -> None:
    import transformers
    from transformers.utils.import_utils import KERNELS_MIN_VERSION, is_kernels_available

    folder, own, seen = save("Llama"), transformers.LlamaModel.__init__, []
    (tmp_path / "site" / "kernels").mkdir(parents=True)
    (tmp_path / "site" / "kernels" / "__init__.py").touch()
    info = tmp_path / "site" / f"kernels-{KERNELS_MIN_VERSION}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kernels\nVersion: {KERNELS_MIN_VERSION}\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "kernels", raising=False)
    before = importlib.import_module("kernels") if imported else None

    def watched(self: Any, *given: Any, **more: Any) -> None:
        seen.append(is_kernels_available())
        own(self, *given, **more)

    monkeypatch.setattr(transformers.LlamaModel, "__init__", watched)
    is_kernels_available.cache_clear()
    try:
        assert is_kernels_available()
        open_huggingface(folder)
        assert seen and not any(seen)
        assert is_kernels_available()
        assert sys.modules.get("kernels") is before
    finally:
        monkeypatch.undo()
        is_kernels_available.cache_clear()


def test_the_switches_of_transformers_are_set_back(save: Save) -> None:
    from transformers.utils import logging

    switches: Any = logging
    folder = save("BERT")
    before = switches.get_verbosity(), switches.is_progress_bar_enabled()
    opened = open_huggingface(folder)
    assert isinstance(opened, HuggingFace)
    with pytest.raises(AttnvizError):
        cut(folder)
        open_huggingface(folder)
    assert (switches.get_verbosity(), switches.is_progress_bar_enabled()) == before


def composite(name: str) -> Any:
    """A small model of pictures and texts."""
    import transformers

    seen, text = {**SEEN, **PICTURES}, dict(GROUPED)
    if name == "Llava":
        return transformers.LlavaConfig(
            text_config=transformers.LlamaConfig(**text),
            vision_config=transformers.CLIPVisionConfig(**seen),
            image_token_index=90,
        )
    if name == "Gemma 3":
        return transformers.Gemma3Config(
            text_config=transformers.Gemma3TextConfig(**text, sliding_window=4),
            vision_config=transformers.SiglipVisionConfig(**seen),
            image_token_index=90,
        )
    rope = {"rope_type": "default", "mrope_section": [2, 2, 2], "rope_theta": 10000.0}
    sight = {"depth": 2, "embed_dim": 16, "hidden_size": 48, "num_heads": 2}
    return transformers.Qwen2VLConfig(text_config={**text, "rope_parameters": rope}, vision_config=sight)


@pytest.mark.parametrize("name", ["Llava", "Gemma 3", "Qwen2-VL"])
def test_the_text_part_of_models_that_also_see(tmp_path: Path, name: str) -> None:
    from transformers import AutoModel

    maker: Any = AutoModel
    torch.manual_seed(0)
    maker.from_config(composite(name)).save_pretrained(tmp_path)
    save_tokenizer(tmp_path, wordpiece())
    model = open_huggingface(tmp_path)
    assert (model.n_layers, model.n_heads) == (3, 4)
    maps = list(model.prepare(TEXT).maps(range(3)))
    assert {one.stack for one in maps} == {"decoder"}
    for one, theirs in zip(maps, eager(tmp_path, input_ids=ids_of(TEXT)).attentions, strict=True):
        np.testing.assert_allclose(one.rows(0, 9), theirs[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("name", ["Llava", "Gemma 3", "Qwen2-VL"])
def test_models_that_also_see_go_on_with_a_text(tmp_path: Path, name: str) -> None:
    from transformers import AutoModelForImageTextToText

    maker: Any = AutoModelForImageTextToText
    torch.manual_seed(0)
    writer = maker.from_config(composite(name)).eval()
    writer.save_pretrained(tmp_path)
    save_tokenizer(tmp_path, wordpiece())
    ids = ids_of(TEXT)
    with torch.no_grad():
        for _ in range(3):
            ids = torch.cat([ids, writer(input_ids=ids, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    prepared = open_huggingface(tmp_path).prepare_written(TEXT, 3)
    assert torch.equal(torch.tensor([prepared.read.ids]), ids)
    assert prepared.provenance["n_prompt_tokens"] == 9
    vocabulary = wordpiece()
    assert prepared.tokens.pieces == tuple(vocabulary.id_to_token(i) or f"<{i}>" for i in ids[0].tolist())
    for one, theirs in zip(prepared.maps(range(3)), eager(tmp_path, input_ids=ids).attentions, strict=True):
        np.testing.assert_allclose(one.rows(0, 12), theirs[0].numpy(), atol=1e-5)


def test_rows_of_learned_sinks_are_said_to_sum_to_less(save: Save) -> None:
    answer = run("heads", TEXT, "--model", str(save("gpt-oss")), "--layer", "all", "--format", "json")
    sums = np.array(answer.json["weights"]).sum(-1)
    assert sums.max() < 1
    assert "sum" in answer.err and answer.err.strip() in "\n".join(f"note: {one}" for one in answer.json["notes"])
