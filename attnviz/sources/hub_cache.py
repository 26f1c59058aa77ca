"""What Hugging Face libraries have fetched to this machine: a folder for each model, and in it its snapshots."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)


def is_hub_name(model: str) -> bool:
    """Whether a model may be called so on the Hub, rather than be a path.

    >>> is_hub_name("owner/name"), is_hub_name("gpt2"), is_hub_name("./gpt2"), is_hub_name("a/b/c")
    (True, True, False, False)
    """
    return _NAME.fullmatch(model) is not None and ".." not in model


def snapshot_of(name: str) -> Path | None:
    """The newest snapshot of a model: the one that its main branch was at, else the last that came.

    Args:
        name: `owner/name`, or for the oldest models `name`.
    """
    folder = hub_cache() / f"models--{name.replace('/', '--')}"
    snapshots = [path for path in folder.glob("snapshots/*") if path.is_dir()]
    main = folder / "refs" / "main"
    commit = main.read_text("utf-8").strip() if main.is_file() else None
    return max(snapshots, key=lambda path: (path.name == commit, path.stat().st_mtime, path.name), default=None)


def cached_models() -> Iterator[tuple[str, Path]]:
    """The models in the cache: the name of each, and its newest snapshot."""
    for folder in sorted(hub_cache().glob("models--*")):
        name = folder.name.removeprefix("models--").replace("--", "/")
        snapshot = snapshot_of(name)
        if snapshot is not None:
            yield name, snapshot


def hub_cache() -> Path:
    """Where Hugging Face libraries keep what they fetch."""
    home = os.environ.get("HF_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"))
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()
