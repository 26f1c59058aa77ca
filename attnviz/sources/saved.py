"""Attention that was saved: by attnviz, or by anyone as an array."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np

from attnviz._version import __version__
from attnviz.attention import EVERYTHING, Rule
from attnviz.errors import AttnvizError, RequestError
from attnviz.files import kind_at
from attnviz.maps import AttentionMap, AttentionRecord, Kind, Provenance
from attnviz.pooled import POOLED
from attnviz.schema import from_fields, stacks_of
from attnviz.sources.datafiles import sha256_of
from attnviz.sources.masks import split_name
from attnviz.sources.model import Part
from attnviz.sources.parts import check_part, part_of
from attnviz.sources.saved_axes import layers_of
from attnviz.sources.saved_contents import (
    READERS,
    WHAT,
    Contents,
    SavedArray,
    is_record_array,
    pooled_message,
    read_contents,
)
from attnviz.sources.token_files import TokenSources, read_token_file
from attnviz.tokens import Tokens

RECORD_SUFFIXES = (".npz", ".json", ".jsonl", ".csv", ".safetensors")
KNOWN_NAMES = ("attention", "attentions", "weights")
"""What people call the weights: chosen before arrays of other names."""


@dataclass(frozen=True)
class Saved:
    """Attention from a file: a model and its text at once."""

    name: str
    """The name of the file, without its folder."""
    held: tuple[AttentionMap, ...]
    """One for each layer that the file holds."""
    provenance: Provenance
    notes: tuple[str, ...]
    """What was taken for granted, and what a record says of itself."""

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of the layers held: 0 onwards, but for records of chosen layers."""
        return tuple(sorted({one.layer for one in self.held}))

    @property
    def heads(self) -> tuple[int, ...]:
        """The numbers of the heads held, in ascending order; without those that have names."""
        return tuple(sorted({head for one in self.held for head in one.heads if isinstance(head, int)}))

    def of(self, part: Part) -> "Saved":
        """What is held of one part.

        Raises:
            RequestError: nothing is.
        """
        there = dict.fromkeys(map(part_of, self.held))
        check_part(part, there, self.name)
        said = {"stack": part} if len(there) > 1 else {}
        held = tuple(one for one in self.held if part_of(one) == part)
        return replace(self, held=held, provenance={**self.provenance, **said})

    @property
    def gives_output(self) -> bool:
        """Whether the attention output was saved with the weights."""
        return all(one.output is not None for one in self.held)

    @property
    def tokens(self) -> Tokens:
        """The tokens that attend; where one text attends to another, those of the first."""
        return self._crossing.query

    @property
    def key_tokens(self) -> Tokens:
        """The tokens attended to; in self-attention the very same object as `tokens`."""
        return self._crossing.key

    @property
    def _crossing(self) -> AttentionMap:
        return next((one for one in self.held if one.kind == "cross"), self.held[0])

    def maps(
        self, layers: Collection[int], *, rule: Rule = EVERYTHING, single: bool = False, output: bool = False
    ) -> Iterator[AttentionMap]:
        """The maps of `layers`, in order; their rows are read from the file when they are asked for.

        Raises:
            RequestError: a layer is not held, the output was not saved, or projections would be needed, as for a
                rule of what may be attended and for the full-width head.
        """
        if single or rule.causal or rule.window is not None or rule.keys is not None or rule.mask is not None:
            option = "--single" if single else "--causal, --window or --mask"
            raise RequestError(
                f"{self.name} holds weights, and {option} needs projections: use a model or --embeddings"
            )
        if output and not self.gives_output:
            raise RequestError(f"{self.name} holds no attention output: leave out --with-output")
        for layer in layers:
            if layer not in self.layers:
                there = ",".join(map(str, self.layers))
                raise RequestError(f"{self.name} does not hold layer {layer}: choose from --layer {there}")
        wanted = [one for one in self.held if one.layer in layers]
        return iter(wanted if output else [replace(one, output=None) for one in wanted])


def split_array(typed: str) -> tuple[Path, str | None]:
    """The file of attention, and the array in it, that `FILE:NAME` names.

    >>> split_array("run.npz:attentions")[1]
    'attentions'
    """
    return split_name(typed, READERS)


def is_saved(typed: str) -> bool:
    """Whether what is typed names a file of saved attention, rather than a text: one that is there, or by its suffix.

    >>> is_saved("Orange is my favorite fruit"), is_saved("look at run.npz"), is_saved("no-such-file.npz")
    (False, False, True)
    """
    path, _ = split_array(typed)
    return path.suffix.lower() in READERS and (kind_at(path) == "file" or len(typed.split()) == 1)


def open_saved(
    path: Path,
    *,
    array: str | None = None,
    tokens: Path | None = None,
    key_tokens: Path | None = None,
    batch: int | None = None,
) -> Saved:
    """The attention in a file: a record of attnviz, or an array of weights with 2 to 5 axes.

    Args:
        path: a file with one of the suffixes of `READERS`.
        array: which array, where the file names several.
        tokens, key_tokens: files with the tokens of the queries and of the keys; those in the file itself, or
            numbers, unless given.
        batch: which entry, where the array has a batch axis.

    Raises:
        RequestError: a file or array is not there, or is none of weights; the tokens do not fit it.
        AttnvizError: a file is damaged, or cannot be read here.
    """
    contents, file = read_contents(path), f"{WHAT} {path}"
    given, for_keys = (None if one is None else read_token_file(one) for one in (tokens, key_tokens))
    sources = TokenSources(given, for_keys, contents.fields, file)
    if contents.is_record:
        if batch is not None or array not in (None, "weights"):
            raise RequestError(
                f"{file} is a record of attnviz: leave out {'--batch' if array is None else f':{array}'}"
            )
        return _of_record(contents, path, sources)
    chosen, notes = _chosen(contents.arrays, array, path)
    suffix = f":{chosen.name}" if chosen.name else ""
    layers, inferred = layers_of(chosen, batch, f"{file}{suffix}")
    if inferred is not None:
        notes = (*notes, f"{path.name}{suffix} is {inferred}")
    query, key = sources.resolve(*layers[0].shape[1:])
    provenance: Provenance = {
        "attnviz": __version__, "source": "saved", "model": path.name, "sha256": sha256_of(path),
        "array": chosen.name, "shape": list(chosen.shape), "stored_dtype": chosen.dtype,
        "backend": "numpy", "device": "cpu", "dtype": layers[0].rows(0, 0).dtype.name, "text": "",
    }  # fmt: skip
    kind: Kind = "self" if key is query else "cross"
    maps = (
        AttentionMap(f"layer.{i}", i, tuple(range(weights.shape[0])), weights, query, key, kind=kind)
        for i, weights in enumerate(layers)
    )
    return Saved(path.name, tuple(maps), provenance, notes)


def _of_record(contents: Contents, path: Path, sources: TokenSources) -> Saved:
    """A record with its own provenance, and in which file it was; tokens that were given take the place of its own."""
    record = _record(contents, path)
    provenance = {**record.provenance, "saved_in": path.name, "saved_sha256": sha256_of(path)}
    own = len(stacks_of(record.maps)) > 1
    if own and (sources.given is not None or sources.for_keys is not None):
        raise RequestError(f"{path.name} holds several stacks, each with its tokens: leave out --tokens")
    if own:
        maps = tuple(replace(one, key=one.query) if one.key == one.query else one for one in record.maps)
        return Saved(path.name, maps, provenance, record.notes)
    query, key = record.maps[0].query, record.maps[0].key
    if sources.given is not None or sources.for_keys is not None:
        pairs = zip(sources.resolve(len(query), len(key)), (query, key), strict=True)
        query, key = (old if new.pieces == old.pieces else new for new, old in pairs)
    key = query if key == query else key
    maps = tuple(replace(one, query=query, key=key) for one in record.maps)
    return Saved(path.name, maps, provenance, record.notes)


def _record(contents: Contents, path: Path) -> AttentionRecord:
    if any(name.rpartition(".")[2] == POOLED for name in (*contents.fields, *contents.arrays)):
        raise RequestError(pooled_message(path))
    try:
        arrays = {name: np.asarray(one.read()) for name, one in contents.arrays.items() if is_record_array(name)}
        return from_fields(contents.fields, arrays)
    except AttnvizError as error:
        raise AttnvizError(f"{path} is no record of attnviz: {error}") from error


def _chosen(arrays: Mapping[str, SavedArray], name: str | None, path: Path) -> tuple[SavedArray, tuple[str, ...]]:
    """The array of that name, or the one that must be meant, with a note on what else could be."""
    if name is not None and name in arrays:
        return arrays[name], ()
    if name is not None and "" in arrays:
        raise RequestError(f"{WHAT} {path} holds one array, which has no name: leave out :{name}")
    if not arrays:
        raise RequestError(f"{WHAT} {path} holds no arrays" + ("" if name is None else f", and so no {name!r}"))
    there = ", ".join(map(str, arrays.values()))
    option = f"--attention {path}:"
    if name is not None:
        raise RequestError(f"{WHAT} {path} holds no {name!r}, but {there}: choose with {option}{next(iter(arrays))}")
    if len(arrays) == 1:
        return next(iter(arrays.values())), ()
    known = [one for one in arrays.values() if one.name in KNOWN_NAMES]
    if len(known) != 1:
        raise RequestError(f"{WHAT} {path} holds {there}: choose one with {option}{next(iter(arrays))}")
    others = ", ".join(str(one) for one in arrays.values() if one is not known[0])
    return known[0], (f"{known[0].name} is shown; {path.name} also holds {others}",)


def load(path: str | PathLike[str]) -> AttentionRecord:
    """The record saved at `path`: an npz, json, jsonl, safetensors or csv file that attnviz wrote.

    A csv holds the shown texts of tokens and no provenance, and these are what comes back.

    Raises:
        RequestError: there is no such file, or its suffix is not one that can be read.
        AttnvizError: it is damaged, or no record of attnviz.
    """
    file = Path(path)
    if file.suffix.lower() not in RECORD_SUFFIXES:
        suffixes = " or ".join([", ".join(RECORD_SUFFIXES[:-1]), RECORD_SUFFIXES[-1]])
        raise RequestError(f"{file} cannot be read by its suffix {file.suffix!r}: {suffixes}")
    if (kind := kind_at(file)) in ("nothing", "folder"):
        what = "does not exist" if kind == "nothing" else "is a folder"
        raise RequestError(f"{file} {what}: name a saved record")
    try:
        contents = read_contents(file)
    except AttnvizError as error:
        raise AttnvizError(f"{file} is no record of attnviz: {error}") from error
    return _record(contents, file)
