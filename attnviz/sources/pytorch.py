"""The attention of any PyTorch module: what it runs inside a `with` block is seen, and can be asked for after it."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from os import PathLike

import torch

from attnviz._version import __version__
from attnviz.errors import AttnvizError, RequestError
from attnviz.maps import AttentionMap, AttentionRecord, StackedHeads, Weights
from attnviz.sources.capture_labels import Labels
from attnviz.sources.capture_leads import leads_of
from attnviz.sources.capture_modes import Modules, has_script, watching
from attnviz.sources.capture_names import Named, heads_together, named
from attnviz.sources.capture_tags import Tags
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
    own = (one for module in there.values() for kind in (module._parameters, module._buffers) for one in kind.values())
    tags = Tags([one for one in own if one is not None], strangers_are_inputs=has_script(there))
    watch = Watch(tags, modules)
    seen = Seen(model, watch)
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


class Seen:
    """The attention that ran in a `capture` block."""

    def __init__(self, model: torch.nn.Module, watch: Watch) -> None:
        written = getattr(model, "_orig_mod", model)  # what torch.compile was given
        self._model = str(getattr(written, "original_name", type(written).__name__))  # TorchScript keeps the name
        self._watch = watch
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
        groups = named(heads_together(self._watch.attended), self._model)
        labels = Labels(tokens, key_tokens)
        maps, notes = [], [f"left out: {why}" for why in self._watch.refused]
        for group in groups:
            one, said = _map_of(group, labels, batch, n_heads)
            maps += [one] if one is not None else []
            notes += [f"{group.name}: {what}" for what in said]
        if not maps:
            raise AttnvizError("; ".join(notes) if notes else self._nothing())
        notes += [*labels.check(maps), *(f"{path or self._model}: {_GATE}" for path in self._watch.gates)]
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

    def _nothing(self) -> str:
        """Why there is no attention."""
        watch, model = self._watch, self._model
        if watch.elsewhere:
            return f"no attention ran in the modules asked for, but in {', '.join(watch.elsewhere)}"
        if not watch.operations:
            return f"no attention ran: {model} was not called inside the with block"
        if watch.gates:
            return f"no attention ran: in {', '.join(path or model for path in watch.gates)}, {_GATE}"
        if watch.softmaxes:
            return f"no attention ran: no softmax of {model} is over scores of queries and keys, and weighs values"
        return f"no attention ran: {model} has no softmax over keys"

    def _provenance(self) -> dict[str, str]:
        values = self._watch.attended[0].values
        return {
            "attnviz": __version__,
            "source": "capture",
            "model": self._model,
            "backend": "torch",
            "device": str(values.device),
            "dtype": str(values.dtype).removeprefix("torch."),
            "torch": torch.__version__,
        }


_GATE = "a softmax weighs values, but not by scores of queries and keys: it is not taken for attention"


def _map_of(
    group: Named, labels: Labels, batch: int, n_heads: int | None
) -> tuple[AttentionMap | None, tuple[str, ...]]:
    """The map of one item of the batch, or None where it cannot be verified; and what is to be said."""
    weights: list[Weights] = []
    notes: dict[str, None] = {}
    for part in group.parts:
        *sizes, n_queries, _ = part.recipe.sizes
        leads = leads_of(sizes, part.folded, part.inputs, n_queries, n_heads if len(group.parts) == 1 else None)
        if not 0 <= batch < leads.batch:
            there = f"items 0 to {leads.batch - 1} are there" if leads.batch > 1 else "only item 0 is there"
            raise RequestError(f"no item {batch} in the batch of {group.name}: {there}")
        made, said, fault = part.item(leads, batch)
        if fault is not None:
            return None, (f"left out: {fault}",)
        weights.append(made)
        notes |= dict.fromkeys(said)
    whole = weights[0] if len(weights) == 1 else StackedHeads(tuple(weights))
    n, n_queries, n_keys = whole.shape
    query, key = labels.of(group, n_queries, n_keys)
    made_map = AttentionMap(
        group.name, group.layer, tuple(range(n)), whole, query, key, stack=group.stack, kind=group.kind
    )
    return made_map, tuple(notes)
