"""Model files in gguf format that cannot be read; `test_smollm2.py` reads one that can."""

import sys
from pathlib import Path

import pytest

from attnviz import AttnvizError, RequestError
from attnviz.sources.huggingface import open_huggingface
from tests.cli import error


@pytest.mark.parametrize("missing", ["gguf", "accelerate"])
def test_what_reads_gguf_files_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    path = tmp_path / "model.gguf"
    path.touch()
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(AttnvizError, match=rf"{missing}.* missing\): pip install 'attnviz\[hf\]'"):
        open_huggingface(path)


def test_a_gguf_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="does not exist, or is no file"):
        open_huggingface(tmp_path / "nothing.gguf")
    pytest.importorskip("gguf", reason="gguf is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    for content in (b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 64):
        (tmp_path / "broken.gguf").write_bytes(content)
        assert "cannot be loaded" in error("heads", "a b", "--model", str(tmp_path / "broken.gguf"), code=3)
