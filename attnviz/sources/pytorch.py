"""The attention of any PyTorch module: what it runs inside a `with` block is seen, and can be asked for after it."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from os import PathLike

import torch

from attnviz._version import __version__
from attnviz.errors import AttnvizError, RequestError
from attnviz.maps import AttentionRecord
from attnviz.sources.capture_calls import Attended
from attnviz.sources.capture_labels import Labels
from attnviz.sources.capture_maps import item_of, map_of
from attnviz.sources.capture_modes import Modules, model_name, tags_for, watching
from attnviz.sources.capture_names import heads_together, named
from attnviz.sources.capture_watch import Watch
from attnviz.tokens import Tokens

Given = Sequence[str] | Tokens | None


@contextmanager
def capture(model: torch.nn.Module, *, modules: Collection[str] | None = None) -> Iterator["Seen"]:
    """See the attention of a module, whatever it runs inside the `with` block.

    Seen are `F.scaled_dot_product_attention`, `nn.MultiheadAttention` and `nn.Transformer`, flex attention, and
    softmax(q kᵀ) v by hand; not the softmax of a classifier or a gate. Kernels leave no weights: what is kept of them
    are queries and keys, from which weights are made when they are asked for.

    The module gives what it gives without this, and is left as it was. Only what the calling thread runs is seen.
    While the block lasts, compiled modules run as they were written, in every thread, because torch has one switch
    for all; and torch's fused encoder layers run as their parts, which differ in the last digits and, as torch
    documents, at padded positions.

    Args:
        model: any module; it need not be in eval mode, but dropout shows.
        modules: paths of modules, as `named_modules` has them; attention elsewhere is not kept. All unless given.

    Raises:
        RequestError: there is no such module, or a capture goes on in this thread already.

    >>> attention = torch.nn.MultiheadAttention(6, 3, batch_first=True).eval()
    >>> with torch.inference_mode(), capture(attention) as seen:
    ...     x = torch.ones(2, 4, 6)
    ...     y, _ = attention(x, x, x)
    >>> seen.record(tokens="abcd").weights.shape
    (1, 3, 4, 4)
    """
    if not isinstance(model, torch.nn.Module):
        raise RequestError(f"capture takes a torch.nn.Module, got {type(model).__name__}")
    there = dict(model.named_modules())
    _check_paths(there, modules)
    tags, kept = tags_for(there), Kept()
    watch = Watch(tags, kept, modules)
    seen = Seen(model_name(model), watch, kept)
    try:
        with watching(there, watch):
            yield seen
    finally:
        tags.clear()
        seen._closed = True


def _check_paths(there: Modules, wanted: Collection[str] | None) -> None:
    if isinstance(wanted, str):
        raise RequestError(f"modules is a list of paths, got one string: write [{wanted!r}]")
    for path in wanted or ():
        if path not in there:
            near = get_close_matches(path, there, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise RequestError(f"the model has no module {path!r}{meant}")


class Kept:
    """Keeps copies of all attention, as the model goes on with its own tensors."""

    def __init__(self) -> None:
        self.attended: list[Attended] = []

    def keep(self, one: Attended) -> None:
        """Attention ran."""
        self.attended.append(one.copied())

    def leave(self, path: str, call: int) -> None:
        """A module ends, which is nothing to this one."""


class Seen:
    """The attention that ran in a `capture` block."""

    def __init__(self, model: str, watch: Watch, kept: Kept) -> None:
        self._model, self._watch, self._kept = model, watch, kept
        self._closed = False

    def record(
        self, tokens: Given = None, key_tokens: Given = None, batch: int = 0, *, n_heads: int | None = None
    ) -> AttentionRecord:
        """The attention of one item of the batch, one map for each time that a module attended.

        Every map is verified: on some rows, its weights times the values must be what the model computed. A map for
        which they are not is left out, and the notes of the record say why.

        Args:
            tokens: one for each query; in a model that reads one sequence and writes another, of what it writes.
                Positions unless given.
            key_tokens: one for each key of cross-attention, that is, of what such a model reads.
            batch: which item of the batch, counted from 0.
            n_heads: how many heads there are, for a module that joins heads and batch out of sight.

        Returns:
            A record whose maps make their weights when asked.

        Raises:
            AttnvizError: no attention ran, or none could be verified.
            RequestError: the block has not ended, or tokens, batch or heads do not fit.
        """
        if not self._closed:
            raise RequestError("the capture goes on: call record after the with block")
        labels = Labels(tokens, key_tokens)
        maps, notes = [], self._watch.left_out()
        for group in named(heads_together(self._kept.attended), self._model):
            heads = n_heads if len(group.parts) == 1 else None
            items = [item_of(part, group.name, batch, heads) for part in group.parts]
            one, said = map_of(group, items, labels)
            maps += [one] if one is not None else []
            notes += said
        if not maps:
            raise AttnvizError("; ".join(notes) if notes else self._watch.nothing(self._model))
        notes += [*labels.check(), *self._watch.not_taken(self._model)]
        return AttentionRecord(tuple(maps), {**self._provenance(), "text": labels.text}, tuple(notes))

    def save(
        self,
        path: str | PathLike[str],
        tokens: Given = None,
        key_tokens: Given = None,
        batch: int = 0,
        *,
        n_heads: int | None = None,
    ) -> None:
        """Write the record to `path`, in the format that its suffix names; arguments as in `record`.

        Raises:
            AttnvizError: no attention ran, or the file cannot be written.
            RequestError: no format has that suffix, or the arguments do not fit.
        """
        self.record(tokens, key_tokens, batch, n_heads=n_heads).save(path)

    def _provenance(self) -> dict[str, str]:
        values = self._kept.attended[0].values
        return {
            "attnviz": __version__,
            "source": "capture",
            "model": self._model,
            "backend": "torch",
            "device": str(values.device),
            "dtype": str(values.dtype).removeprefix("torch."),
            "torch": torch.__version__,
        }
