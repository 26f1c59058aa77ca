"""Which attention a command looks at: a model on texts, own vectors, or a file of saved attention."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from attnviz.attention import Rule
from attnviz.backend import AUTO, DEVICES, NUMPY_NAME, TORCH_NAME, Placing, placing
from attnviz.cli.inputs import read_texts, typed
from attnviz.cli.messages import note
from attnviz.cli.options import (
    CrossOptions,
    FetchOptions,
    InputOptions,
    PlaceOptions,
    RuleOptions,
    ShapeOptions,
    TextOptions,
)
from attnviz.errors import RequestError
from attnviz.lazy import function
from attnviz.maps import AttentionMap, Kind, Provenance
from attnviz.sources.model import Model, Part, Prepared, ReadsPairs, ReadsWindows, Writes
from attnviz.sources.parts import OnePart, check_part
from attnviz.sources.registry import DEFAULT_MODEL, NAMED, OWN, PYTORCH, SCRATCH, find_model, refuse_shape

_SAVED, _SPLIT_ARRAY = "attnviz.sources.saved:open_saved", "attnviz.sources.saved:split_array"
_EMBEDDINGS = "attnviz.sources.embeddings:open_embeddings"
_MASK, _SPLIT_NAME = "attnviz.sources.masks:read_mask", "attnviz.sources.masks:split_name"
_PROBE = "attnviz.sources.probe:repeat_probe"
_SHA256 = "attnviz.sources.datafiles:sha256_of"
"""Imported where they are asked for: texts on a model, which most commands are about, need none of them."""

_PLACE = {"backend", "device", "dtype"}
_RULE = {"causal", "window", "mask"}
_SCRATCH = {"n_heads", "d_model", "seed", "no_positions", "no_scale", "shared_projections"}
_USES = {
    "model": {"text", "file", "model", "source", "allow_download", "allow_bin", "truncate", "stride"}
    | {"probe", "probe_words"}
    | {"pair", "target", "chat", "generate"}
    | _SCRATCH
    | _RULE
    | _PLACE,
    "embeddings": {"embeddings"} | (_SCRATCH - {"d_model", "no_positions"}) | _RULE | _PLACE,
    "attention": {"attention", "tokens", "key_tokens", "batch", "backend"} | _RULE,
}
"""The options that may come with each kind of source; why saved attention takes no rule, its source says."""


@dataclass(frozen=True)
class Subject:
    """Attention that can be asked for: a text made ready, or what a file holds."""

    prepared: Prepared
    provenance: Provenance
    """With the rule and the text in it."""
    rule: Rule
    number: int
    """Which text it is, from 1."""

    @property
    def n_tokens(self) -> int:
        """How many tokens it has; those that a model of two parts reads and writes together."""
        of_two = "target" in self.provenance or "generated" in self.provenance
        crosses = self.prepared.tokens is not self.prepared.key_tokens
        return len(self.prepared.tokens) + (len(self.prepared.key_tokens) if of_two and crosses else 0)

    def maps(self, layers: Collection[int], *, single: bool = False, output: bool = False) -> Iterator[AttentionMap]:
        """The maps of `layers`, as `Prepared.maps` gives them, under the rule that was asked for."""
        return self.prepared.maps(layers, rule=self.rule, single=single, output=output)


@dataclass(frozen=True)
class Source:
    """What one run of a command looks at."""

    name: str
    """What the reader calls it."""
    layers: Sequence[int]
    """The layers that there are, in ascending order."""
    heads: Sequence[int]
    gives_output: bool
    """Whether records hold the attention output unasked."""
    texts: Sequence[str]
    """Empty strings where the tokens are in a file."""
    prepare: Callable[[str], Prepared]
    provenance: Provenance
    rule: Callable[[Prepared], tuple[Rule, Provenance]]
    pictured: Kind | None = None
    """What people look at, where it is not all that there is."""
    windows: Sequence[tuple[str, Prepared]] = ()
    """The windows that the texts were cut into, each with its text, where they were."""

    @property
    def n_subjects(self) -> int:
        """How many texts or windows there are."""
        return len(self.windows or self.texts)

    def subjects(self) -> Iterator[Subject]:
        """Each text, made ready when it is its turn, or each window."""
        ready = iter(self.windows) if self.windows else ((text, self.prepare(text)) for text in self.texts)
        for number, (text, prepared) in enumerate(ready, 1):
            rule, said = self.rule(prepared)
            yield Subject(
                prepared, {"text": text, **self.provenance, **prepared.provenance, **said, **_text(text)}, rule, number
            )

    def together(self, provenance: Provenance) -> Provenance:
        """The provenance of a result of all texts, from that of one of them: several go in by number and hash."""
        if len(self.windows) > 1:
            of_one = ("window", "n_windows")
            provenance = {name: value for name, value in provenance.items() if name not in of_one}
            provenance["n_windows"] = len(self.windows)
        if len(self.texts) == 1:
            return provenance
        joined = sha256("\n".join(self.texts).encode(errors="surrogateescape")).hexdigest()
        return {**provenance, "text": "", "n_texts": len(self.texts), "texts_sha256": joined}


def _text(text: str) -> Provenance:
    """The text, where there is one: a record keeps the one that it was made of."""
    return {"text": text} if text else {}


def open_source(options: InputOptions, stack: Part | None = None) -> Source:
    """The source that the options name, or one part of it.

    Raises:
        RequestError: they contradict each other, or name what is not there, or there is no such part.
        AttnvizError: a file is damaged, or something is not installed.
    """
    if options.attention is not None:
        _refuse_useless(options, "attention")
        return _saved(options, options.attention, stack)
    if options.embeddings is not None:
        _refuse_useless(options, "embeddings")
        return _of_part(_embeddings(options, options.embeddings), {}, stack)
    _refuse_useless(options, "model")
    return _model(options, stack)


def takes_rules(options: InputOptions) -> bool:
    """Whether attention is made as the options say, rather than saved or run by another library."""
    if options.attention is not None:
        return False
    if options.embeddings is not None:
        return True
    name = options.model or DEFAULT_MODEL
    return find_model(name, options.source, **_allowed(options)).runner == OWN


def files_of(options: InputOptions) -> list[Path]:
    """The files that will be read, which no output may replace."""
    named = [options.file, options.tokens, options.key_tokens, options.embeddings]
    if options.attention is not None:
        named.append(function(_SPLIT_ARRAY)(options.attention)[0])
    named += mask_files(options)
    folder = None if options.model is None else Path(options.model)
    held = [] if folder is None else folder.iterdir() if folder.is_dir() else [folder]
    return [*(path for path in named if path is not None), *held]


def mask_files(options: RuleOptions) -> list[Path]:
    """The file of the mask, where there is one."""
    return [] if options.mask is None else [function(_SPLIT_NAME)(options.mask)[0]]


def _refuse_useless(options: InputOptions, kind: str) -> None:
    for field in fields(options):
        if field.name in _USES[kind] or getattr(options, field.name) == field.default:
            continue
        name = "a text" if field.name == "text" else f"--{field.name.replace('_', '-')}"
        if kind == "model":
            raise RequestError(f"{name} is for saved attention: add --attention FILE, or leave it out")
        raise RequestError(f"{name} has no use with --{kind}, which says it all: leave out one of them")


def _model(options: InputOptions, stack: Part | None) -> Source:
    if options.probe_words is not None and not options.probe:
        raise RequestError("--probe-words has no use without --probe repeat")
    texts = [] if options.probe else read_texts(options.text, options.file)
    shape = _scratch(options)
    if options.probe and options.model != SCRATCH:
        shape.pop("seed", None)  # it is the probe's
    model = _opened(options, options.model or DEFAULT_MODEL, shape, options.source)
    prepare = _way_in(model, options)
    texts = texts or [_probe(model, options)]
    windows = [] if options.stride is None else _windows(model, texts, options, options.stride)
    whole = Source(
        name=model.name,
        layers=model.attending,
        heads=range(model.n_heads),
        gives_output=model.gives_output,
        texts=texts,
        prepare=prepare,
        provenance={
            **model.provenance,
            **({} if options.target is None else {"target": typed(options.target, "--target")}),
        },
        rule=lambda prepared: _rule(options, prepared),
        windows=windows,
    )
    return _of_part(whole, model.parts if isinstance(model, Writes) else {}, stack)


def _of_part(whole: Source, parts: Mapping[Part, Sequence[int]], part: Part | None) -> Source:
    """One part of what a source looks at; one that says no parts is an encoder.

    Raises:
        RequestError: there is no such part.
    """
    parts = parts or {"encoder": whole.layers}
    if part is None:
        return whole
    check_part(part, parts, whole.name)
    if len(parts) == 1:
        return whole
    prepare = whole.prepare
    return replace(whole, layers=parts[part], prepare=lambda text: OnePart(prepare(text), part), pictured=None)


def _windows(model: Model, texts: Sequence[str], options: TextOptions, stride: int) -> list[tuple[str, Prepared]]:
    """The texts, those that are too long cut into windows.

    Raises:
        RequestError: the model takes texts of any length, or something else is asked for that windows do not have.
    """
    asked = {"truncate": options.truncate, "chat": options.chat} | {
        name: getattr(options, name) is not None for name in ("pair", "target", "generate")
    }
    for name, said in asked.items():
        if said:
            raise RequestError(f"--stride and --{name} do not go together: leave out one of them")
    if not isinstance(model, ReadsWindows):
        raise RequestError(f"{model.name} takes texts of any length: leave out --stride")
    return [(text, window) for text in texts for window in model.prepare_windows(text, stride)]


def _opened(
    options: InputOptions | CrossOptions, name: str, shape: Mapping[str, int | bool], runner: str | None
) -> Model:
    found = find_model(name, runner, **_allowed(options))
    place = placed(options, in_torch=found.runner == PYTORCH)
    refuse_shape(name, shape)
    return found.open(place, **shape)


def _allowed(options: FetchOptions) -> dict[str, bool]:
    return {"allow_download": options.allow_download, "allow_bin": options.allow_bin}


def _way_in(model: Model, options: TextOptions) -> Callable[[str], Prepared]:
    """What makes a text ready as the options ask: as it is, in a pair, in a chat, or with what the model writes.

    Raises:
        RequestError: they contradict each other, or the model does no such thing.
    """
    asked = [name for name in ("pair", "target", "generate") if getattr(options, name) is not None]
    if len(asked) > 1 or (options.chat and asked not in ([], ["generate"])):
        both = " and ".join(f"--{name}" for name in (asked if len(asked) > 1 else [*asked, "chat"]))
        raise RequestError(f"{both} do not go together: leave out one of them")
    cut = options.truncate
    if options.pair is not None:
        pair = typed(options.pair, "--pair")
        if not isinstance(model, ReadsPairs):
            raise RequestError(f"{model.name} reads no pairs of texts: leave out --pair")
        return lambda text: model.prepare_pair(text, pair, truncate=cut)
    if not asked and not options.chat:
        return lambda text: model.prepare(text, truncate=cut)
    if not isinstance(model, Writes):
        named = ", ".join(f"--{name}" for name in (asked or ["chat"]))
        raise RequestError(f"{model.name} reads a text and writes none: leave out {named}, or choose another --model")
    if options.target is not None:
        target = typed(options.target, "--target")
        return lambda text: model.prepare_both(text, target, truncate=cut)
    n_tokens = options.generate
    if n_tokens is None:
        return lambda text: model.prepare_chat(text, truncate=cut)
    return lambda text: model.prepare_written(text, n_tokens, chat=options.chat, truncate=cut)


def open_cross(options: CrossOptions, stack: Part | None = None) -> Source:
    """A model on two texts, of which the target attends to the source, or one part of it.

    Raises:
        RequestError: the options contradict each other, or the model has no cross-attention.
        AttnvizError: it is damaged, or packages that run it are missing.
    """
    source, target = typed(options.source, "the source"), typed(options.target, "the target")
    prepare: Callable[[str], Prepared]
    parts: Mapping[Part, Sequence[int]]
    if options.model == SCRATCH:
        model = function(NAMED[SCRATCH])(placed(options), **_scratch(options))
        prepare, parts = partial(model.prepare_cross, source), {"cross": model.attending}
    else:
        model = _opened(options, options.model, _scratch(options), None)
        if not isinstance(model, Writes):
            raise RequestError(f"{model.name} reads one text and has no cross-attention: choose another --model")
        prepare, parts = partial(model.prepare_both, source), model.parts
    whole = Source(
        name=model.name,
        layers=model.attending,
        heads=range(model.n_heads),
        gives_output=model.gives_output,
        texts=[target],
        prepare=prepare,
        provenance={**model.provenance, "attends_to": source},
        rule=lambda prepared: _rule(options, prepared),
        pictured="cross",
    )
    return _of_part(whole, parts, stack)


def _probe(model: Model, options: InputOptions) -> str:
    """The text of the probe.

    Raises:
        RequestError: another text is given too, or the model has too few words.
    """
    if options.text is not None or options.file is not None:
        raise RequestError("--probe makes a text of its own: leave out the text, or --probe")
    words = {} if options.probe_words is None else {"n_words": options.probe_words}
    text: str = function(_PROBE)(model, seed=options.seed or 0, **words)
    return text


def _embeddings(options: InputOptions, path: Path) -> Source:
    opened = function(_EMBEDDINGS)(
        path,
        n_heads=options.n_heads,
        seed=options.seed or 0,
        scale=not options.no_scale,
        shared_projections=options.shared_projections,
        placing=placed(options),
    )
    if options.seed is not None and opened.provenance["projections"] == "file":
        raise RequestError(f"--seed has no use: {path} holds projections, and nothing is drawn")
    return Source(
        name=path.name,
        layers=range(opened.n_layers),
        heads=range(opened.n_heads),
        gives_output=opened.gives_output,
        texts=[""],
        prepare=lambda _: opened,
        provenance=opened.provenance,
        rule=lambda prepared: _rule(options, prepared),
    )


def _saved(options: InputOptions, typed: str, stack: Part | None) -> Source:
    path, array = function(_SPLIT_ARRAY)(typed)
    if options.backend not in (None, NUMPY_NAME):
        note(f"nothing is computed of saved attention: --backend {options.backend} changes nothing")
    saved = function(_SAVED)(
        path, array=array, tokens=options.tokens, key_tokens=options.key_tokens, batch=options.batch
    )
    saved = saved if stack is None else saved.of(stack)
    return Source(
        name=saved.name,
        layers=saved.layers,
        heads=saved.heads,
        gives_output=saved.gives_output,
        texts=[""],
        prepare=lambda _: saved,
        provenance=saved.provenance,
        rule=lambda prepared: _rule(options, prepared),
    )


def _scratch(options: ShapeOptions) -> dict[str, int | bool]:
    """What was said of the scratch model."""
    said = {
        "n_heads": options.n_heads,
        "d_model": options.d_model,
        "seed": options.seed,
        "positions": False if options.no_positions else None,
        "scale": False if options.no_scale else None,
        "shared_projections": options.shared_projections or None,
    }
    return {name: value for name, value in said.items() if value is not None}


def placed(options: PlaceOptions, *, in_torch: bool = False) -> Placing:
    """Where the maths is to run; in torch alone, where a model of torch is captured.

    Raises:
        RequestError: backend, device and dtype do not go together.
        AttnvizError: torch is not installed, or the machine has no such device.
    """
    if in_torch and options.backend == NUMPY_NAME:
        note(f"the model is run by torch: --backend {NUMPY_NAME} changes nothing")
    if options.device == AUTO and not in_torch:
        raise RequestError(f"--device {AUTO} is for models that transformers runs: here it is {DEVICES}")
    backend = TORCH_NAME if in_torch else (options.backend or NUMPY_NAME)
    return placing(str(backend), options.device, None if options.dtype is None else options.dtype.value)


def _rule(options: RuleOptions, prepared: Prepared) -> tuple[Rule, Provenance]:
    """What may be attended, and how it is put into the provenance."""
    rule = Rule(options.causal, options.window)
    said: dict[str, bool | int | str] = {**rule.said}
    if options.mask is not None:
        path, name = function(_SPLIT_NAME)(options.mask)
        rule = rule.also(function(_MASK)(path, name, len(prepared.tokens), len(prepared.key_tokens)))
        said |= {"mask": path.name + (f":{name}" if name else ""), "mask_sha256": function(_SHA256)(path)}
    return rule, said
