"""How soon the command line answers, beside the imports that it cannot do without and beside a script by hand."""

import sys
from pathlib import Path

from tools.benchmarks.rows import Row, Work, pair, process

ORANGE = "Orange is my favorite fruit"
BUNDLED = Path(__file__).parents[2] / "attnviz" / "bundled" / "minilm"
ATTNVIZ = [str(Path(sys.executable).parent / "attnviz")]
FLOOR_IMPORTS = "import numpy, typer, rich.console, tokenizers, safetensors.numpy"

BY_HAND = f"""
import torch, matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
from transformers import AutoModel, AutoTokenizer
folder = {str(BUNDLED)!r}
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
inputs = tokenizer({ORANGE!r}, return_tensors="pt")
with torch.no_grad():
    weights = model(**inputs, output_attentions=True).attentions[0][0]
tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
figure, axes = plt.subplots(3, 4, figsize=(12, 9))
for head, ax in enumerate(axes.flat):
    ax.imshow(weights[head], vmin=0, vmax=1)
    ax.set_xticks(range(len(tokens)), tokens, rotation=90)
    ax.set_yticks(range(len(tokens)), tokens)
    ax.set_title(f"head {{head}}")
figure.savefig({{out!r}})
"""


def rows(folder: Path) -> list[Row]:
    typer = process(sys.executable, "-c", "import typer")
    floor = process(sys.executable, "-c", FLOOR_IMPORTS)
    heads = process(*ATTNVIZ, "heads", ORANGE)

    def beside_script() -> tuple[Work, Work]:
        script = folder / "by_hand.py"
        script.write_text(BY_HAND.replace("{out!r}", repr(str(folder / "by_hand.png"))), encoding="utf-8")
        return heads, process(sys.executable, str(script), env={"HF_HUB_OFFLINE": "1"})

    return [
        pair("`attnviz --help`", "`import typer`", lambda: (process(*ATTNVIZ, "--help"), typer), most=1.5),
        pair("`attnviz --version`", "`import typer`", lambda: (process(*ATTNVIZ, "--version"), typer), most=1.5),
        pair(f'`attnviz heads "{ORANGE}"`', "its imports alone", lambda: (heads, floor), most=2),
        pair("the same", "transformers + matplotlib by hand", beside_script, least=10, rounds=5),
    ]
