"""How much memory there is, so that work which cannot fit is refused before it begins."""

import os

from attnviz.errors import RequestError


def physical_memory() -> int | None:
    """Bytes of memory that the machine has, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return None


SMALLER = (
    "choose layers with --layer, heads with --head, rows with --query or a stretch with --from and --to, or pool with"
    " --tiles 256; a picture needs little"
)


def check_room(needed: int, what: str, instead: str = SMALLER) -> None:
    """See that `needed` bytes would fit; `instead` is what to do where they do not.

    Raises:
        RequestError: they are more than the machine has.

    >>> check_room(1000, "nothing much")
    """
    there = physical_memory()
    if there is not None and needed > 0.8 * there:
        raise RequestError(
            f"{what} would take {needed / 1e9:.1f} GB of memory, of which this machine has {there / 1e9:.1f}: {instead}"
        )
