import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "attnviz"
HEAVY = ("torch", "transformers", "matplotlib", "PIL", "tokenizers", "safetensors", "numpy", "rich", "typer")

GROUPS = {
    "base": (
        "_version",
        "arrays",
        "backend",
        "errors",
        "files",
        "lazy",
        "memory",
        "near",
        "scratch",
        "threads",
        "torch_place",
        "translation",
    ),
    "maths": ("activations", "attention", "exponential", "positions", "tokens"),
    "maps": ("blocks", "maps", "pooling", "streaming"),
    "records": ("heatmap", "pooled", "schema", "select", "stretch"),
    "collect": ("align", "check", "collect", "compare", "faults", "measures", "reduce", "words"),
    "sources": ("sources",),
    "lessons": ("lessons",),
    "render": ("render",),
    "boards": ("boards",),
    "api": ("api",),
    "cli": ("cli",),
    "front": ("__init__", "__main__"),
}
"""Each part of the package, in the order in which they build on each other."""

MAY_IMPORT = {
    "base": {"base"},
    "maths": {"base", "maths"},
    "maps": {"base", "maths", "maps"},
    "records": {"base", "maths", "maps", "records"},
    "collect": {"base", "maths", "maps", "records", "collect"},
    "sources": {"base", "maths", "maps", "records", "sources"},
    "lessons": {"base", "maths", "maps", "records", "collect", "sources", "lessons"},
    "render": {"base", "maths", "maps", "records", "render"},
    "boards": {"base", "maths", "maps", "records", "collect", "lessons", "render", "boards"},
    "api": {"base", "maths", "maps", "records", "collect", "sources", "render"},
    "cli": {"base", "maths", "maps", "records", "collect", "sources", "lessons", "render", "boards", "cli"},
    "front": {"base", "maths", "maps", "sources", "api", "cli"},
}


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def group_of(module: str) -> str:
    part = module.split(".")[1] if "." in module else "__init__"
    groups = [group for group, parts in GROUPS.items() if part in parts]
    assert groups, f"{module} has no place in the table"
    return groups[0]


def imported_by(path: Path) -> set[str]:
    """The modules of the package that a file imports, at its top or in a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            found.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found & modules().keys()


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_module_imports_only_what_it_builds_on(module: str) -> None:
    group = group_of(module)
    for imported in imported_by(modules()[module]) - {"attnviz"}:
        allowed = group_of(imported) in MAY_IMPORT[group]
        assert allowed, f"{module} ({group}) imports {imported} ({group_of(imported)})"


def test_the_table_has_no_circles() -> None:
    order = list(GROUPS)
    assert list(MAY_IMPORT) == order
    for group, others in MAY_IMPORT.items():
        assert all(order.index(other) <= order.index(group) for other in others)
    named = [part for parts in GROUPS.values() for part in parts]
    assert len(named) == len(set(named))
    assert {module.split(".")[1] for module in modules() if "." in module} <= set(named)


def loaded_by(program: str) -> set[str]:
    """Which of the heavy packages a fresh Python has loaded after `program`."""
    report = f"{program}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    return set(
        subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True).stdout.split()
    )


def test_the_package_alone_loads_nothing_heavy() -> None:
    assert loaded_by("import attnviz; attnviz.__version__") == set()


@pytest.mark.parametrize(
    ("program", "loaded"),
    [
        ("attnviz.attend('The cat sat')", {"numpy", "tokenizers", "safetensors"}),
        ("attnviz.attend('The cat sat', model='scratch', single=True)", {"numpy"}),
        ("attnviz.attend('The cat', model='scratch').save('FOLDER/a.json')", {"numpy"}),
        ("attnviz.attend('The cat', model='scratch').save('FOLDER/a.npz')", {"numpy"}),
        ("attnviz.load", {"numpy"}),
        ("from attnviz.lessons.registry import run_lesson; run_lesson('heads')", {"numpy"}),
        ("attnviz.capture", {"numpy", "torch"}),
        ("import attnviz.render, attnviz.sources.registry, attnviz.select", {"numpy"}),
    ],
)
def test_what_is_used_loads_what_it_needs(tmp_path: Path, program: str, loaded: set[str]) -> None:
    assert loaded_by(f"import attnviz; {program.replace('FOLDER', str(tmp_path))}") == loaded


def test_the_command_line_loads_nothing_that_draws_pictures_or_trains() -> None:
    loaded = loaded_by("import attnviz.cli.app, attnviz.cli.heads")
    assert not loaded & {"torch", "transformers", "matplotlib", "PIL"}
