"""Which lessons there are, by name; each is imported when it is asked for and not before."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from attnviz._version import __version__
from attnviz.arrays import quiet
from attnviz.backend import Placing, placing
from attnviz.errors import RequestError
from attnviz.lazy import function
from attnviz.lessons.lesson import Lesson, Setting
from attnviz.maps import Provenance, Value
from attnviz.sources.datafiles import sha256_of
from attnviz.sources.registry import DEFAULT_MODEL
from attnviz.sources.scratch import check_seed
from attnviz.translation import Say, mark, translator


@dataclass(frozen=True)
class Entry:
    """A lesson before it is run."""

    title: str
    """In English, marked for translation."""
    steps: str
    """`module:function` of what works out its steps: a `Setting` and a `Say` in, steps out."""
    takes: tuple[str, ...] = ()
    """Which fields of `Setting` it has a use for, over and above text, seed and placing."""
    bundled: bool = False
    """It runs the bundled model, alone or as well."""
    seeded: bool = True
    """What it shows can depend on the seed."""


_VECTORS = ("embeddings", "n_heads")
_HOME = "attnviz.lessons"

LESSONS: Mapping[str, Entry] = {
    "lookup": Entry(mark("From a dictionary to a soft look-up"), f"{_HOME}.lookup:lookup", ("embeddings", "query")),
    "scaled-dot-product": Entry(
        mark("Scaled dot-product attention, step by step"),
        f"{_HOME}.scaled_dot_product:scaled_dot_product",
        ("embeddings", "query"),
    ),
    "scaling": Entry(mark("Why scores are divided by √d_k"), f"{_HOME}.scaling:scaling"),
    "self-and-cross": Entry(
        mark("Self-attention and cross-attention: the same maths, other sources"),
        f"{_HOME}.self_and_cross:self_and_cross",
        ("source", "embeddings"),
    ),
    "heads": Entry(
        mark("Several heads: split, attend, join"), f"{_HOME}.heads:heads", (*_VECTORS, "shared_projections")
    ),
    "diversity": Entry(mark("Heads differ because their projections do"), f"{_HOME}.diversity:diversity", _VECTORS),
    "single-against-many": Entry(
        mark("One full-width head against many heads"),
        f"{_HOME}.single_against_many:single_against_many",
        (*_VECTORS, "shared_projections"),
        bundled=True,
    ),
    "query-row": Entry(
        mark("One token's row of weights, from a trained model"),
        f"{_HOME}.query_row:query_row",
        ("query",),
        bundled=True,
        seeded=False,
    ),
    "module": Entry(
        mark("A multi-head module, from its matrices to its output"),
        f"{_HOME}.module:module",
        (*_VECTORS, "module"),
    ),
    "positions": Entry(mark("Sinusoidal positions"), f"{_HOME}.positions:positions", seeded=False),
    "order": Entry(mark("Attention does not see the order of words"), f"{_HOME}.order:order", _VECTORS),
    "parallel": Entry(
        mark("Why attention runs in parallel, and what it costs"),
        f"{_HOME}.parallel:parallel",
        ("timer",),
        seeded=False,
    ),
    "cost": Entry(mark("Many narrow heads cost as much as one wide head"), f"{_HOME}.cost:cost", seeded=False),
    "masks": Entry(mark("Masks: what a token may attend to"), f"{_HOME}.masks:masks", _VECTORS),
}
"""The lessons, in the order in which they build on each other."""

_TYPED = {
    "source": "--source",
    "query": "--query",
    "embeddings": "--embeddings",
    "module": "--module",
    "n_heads": "--n-heads",
    "shared_projections": "--shared-projections",
    "timer": "--timed",
}
"""What each field of `Setting` is called by who sets it."""


def run_lesson(name: str, setting: Setting | None = None, say: Say | None = None) -> Lesson:
    """Work out a lesson.

    Args:
        name: a key of `LESSONS`.
        setting: what the student changes; the worked example unless given.
        say: the language, English unless given.

    Raises:
        RequestError: there is no such lesson, or the setting has something that it has no use for or cannot be.
        AttnvizError: a file is damaged.

    >>> lesson = run_lesson("scaled-dot-product")
    >>> lesson.steps[2].matrices[0].values.round(3).tolist()
    [[0.401, 0.198, 0.401]]
    """
    entry = _entry(name)
    setting, say = setting or Setting(), say or translator("en")
    check_seed(setting.seed)
    _refuse_useless(name, entry, setting)
    setting = replace(setting, placing=_in_doubles(setting.placing))
    with quiet(np):
        steps = function(entry.steps)(setting, say)
    lesson = Lesson(name, say(entry.title), tuple(steps), _provenance(name, entry, setting))
    for matrix in lesson.matrices:
        if not np.isfinite(matrix.values).all():
            dtype = setting.placing.dtype
            raise RequestError(
                f"{matrix.name}: the numbers overflow {dtype}: scale them down, or choose a wider --dtype"
            )
    return lesson


def _entry(name: str) -> Entry:
    if name in LESSONS:
        return LESSONS[name]
    typed = name.lower().replace("_", "-").replace(" ", "-")
    begun = [one for one in LESSONS if typed and one.startswith(typed)]
    near = begun or get_close_matches(typed, LESSONS, n=1)
    meant = f"; did you mean {near[0]}?" if near else f": the lessons are {', '.join(LESSONS)}"
    raise RequestError(f"no lesson {name!r}{meant}")


def _refuse_useless(name: str, entry: Entry, setting: Setting) -> None:
    """Nothing that is said is ignored: refuse what the lesson has no use for."""
    unset = Setting()
    for field, typed in _TYPED.items():
        if field not in entry.takes and getattr(setting, field) != getattr(unset, field):
            takers = ", ".join(one for one, other in LESSONS.items() if field in other.takes)
            raise RequestError(f"lesson {name} has no use for {typed}: leave it out; it is for {takers}")
    if setting.seed != unset.seed and not entry.seeded:
        raise RequestError(f"nothing in lesson {name} is drawn: leave out --seed")
    if setting.text is not None and setting.embeddings is not None:
        raise RequestError("--embeddings brings its own tokens: leave out --text, or the file")


def _in_doubles(where: Placing) -> Placing:
    """The same place, in float64 where nothing else is asked for and the device has it."""
    return where if where.dtype else placing(where.backend, where.device, where.runs("float64"))


def _provenance(name: str, entry: Entry, setting: Setting) -> Provenance:
    """What makes the same numbers again; files by their names."""
    unset = Setting()
    said: dict[str, Value] = {}
    for field in ("text", *_TYPED):
        value = getattr(setting, field)
        if isinstance(value, Path):
            said |= {field: value.name, f"{field}_sha256": sha256_of(value)}
        elif value != getattr(unset, field):
            said |= {"timed": True} if field == "timer" else {field: value}
    model = {}
    if entry.bundled:
        from attnviz.sources.encoder import MINILM_SHA256  # noqa: PLC0415 (these lessons have imported it)

        model = {"bundled": DEFAULT_MODEL, "bundled_sha256": MINILM_SHA256}
    origin = {"attnviz": __version__, "source": "lesson", "model": f"lesson {name}"}
    seed = {"seed": setting.seed} if entry.seeded else {}
    return {**origin, **said, **seed, **model, **setting.placing.provenance()}
