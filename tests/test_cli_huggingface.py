"""Models of transformers from the command line: small random ones of several families, in folders."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from attnviz import load
from attnviz.backend import placing
from attnviz.sources.registry import open_model
from tests.cli import error, run
from tests.hub import save_family
from tests.models import make_bert
from tests.test_huggingface import eager, ids_of

TEXT = "The unwanted cat sat!"
Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The folder of a family's small model, written once."""
    return cache(lambda name: save_family(tmp_path_factory.mktemp("models") / name, name))


@pytest.mark.parametrize("name", ["GPT-2", "Llama", "DistilBERT"])
def test_heads_of_any_family(folder: Folder, name: str) -> None:
    answer = run("heads", TEXT, "--model", str(folder(name)), "--layer", "all", "--format", "json")
    assert (answer.code, answer.err) == (0, "")
    weights = np.array(answer.json["weights"])
    expected = np.stack([layer[0].numpy() for layer in eager(folder(name), input_ids=ids_of(TEXT)).attentions])
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    stack = "encoder" if name == "DistilBERT" else "decoder"
    assert (answer.json["provenance"]["model"], answer.json["stack"]) == (name, stack)
    assert "stacks" not in answer.json
    assert ("decoder layer 0" in run("heads", TEXT, "--model", str(folder(name))).text) == (stack == "decoder")


@pytest.mark.parametrize(("name", "window"), [("Llama", 9), ("Mistral", 4)])
def test_grouped_queries_and_windows_are_as_many_as_there_are(folder: Folder, name: str, window: int) -> None:
    """Four heads of queries have two of keys; the weights outside the window are 0 and not merely small."""
    answer = run("heads", TEXT, "--model", str(folder(name)), "--layer", "all", "--format", "json")
    weights = np.array(answer.json["weights"])
    assert weights.shape == (3, 4, 9, 9)
    assert len({head.tobytes() for layer in weights for head in layer}) == 12
    assert ((weights > 0).sum(-1) == np.minimum(np.arange(9) + 1, window)).all()
    assert (np.triu(weights, 1) == 0).all()


@pytest.mark.parametrize("name", ["Llama", "Gemma 2"])
def test_half_precision_raises_no_alarm(tmp_path: Path, name: str) -> None:
    folder = save_family(tmp_path / name, name, dtype=torch.bfloat16)
    answer = run("heads", TEXT, "--model", str(folder), "--layer", "all", "--format", "json")
    assert (answer.code, answer.err, answer.json["notes"]) == (0, "", [])
    np.testing.assert_allclose(np.array(answer.json["weights"]).sum(-1), 1, atol=1e-2)
    assert run("check", TEXT, "--model", str(folder), "--ignore", "saturated,uniform,identical").code == 0


def test_a_decoder_is_compared_with_what_a_file_does_not_say_is_one(tmp_path: Path, folder: Folder) -> None:
    asked = ("--model", str(folder("GPT-2")), "--layer", "all")
    bare, full = str(tmp_path / "x.csv"), str(tmp_path / "x.npz")
    assert run("heads", TEXT, *asked, "-o", full, "-o", bare).code == 0
    assert {one.stack for one in load(full).maps} == {"decoder"}
    for one, other in ((bare, full), (full, bare)):
        answer = run("compare", one, other, "--tolerance", "0")
        assert answer.code == 0
        assert "only A has" not in answer.err and "only B has" not in answer.err


@pytest.mark.parametrize(
    ("text", "model"), [(TEXT, "minilm"), ("a cat\nsat", "minilm"), (TEXT, "folder"), ("on the mat", "folder")]
)
def test_our_own_maths_and_captured_attention_agree(tmp_path: Path, text: str, model: str) -> None:
    name = str(make_bert(tmp_path / "bert")) if model == "folder" else model
    own, captured = (open_model(name, {}, runner=runner).prepare(text) for runner in ("own", "pytorch"))
    assert own.tokens == captured.tokens
    for one, other in zip(own.maps(range(3)), captured.maps(range(3)), strict=True):
        assert (one.layer, one.heads) == (other.layer, other.heads)
        n = len(one.query)
        np.testing.assert_allclose(one.rows(0, n), other.rows(0, n), atol=1e-5)


def test_the_option_says_what_runs_a_model(tmp_path: Path) -> None:
    name = str(make_bert(tmp_path / "bert"))
    found = [
        run("heads", TEXT, "--model", name, "--format", "json", *more).json for more in ((), ("--source", "pytorch"))
    ]
    assert [one["provenance"]["source"] for one in found] == ["encoder", "huggingface"]
    np.testing.assert_allclose(found[0]["weights"], found[1]["weights"], atol=1e-5)
    assert "'gpu' is not one of" in error("heads", TEXT, "--source", "gpu", code=2)


@pytest.mark.parametrize("option", ["--causal", "--window=2", "--single", "--with-output"])
def test_what_only_our_own_models_give_is_refused(folder: Folder, option: str) -> None:
    said = error("heads", TEXT, "--model", str(folder("GPT-2")), option, "--format", "json", code=2)
    assert "only for models that attnviz runs itself, not for GPT-2: leave it out" in said
    assert option.partition("=")[0] in said


def test_the_backend_is_always_torch(folder: Folder) -> None:
    told = run("heads", TEXT, "--model", str(folder("Llama")), "--backend", "numpy", "--dtype", "bfloat16")
    assert told.code == 0
    assert "the model is run by torch: --backend numpy changes nothing" in told.err
    assert "torch bfloat16 on cpu" in told.text
    silent = run("heads", TEXT, "--model", str(folder("Llama")), "--backend", "torch", "--dtype", "float64")
    assert (silent.code, silent.err) == (0, "")
    assert "numpy runs on the cpu" in error("heads", TEXT, "--device", "cuda", code=2)


def test_attention_that_is_captured_is_expected_to_be_causal(folder: Folder) -> None:
    ignored = ("--ignore", "saturated,uniform,identical")
    assert run("check", TEXT, "--model", str(folder("GPT-2")), "--causal", *ignored).code == 0
    faulty = run("check", TEXT, "--model", str(folder("DistilBERT")), "--causal", *ignored)
    assert faulty.code == 1
    assert "gives weight to tokens after it" in faulty.text


@pytest.mark.parametrize("name", ["Llama", "BERT"])
def test_measures_and_the_probe(folder: Folder, name: str) -> None:
    by = ("--by", "previous,induction", "--format", "json")
    found = run("metrics", "--probe", "repeat", "--probe-words", "5", "--model", str(folder(name)), *by)
    assert found.code == 0
    assert np.array(found.json["induction"]).shape == (3, 4)
    words = open_model(str(folder(name)), {}, placing("torch")).words
    assert "cat" in words and "##ed" not in words and "[CLS]" not in words


def test_the_file_of_a_model_is_not_written_over(folder: Folder) -> None:
    name = folder("GPT-2")
    said = error("heads", TEXT, "--model", str(name), "-o", str(name / "config.json"), code=2)
    assert "is also the input" in said


SOURCE, TARGET = "the cat sat on the mat", "a bird"


@pytest.fixture(scope="module", params=["T5", "BART"])
def two_parts(request: pytest.FixtureRequest, folder: Folder) -> Path:
    """The folder of an encoder-decoder: two layers read, three write."""
    return folder(request.param)


def weights_of(folder: Path, source: str, target: str) -> dict[str, np.ndarray]:
    theirs = eager(folder, input_ids=ids_of(source), decoder_input_ids=ids_of(target))
    found = {
        "encoder": theirs.encoder_attentions,
        "decoder": theirs.decoder_attentions,
        "cross": theirs.cross_attentions,
    }
    return {name: np.stack([layer[0].numpy() for layer in layers]) for name, layers in found.items()}


@pytest.mark.parametrize(("source", "target"), [(SOURCE, TARGET), ("my favorite fruit is orange", "cat")])
def test_both_parts_and_between_them(tmp_path: Path, two_parts: Path, source: str, target: str) -> None:
    names = [f"x.{suffix}" for suffix in ("json", "npz", "safetensors", "csv", "jsonl")]
    outputs = [part for name in names for part in ("-o", str(tmp_path / name))]
    answer = run("heads", source, "--target", target, "--model", str(two_parts), "--layer", "all", *outputs)
    assert (answer.code, answer.err) == (0, "")
    expected = weights_of(two_parts, source, target)
    stacks = json.loads((tmp_path / "x.json").read_bytes())["stacks"]
    assert list(stacks) == ["encoder", "decoder", "cross"]
    for name, weights in expected.items():
        np.testing.assert_allclose(np.array(stacks[name]["weights"]), weights, atol=1e-5)
    assert stacks["cross"]["query_text"] == ["[CLS]", *target.split(), "[SEP]"]
    assert stacks["cross"]["key_text"] == stacks["encoder"]["query_text"] == ["[CLS]", *source.split(), "[SEP]"]
    first = load(tmp_path / "x.npz")
    assert (first.provenance["text"], first.provenance["target"]) == (source, target)
    for name in names:
        again = load(tmp_path / name)
        for one, other in zip(again.maps, first.maps, strict=True):
            assert (one.stack, one.kind, one.layer, one.query.text) == (
                other.stack, other.kind, other.layer, other.query.text,
            )  # fmt: skip
            assert one.rows(0, len(one.query)).tobytes() == other.rows(0, len(other.query)).tobytes()


def test_pictures_group_the_stacks(tmp_path: Path, two_parts: Path) -> None:
    both = ("--target", TARGET, "--model", str(two_parts))
    svg, text = tmp_path / "x.svg", tmp_path / "x.txt"
    answer = run("heads", SOURCE, *both, "-o", str(svg), "-o", str(text))
    assert answer.code == 0
    for title in ("layer 0", "decoder layer 0", "cross layer 0"):
        assert title in text.read_text("utf-8")
        assert title in svg.read_text("utf-8")
    assert "12 tokens" in text.read_text("utf-8")
    saved = tmp_path / "x.npz"
    assert run("heads", SOURCE, *both, "-o", str(saved)).code == 0
    shown = run("heads", "--attention", str(saved)).text
    assert [line for line in shown.splitlines() if "layer" in line] == [
        line for line in text.read_text("utf-8").splitlines() if "layer" in line
    ]


@pytest.mark.parametrize(("source", "target"), [(SOURCE, TARGET), ("my fruit", "the dog , the cat")])
def test_cross_attention(two_parts: Path, source: str, target: str) -> None:
    answer = run("cross", source, target, "--model", str(two_parts), "--format", "json")
    assert (answer.code, answer.err) == (0, "")
    for name, weights in weights_of(two_parts, source, target).items():
        np.testing.assert_allclose(np.array(answer.json["stacks"][name]["weights"]), weights, atol=1e-5)
    text = run("cross", source, target, "--model", str(two_parts)).text
    assert [line for line in text.splitlines() if "layer" in line] == ["cross layer 0"]


@pytest.mark.parametrize("command", ["heads", "cross"])
@pytest.mark.parametrize("stack", ["encoder", "decoder", "cross"])
def test_one_stack_alone(tmp_path: Path, two_parts: Path, stack: str, command: str) -> None:
    texts = (SOURCE, TARGET) if command == "cross" else (SOURCE, "--target", TARGET)
    asked = (command, *texts, "--model", str(two_parts), "--stack", stack, "--layer", "all")
    answer = run(*asked, "--format", "json", "-o", str(tmp_path / "x.npz"), "-o", "-")
    assert (answer.code, answer.err) == (0, "")
    expected = weights_of(two_parts, SOURCE, TARGET)[stack]
    np.testing.assert_allclose(np.array(answer.json["weights"]), expected, atol=1e-5)
    assert answer.json["provenance"]["stack"] == stack
    n_tokens = {"encoder": 8, "decoder": 4, "cross": 4 if command == "cross" else 12}[stack]
    assert f"{n_tokens} tokens" in run(*asked).text
    assert answer.json["layers"] == list(range(2 if stack == "encoder" else 3))
    assert run(*asked[:-1], "-1", "--format", "json").json["layers"] == answer.json["layers"][-1:]
    again = load(tmp_path / "x.npz")
    np.testing.assert_allclose(again.weights, expected, atol=1e-5)


def test_one_stack_in_every_command(tmp_path: Path, two_parts: Path) -> None:
    both = ("--target", TARGET, "--model", str(two_parts))
    weights = weights_of(two_parts, SOURCE, TARGET)
    whole = str(tmp_path / "x.npz")
    assert run("heads", SOURCE, *both, "-o", whole).code == 0
    for given in ((SOURCE, *both), ("--attention", whole)):
        found = run("metrics", *given, "--by", "largest", "--stack", "cross", "--format", "json").json
        np.testing.assert_allclose(np.array(found["largest"]), weights["cross"].max(-1).mean(-1), atol=1e-5)
        shown = run("heads", *given, "--stack", "decoder", "--query", "bird").text
        assert "query bird" in shown and "cross" not in shown
        assert "no query token 'bird'" in error("heads", *given, "--stack", "encoder", "--query", "bird", code=2)
        for stack, code in (("decoder", 0), ("encoder", 1)):  # of which one is causal
            ignored = ("--ignore", "saturated,uniform,identical")
            assert run("check", *given, "--causal", "--stack", stack, *ignored).code == code
    found = run("compare", whole, whole, "--stack", "encoder", "--tolerance", "0", "--format", "json").json
    assert {one["stack"] for one in found["heads"]} == {"encoder"}


def test_a_stack_that_is_not_there_is_refused_with_those_that_are(
    tmp_path: Path, folder: Folder, two_parts: Path
) -> None:
    np.save(tmp_path / "x.npy", np.full((2, 3, 3), 1 / 3, np.float32))
    np.savez(tmp_path / "x.npz", embeddings=np.eye(4))
    for given, there, other in (
        (("a cat",), "encoder", "cross"),
        (("a cat", "--model", "scratch"), "encoder", "decoder"),
        (("a cat", "--model", str(folder("Llama"))), "decoder", "encoder"),
        (("--attention", str(tmp_path / "x.npy")), "encoder", "cross"),
        (("--embeddings", str(tmp_path / "x.npz")), "encoder", "decoder"),
    ):
        assert run("heads", *given, "--stack", there).code == 0
        said = error("heads", *given, "--stack", other, code=2)
        assert f"has no stack {other}: --stack is {there} there, or left out" in said
    assert "--stack is cross there" in error("cross", "a", "b", "--stack", "encoder", code=2)
    assert "is not one of" in error("heads", "a", "--stack", "middle", code=2)


def test_a_token_of_either_text_can_be_asked_for(two_parts: Path) -> None:
    both = ("--target", TARGET, "--model", str(two_parts))
    read = run("heads", SOURCE, *both, "--query", "mat").text
    assert "query mat" in read and "cross" not in read and "decoder" not in read
    written = run("heads", SOURCE, *both, "--query", "bird").text
    assert "cross layer 0" in written and "\nlayer 0" not in written
    assert "no query token 'dog'" in error("heads", SOURCE, *both, "--query", "dog", code=2)


def test_each_stack_is_put_together_by_itself(two_parts: Path) -> None:
    both = ("--target", TARGET, "--model", str(two_parts), "--layer", "all", "--format", "json")
    mean = run("heads", SOURCE, *both, "--reduce", "mean", "--over", "all").json["stacks"]
    for name, weights in weights_of(two_parts, SOURCE, TARGET).items():
        np.testing.assert_allclose(np.array(mean[name]["weights"])[0, 0], weights.mean(axis=(0, 1)), atol=1e-5)
    rolled = run("heads", SOURCE, *both, "--reduce", "rollout")
    assert list(rolled.json["stacks"]) == ["encoder", "decoder"]
    assert "rollout is of self-attention: cross-attention is left out" in rolled.err


def test_measures_of_each_stack(two_parts: Path) -> None:
    by = ("--by", "entropy", "--format", "json")
    found = run("metrics", SOURCE, "--target", TARGET, "--model", str(two_parts), *by).json["stacks"]
    assert set(found) == {"encoder", "decoder", "cross"}
    weights = weights_of(two_parts, SOURCE, TARGET)["cross"]
    entropy = -(weights * np.log(weights)).sum(-1).mean(-1)
    np.testing.assert_allclose(np.array(found["cross"]["measures"]["entropy"]["values"]), entropy, atol=1e-5)


def test_what_two_texts_need_is_said(folder: Folder, two_parts: Path) -> None:
    assert "give both, with --target TEXT" in error("heads", SOURCE, "--model", str(two_parts), code=2)
    llama = str(folder("Llama"))
    for arguments in (("cross", SOURCE, TARGET), ("heads", SOURCE, "--target", TARGET)):
        assert "has no cross-attention: give it one text" in error(*arguments, "--model", llama, code=2)
    assert "reads one text and has no cross-attention" in error("cross", "a", "b", "--model", "minilm", code=2)
    assert "minilm reads a text and writes none: leave out --target" in error("heads", "a", "--target", "b", code=2)
