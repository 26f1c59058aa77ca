"""Modules that are worth watching: those whose paths attention may have."""

from collections.abc import Mapping

import torch

from attnviz.sources.capture_products import PRODUCTS, SOFTMAX

_HARMLESS = frozenset(
    {"torch", "nn", "functional", "math", "pi", "to", "dtype", "float", "float32", "type_as", "view", "size"}
    | {"pow", "mean", "square", "sqrt", "rsqrt", "tanh", "sigmoid", "gelu", "silu", "relu"}
)
"""What normalisations and activations use; nobody attends with it."""


def watched_modules(modules: Mapping[str, torch.nn.Module]) -> dict[str, torch.nn.Module]:
    """Those of a model's modules that may attend themselves, or have parts that do.

    The others would have no attention to their names: layers of torch without parts, lists, and what only passes on
    what such layers make of its input, as feed-forward layers and normalisations do. That is read from the names in
    their code; a module that is left out by mistake is called like the one around it.

    >>> model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.ReLU()), torch.nn.TransformerEncoderLayer(4, 2))
    >>> list(watched_modules(dict(model.named_modules())))
    ['', '1', '1.self_attn']
    """
    never: set[int] = set()
    for module in reversed(list(modules.values())):  # parts come after what they are part of
        if _only_passes_on(module) and all(id(part) in never for part in module._modules.values() if part is not None):
            never.add(id(module))
    hookless = torch.nn.ModuleList, torch.jit.ScriptModule
    return {
        path: module
        for path, module in modules.items()
        if not isinstance(module, hookless) and (not path or id(module) not in never)
    }


def _only_passes_on(module: torch.nn.Module) -> bool:
    """Whether all that this module does is done by its parts, or by what can be no attention."""
    kind = type(module)
    if isinstance(module, torch.jit.ScriptModule):
        return False
    if kind.__module__.startswith("torch.nn.modules."):
        return not module._modules or kind.__module__ == "torch.nn.modules.container"
    code = getattr(kind.forward, "__code__", None)
    if code is None or "forward" in vars(module) or any(hasattr(const, "co_names") for const in code.co_consts):
        return False
    own = module._modules.keys() | module._parameters.keys() | _HARMLESS
    return all(name in own or _is_harmless(vars(module).get(name)) for name in code.co_names)


def _is_harmless(value: object) -> bool:
    """Whether this attribute of a module is a number, or a function of torch by which nobody attends."""
    if isinstance(value, int | float):
        return True
    name = str(getattr(value, "__name__", ""))
    of_torch = str(getattr(value, "__module__", "")).startswith("torch.")
    return of_torch and bool(name) and name not in PRODUCTS | SOFTMAX and "attention" not in name
