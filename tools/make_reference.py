"""Make tests/data/published_minilm.npz from the published checkpoint: python tools/make_reference.py FOLDER

FOLDER holds sentence-transformers/all-MiniLM-L6-v2 as published (tools/make_bundled.py says where it is).
The file holds what transformers makes of a few texts with it, in float32 and with eager attention:
text_I, ids_I [token] and weights_I [layer, head, query, key]. The bundled model is held against it.
"""

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoTokenizer, BertModel

PUBLISHED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TARGET = Path(__file__).parent.parent / "tests" / "data" / "published_minilm.npz"
TEXTS = (
    "Hi there!",
    "Orange is my favorite fruit",
    "O gato não comeu a maçã; dormiu à sombra.",
    "“Don't stop”, 東京 said (really?) at 3.14 p.m. — ok 😀👍",
)


def main(folder: Path) -> None:
    found = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if found != PUBLISHED_SHA256:
        sys.exit(f"{folder} is not the published checkpoint: SHA-256 {found}, expected {PUBLISHED_SHA256}")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    kind: Any = BertModel
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    arrays: dict[str, npt.NDArray[Any]] = {}
    for i, text in enumerate(TEXTS):
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            attentions = model(torch.tensor([ids]), output_attentions=True).attentions
        arrays[f"text_{i}"], arrays[f"ids_{i}"] = np.array(text), np.array(ids)
        arrays[f"weights_{i}"] = np.stack([layer[0].numpy() for layer in attentions])
        print(f"{len(ids):3} tokens: {text}")
    members: dict[str, Any] = dict(arrays)
    np.savez_compressed(TARGET, **members)
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
