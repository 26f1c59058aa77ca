"""Saved attention in pt and pth files, as `torch.save` writes tensors, and tuples, lists and dicts of tensors."""

import warnings
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from attnviz.errors import AttnvizError, RequestError
from attnviz.sources.datafiles import sizes
from attnviz.sources.saved_contents import TOKEN_FIELDS, Contents, SavedArray


def read_torch(path: Path) -> Contents:
    """The tensors in a file, mapped; nothing in it is executed.

    A tuple or list of tensors of one shape, such as the `attentions` of transformers, has one for each layer.

    Raises:
        RequestError: the tensors of a list differ in shape or type.
        AttnvizError: it is damaged, or holds more than tensors.
    """
    loaded = _loaded(path)
    if isinstance(loaded, dict):
        fields = {str(name): value for name, value in loaded.items() if name in TOKEN_FIELDS}
        arrays = {str(name): _saved(str(name), value, path) for name, value in loaded.items() if _is_tensors(value)}
        return Contents({name: one for name, one in arrays.items() if name not in fields}, fields)
    if not _is_tensors(loaded):
        raise AttnvizError(f"{path} holds {type(loaded).__name__}, not tensors: save tuple(outputs.attentions)")
    return Contents({"": _saved("", loaded, path)}, {})


def _loaded(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except OSError as error:
        raise AttnvizError(f"{path} cannot be read: {error.strerror or error}") from error
    except (Exception, RecursionError):  # what torch says of it is advice to execute what is in the file
        raise AttnvizError(
            f"{path} is damaged, or holds objects: tensors, and tuples, lists and dicts of them, are read, and"
            " nothing in a file is executed; save tuple(outputs.attentions)"
        ) from None


def _is_tensors(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return bool(value) and all(isinstance(part, torch.Tensor) for part in value)
    return isinstance(value, torch.Tensor)


def _saved(name: str, value: Any, path: Path) -> SavedArray:
    tensors = [value] if isinstance(value, torch.Tensor) else list(value)
    first, what = tensors[0], f"{path}:{name}" if name else str(path)
    for i, one in enumerate(tensors):
        if (one.shape, one.dtype) != (first.shape, first.dtype):
            both = " and ".join(f"{sizes(tuple(part.shape))} {_dtype(part)}" for part in (first, one))
            raise RequestError(f"{what} is a list of unlike tensors, 0 and {i}: {both}; one for each layer is needed")
        if one.layout != torch.strided or one.is_meta:
            raise RequestError(f"{what} holds a {one.layout} tensor on {one.device}: save it as a dense one")
    layered = not isinstance(value, torch.Tensor)
    shape = (len(tensors), *first.shape) if layered else tuple(first.shape)
    read = partial(_read, tensors, layered)
    return SavedArray(name, tuple(map(int, shape)), _dtype(first), _kind(first), read, layered)


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _kind(tensor: torch.Tensor) -> str:
    if tensor.dtype == torch.bool:
        return "b"
    if tensor.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        return "f"
    return "i" if _dtype(tensor).startswith(("int", "uint")) else "?"


def _read(tensors: list[torch.Tensor], layered: bool) -> npt.NDArray[Any] | list[npt.NDArray[Any]]:
    arrays = [_numpy(one.detach()) for one in tensors]
    return arrays if layered else arrays[0]


def _numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()
