"""A gguf file as a checkpoint folder in float32: python -m tools.benchmarks.checkpoint FILE.gguf FOLDER

Reading a gguf file takes as long as what is to be measured, and so it is done once.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer


def convert(file: Path, folder: Path) -> None:
    """Write the model and the tokenizer of a gguf file into a folder."""
    source: dict[str, Any] = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    config = AutoConfig.from_pretrained(**source, dtype=torch.float32)
    read = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    model: Any = AutoModelForCausalLM
    fresh = model.from_config(config)  # one that was read from gguf counts as quantized: it is not saved
    fresh.load_state_dict(read.state_dict())
    fresh.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    convert(chosen.file, chosen.folder)


if __name__ == "__main__":
    main()
