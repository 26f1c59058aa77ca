"""What a file of saved attention holds: arrays, each read when it is asked for, and the fields beside them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy.typing as npt

from attnviz.errors import AttnvizError, RequestError
from attnviz.files import kind_at
from attnviz.lazy import function
from attnviz.sources.datafiles import sizes

Parts: TypeAlias = "npt.NDArray[Any] | Sequence[npt.NDArray[Any]]"
"""An array, or one array for each layer."""

WHAT = "attention file"
RECORD_ARRAYS = ("weights", "output")
"""The arrays of a record, or of each of its stacks: then after the stack's name and a dot."""
TOKEN_FIELDS = ("tokens", "query_tokens", "key_tokens", "queries", "keys")

READERS = {
    ".npy": "attnviz.sources.saved_arrays:read_npy",
    ".npz": "attnviz.sources.saved_arrays:read_npz",
    ".safetensors": "attnviz.sources.saved_arrays:read_safetensors",
    ".json": "attnviz.sources.saved_json:read_json",
    ".jsonl": "attnviz.sources.saved_json:read_jsonl",
    ".csv": "attnviz.sources.saved_csv:read_csv",
    ".pt": "attnviz.sources.saved_torch:read_torch",
    ".pth": "attnviz.sources.saved_torch:read_torch",
}
"""The function that reads the files of each suffix: a path in, `Contents` out."""


@dataclass(frozen=True)
class SavedArray:
    """An array in a file, known before it is read."""

    name: str
    """Empty where the file holds one array without a name."""
    shape: tuple[int, ...]
    dtype: str
    """As NumPy names it, and `bfloat16`."""
    kind: str
    """NumPy's letter: `b` for booleans, `i` and `u` for integers, `f` for floats; `?` for what NumPy lacks."""
    read: Callable[[], Parts]
    """The numbers in their own dtype and byte order, mapped where the file allows it; bfloat16 as its bits."""
    layered: bool = False
    """It is a list with one array for each layer."""

    def __str__(self) -> str:
        return f"{self.name} ({sizes(self.shape)}, {self.dtype})"


@dataclass(frozen=True)
class Contents:
    """What is in a file."""

    arrays: Mapping[str, SavedArray]
    fields: Mapping[str, Any]
    """Tokens; with `schema` among them, every field of an attnviz record that is no array."""

    @property
    def is_record(self) -> bool:
        """Whether the file says that it holds a record of attnviz."""
        return "schema" in self.fields


def is_record_array(name: str) -> bool:
    """Whether a record has an array of that name.

    >>> is_record_array("weights"), is_record_array("cross.weights"), is_record_array("weights.layers")
    (True, True, False)
    """
    return name.rpartition(".")[2] in RECORD_ARRAYS


def pooled_message(path: Path) -> str:
    """What is said of a file of pooled maps, which are no attention that could be looked at again."""
    return f"{path} holds tiles of --tiles, and not every weight: write it without --tiles to look at it again"


def in_memory(name: str, array: npt.NDArray[Any]) -> SavedArray:
    """An array that has been read."""
    return SavedArray(name, array.shape, array.dtype.name, array.dtype.kind, lambda: array)


def read_contents(path: Path) -> Contents:
    """What the file at `path` holds, by its suffix.

    Raises:
        RequestError: there is no such file, its suffix is none of `READERS`, or what is in it is of no use here.
        AttnvizError: it is damaged, or a package that reads it is not installed.
    """
    kind = kind_at(path)
    if kind != "file":
        found = {"nothing": "does not exist", "folder": "is a folder: name a file in it"}
        raise RequestError(f"{WHAT} {path} {found.get(kind, 'is a pipe or a device: save it to a file first')}")
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise RequestError(f"{WHAT} {path} has the suffix {path.suffix!r}: {', '.join(READERS)} can be read")
    try:
        contents: Contents = function(READERS[suffix])(path)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise AttnvizError(f"{path} is read with torch: pip install 'attnviz[torch]'") from None
    return contents
