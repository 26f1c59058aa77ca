"""Make the files of sample_inputs that hold numbers: python tools/make_samples.py [FOLDER]"""

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

SAMPLES = Path(__file__).parent.parent / "sample_inputs"
D_MODEL = 8
KINDS = {
    "animal": ["cachorro", "gato", "cavalo"],
    "pessoa": ["homem", "mulher", "menina"],
    "fruta": ["laranja", "banana", "manga"],
    "verbo": ["mordeu", "viu", "comeu"],
}
"""Words of one kind get vectors that are close to each other."""
SENTENCE = ["a", "menina", "viu", "o", "gato"]


def main(folder: Path = SAMPLES) -> None:
    vectors = word_vectors(np.random.default_rng(12))
    lines = [" ".join([word, *(f"{value:.4f}" for value in vector)]) for word, vector in vectors.items()]
    (folder / "palavras.pt.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rng = np.random.default_rng(8)
    articles = {word: rng.normal(0, 0.3, D_MODEL) for word in ("a", "o")}
    sentence = np.stack([(vectors | articles)[word] for word in SENTENCE])
    np.savez(
        folder / "embeddings.npz",
        embeddings=sentence.astype(np.float32),
        tokens=np.array(SENTENCE),
        Wq=matrix(rng),
        Wk=matrix(rng),
        Wv=matrix(rng),
        Wo=matrix(rng),
    )
    module = {f"{name}_linear.weight": matrix(rng) for name in ("query", "key", "value", "output")}
    bias = rng.normal(0, 0.1, D_MODEL).astype(np.float32)
    save_file({**module, "output_linear.bias": bias}, folder / "module.safetensors")


def word_vectors(rng: np.random.Generator) -> dict[str, npt.NDArray[np.float64]]:
    """A vector for each word, in the middle of its kind and a little aside."""
    vectors = {}
    for words in KINDS.values():
        middle = rng.normal(0, 1, D_MODEL)
        vectors.update({word: middle + rng.normal(0, 0.3, D_MODEL) for word in words})
    return vectors


def matrix(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """A projection."""
    return np.asarray(rng.normal(0, D_MODEL**-0.5, (D_MODEL, D_MODEL)), np.float32)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
