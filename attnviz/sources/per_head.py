"""Lists of one matrix for each head, as `W_q[h]` in a lesson and `W_q.0` in a state dict, made one array each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from attnviz.errors import RequestError
from attnviz.sources.datafiles import StoredArray, sizes

_NAME = re.compile(
    r"(?P<before>(?:.*\.)?)(?P<letter>[Ww])(?P<which>_?[qkvo])"
    r"(?:\.(?P<dotted>[0-9]{1,5})|\[(?P<indexed>[0-9]{1,5})\])(?P<linear>\.weight|\.bias)?"
)


@dataclass(frozen=True)
class _OfOneHead:
    """What the name of an array of one head says."""

    together: str
    """The name of the array of all heads."""
    head: int
    transposed: bool
    """[out, in], as linear layers of torch hold it."""


def _read_name(name: str) -> _OfOneHead | None:
    """What `name` says, where it is that of a matrix of one head.

    >>> _read_name("attn.W_q.2"), _read_name("Wk[1].bias").together, _read_name("layers.0")
    (_OfOneHead(together='attn.W_q', head=2, transposed=False), 'bk', None)
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    letter = "b" if match["linear"] == ".bias" else match["letter"]
    head = int(match["dotted"] or match["indexed"])
    return _OfOneHead(match["before"] + letter + match["which"], head, match["linear"] == ".weight")


def heads_together(arrays: Mapping[str, StoredArray]) -> dict[str, StoredArray]:
    """The same arrays, with every list of one matrix for each head as one array [head, d_in, d_head].

    A list of linear layers of torch, `W_q.0.weight` and `W_q.0.bias`, is one of matrices and one of biases.

    Raises:
        RequestError: a head is missing, the matrices of a list differ in shape, or all heads are there as well.
    """
    together: dict[str, StoredArray] = {}
    lists: dict[str, dict[int, StoredArray]] = {}
    for name, stored in arrays.items():
        one = _read_name(name)
        if one is None:
            together[name] = stored
        elif one.head in lists.setdefault(one.together, {}):
            twice = lists[one.together][one.head].name
            raise RequestError(f"the file holds {twice} and {name}, which mean the same: one is needed")
        else:
            lists[one.together][one.head] = _turned(stored) if one.transposed else stored
    for name, heads in lists.items():
        if name in together:
            raise RequestError(
                f"the file holds {name} and {heads[min(heads)].name}, which mean the same: one is needed"
            )
        together[name] = _stacked(name, heads)
    return together


def _stacked(name: str, heads: Mapping[int, StoredArray]) -> StoredArray:
    missing = [head for head in range(len(heads)) if head not in heads]
    if missing:
        held = ", ".join(map(str, sorted(heads)))
        raise RequestError(f"the file holds {name} for heads {held}: that for head {missing[0]} is missing")
    each = [heads[head] for head in range(len(heads))]
    if len({one.shape for one in each}) > 1:
        held = ", ".join(sizes(one.shape) for one in each)
        raise RequestError(f"the matrices of {name} are {held}: one shape for every head is needed")
    kinds = {one.kind for one in each}
    kind = each[0].kind if len(kinds) == 1 else next((one for one in kinds if one not in "fiu"), "f")

    return StoredArray(
        name, (len(each), *each[0].shape), each[0].dtype, kind, lambda: np.stack([one.read() for one in each])
    )


def _turned(stored: StoredArray) -> StoredArray:
    """The transpose: a linear layer of torch holds [out, in]."""
    return replace(stored, shape=stored.shape[::-1], read=lambda: stored.read().T)
