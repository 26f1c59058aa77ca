"""What several test files share: the array libraries, and values that are known to be right."""

import json
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does; before NumPy is imported

settings.register_profile("attnviz", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("attnviz")


@pytest.fixture(scope="session", params=["numpy", "torch", "array_api_strict"])
def xp(request: pytest.FixtureRequest) -> Any:
    """An array library that the maths must work with."""
    return import_module(request.param)


@pytest.fixture(scope="session")
def expected() -> Callable[[str], dict[str, Any]]:
    """Values that are known to be right, from a file of `data`."""
    return lambda name: dict(json.loads((Path(__file__).parent / "data" / name).read_text("utf-8")))
