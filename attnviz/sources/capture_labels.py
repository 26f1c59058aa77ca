"""Which tokens belong to which axis of attention that was captured."""

from collections.abc import Iterable, Sequence

from attnviz.errors import RequestError
from attnviz.sources.capture_names import Named
from attnviz.tokens import Tokens


class Labels:
    """The tokens that a reader gives for what a model wrote and, where it is another sequence, for what it read."""

    def __init__(self, tokens: Sequence[str] | Tokens | None, key_tokens: Sequence[str] | Tokens | None) -> None:
        self.tokens, self.key_tokens = _tokens(tokens), _tokens(key_tokens)
        self._used: set[int] = set()
        self._sizes: list[str] = []
        self._unlabelled: list[str] = []

    def of(self, group: Named, n_queries: int, n_keys: int) -> tuple[Tokens, Tokens]:
        """Tokens for the queries and keys; their positions where none of the given ones fit."""
        self._sizes.append(f"{group.name} {n_queries} queries and {n_keys} keys")
        if group.kind == "cross":
            query, key = self._fitting([self.tokens], n_queries), self._fitting([self.key_tokens], n_keys)
        else:
            both = [self.tokens, self.key_tokens]
            query = key = self._fitting(both if group.stack == "decoder" else both[::-1], n_keys)
            if key is not None and n_queries < n_keys:  # the keys before them are kept from earlier runs
                query = key.pick(range(n_keys - n_queries, n_keys))
        if query is None or key is None:
            self._unlabelled.append(f"{group.name} ({n_queries} queries, {n_keys} keys)")
        key = _positions(n_keys) if key is None else key
        if query is None:
            query = key if n_queries == n_keys and group.kind == "self" else _positions(n_queries)
        return query, key

    def _fitting(self, candidates: Iterable[Tokens | None], size: int) -> Tokens | None:
        for one in candidates:
            if one is not None and len(one) == size:
                self._used.add(id(one))
                return one
        return None

    def check(self) -> tuple[str, ...]:
        """What is to be said of attention that the tokens do not fit.

        Raises:
            RequestError: the tokens fit none of it.
        """
        for given, what in ((self.tokens, "tokens"), (self.key_tokens, "key tokens")):
            if given is not None and id(given) not in self._used:
                sizes, more = ", ".join(self._sizes[:3]), ", …" if len(self._sizes) > 3 else ""
                raise RequestError(f"{len(given)} {what} are given, but attention has other sizes: {sizes}{more}")
        if not self._unlabelled or self.tokens is None:
            return ()
        return (f"the tokens do not fit {', '.join(self._unlabelled)}: positions are shown there",)

    @property
    def text(self) -> str:
        """The tokens as one text."""
        return "" if self.tokens is None else " ".join(self.tokens.text)


def _tokens(given: Sequence[str] | Tokens | None) -> Tokens | None:
    return given if given is None or isinstance(given, Tokens) else Tokens.of(given)


def _positions(n: int) -> Tokens:
    return Tokens.of(map(str, range(n)))
