"""What is switched while a model is watched, and switched back whatever happens."""

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, ClassVar, TypeAlias

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from attnviz.errors import RequestError
from attnviz.sources.capture_kernels import batch_and_heads, is_multi_head, open_multi_head
from attnviz.sources.capture_places import watched_modules
from attnviz.sources.capture_tags import Tags
from attnviz.sources.capture_watch import Watch

Modules: TypeAlias = Mapping[str, torch.nn.Module]
"""The modules of a model by their paths."""
_WRAPPER = "_orig_mod"
"""What torch.compile adds to the paths of modules."""


class _FunctionMode(TorchFunctionMode):
    """Sees each operation as it is spelled in Python."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if is_multi_head(func):
            with self._watch.joining(batch_and_heads(args, kwargs)), self:
                return open_multi_head()(*args, **kwargs)
        return self._watch.operation(func, args, kwargs)


class _DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees each operation as it is carried out, those of TorchScript too; heads and batch are joined by then."""

    supports_higher_order_operators = True

    def __init__(self, watch: Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watch = watch

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._watch.operation(func, args, kwargs or {})


def has_script(modules: Modules) -> bool:
    """Whether TorchScript is in the model: what it runs is seen only as it is carried out."""
    return any(isinstance(module, torch.jit.ScriptModule) for module in modules.values())


def model_name(model: torch.nn.Module) -> str:
    """What a model is called that has no path: its class."""
    written = getattr(model, _WRAPPER, model)  # what torch.compile was given
    return str(getattr(written, "original_name", type(written).__name__))  # TorchScript keeps the name


def tags_for(modules: Modules) -> Tags:
    """Tags for a run of these modules, which know what is part of the model."""
    own = (
        one for module in modules.values() for kind in (module._parameters, module._buffers) for one in kind.values()
    )
    return Tags([one for one in own if one is not None], strangers_are_inputs=has_script(modules))


@contextmanager
def watching(modules: Modules, watch: Watch) -> Iterator[None]:
    """Let `watch` see what the calling thread runs, and in which of the modules.

    Raises:
        RequestError: this thread is watched already.
    """
    with _Alone(), _uncompiled(), _hooks(modules, watch), ExitStack() as stack:
        if has_script(modules):
            stack.enter_context(_slow_path())
            stack.enter_context(_DispatchMode(watch))
        else:
            stack.enter_context(_FunctionMode(watch))
        yield


@contextmanager
def _hooks(modules: Modules, watch: Watch) -> Iterator[None]:
    """Let the watch know which module is running."""
    handles = []
    try:
        for path, module in watched_modules(modules).items():
            name = ".".join(part for part in path.split(".") if part != _WRAPPER) if _WRAPPER in path else path
            handles += [
                module.register_forward_pre_hook(partial(_enter, watch, name), with_kwargs=True),
                module.register_forward_hook(partial(_leave, watch), always_call=True),
            ]
        yield
    finally:
        for handle in handles:
            handle.remove()


def _enter(watch: Watch, path: str, _: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    watch.enter(path, args, kwargs)


def _leave(watch: Watch, _: torch.nn.Module, args: tuple[Any, ...], out: Any) -> None:
    watch.leave(args, out)  # what a hook returns would take the place of the module's output


class _Alone:
    """One watch a thread."""

    _running: ClassVar[threading.local] = threading.local()

    def __enter__(self) -> None:
        if getattr(self._running, "yes", False):
            raise RequestError("attention is being captured in this thread already: leave that block first")
        self._running.yes = True

    def __exit__(self, *_: object) -> None:
        self._running.yes = False


_COMPILING = "torch._dynamo", "torch.nn.attention.flex_attention"
"""Without these modules nothing is compiled."""
_lock = threading.Lock()
_uncompiled_stack = ExitStack()
_n_uncompiled = 0


@contextmanager
def _uncompiled() -> Iterator[None]:
    """While any thread is watched, compiled modules run as they were written: torch has one switch for all threads."""
    global _n_uncompiled  # noqa: PLW0603 - the switch is global
    if not any(name in sys.modules for name in _COMPILING):  # importing the compiler takes seconds
        yield
        return
    with _lock:
        if _n_uncompiled == 0:
            _uncompiled_stack.enter_context(torch.compiler.set_stance("force_eager"))
        _n_uncompiled += 1
    try:
        yield
    finally:
        with _lock:
            _n_uncompiled -= 1
            if _n_uncompiled == 0:
                _uncompiled_stack.close()


@contextmanager
def _slow_path() -> Iterator[None]:
    """torch's one-kernel encoder layers are opaque; only where operations are seen as they are carried out."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
