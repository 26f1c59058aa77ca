"""Tokens that are given beside attention: in a file of their own, or in fields of the file that has the weights."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnviz.errors import AttnvizError, RequestError
from attnviz.sources.datafiles import check_there, read_text
from attnviz.tokens import Tokens

_QUERIES = ("query_tokens", "queries", "tokens")
_KEYS = ("key_tokens", "keys")
_WHAT = "tokens file"


@dataclass(frozen=True)
class TokenLists:
    """Strings for the queries, for the keys, for both or for neither."""

    queries: tuple[str, ...] | None
    """Where there are no keys, these are the keys' too, if there are as many."""
    keys: tuple[str, ...] | None
    origin: str
    """Where they are from, as messages call it."""


def read_token_file(path: Path) -> TokenLists:
    """The tokens in a json file, or one on each line of any other file.

    Json is a list of strings, or an object with `tokens`, or with `queries` and `keys` (`query_tokens` and
    `key_tokens` in a record). Nothing is stripped: a line may be blank, and ends at its line feed.

    Raises:
        RequestError: there is no such file, or it holds no list of strings.
        AttnvizError: it cannot be read, or is no JSON.
    """
    check_there(path, _WHAT)
    content, origin = read_text(path, _WHAT), f"{_WHAT} {path}"
    if path.suffix.lower() != ".json":
        lines = content.replace("\r\n", "\n").split("\n")
        return TokenLists(tuple(lines[:-1] if lines[-1] == "" else lines), None, origin)
    try:
        loaded = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise AttnvizError(f"{origin} is not JSON: {error}") from error
    if not isinstance(loaded, dict):
        return TokenLists(_strings(loaded, origin), None, origin)
    queries, keys = (token_field(loaded, names, origin) for names in (_QUERIES, _KEYS))
    if queries is keys is None:
        raise RequestError(f"{origin} holds no tokens: a list of strings is needed, or an object with queries and keys")
    return TokenLists(queries, keys, origin)


def token_field(fields: Mapping[str, Any], names: Sequence[str], origin: str) -> tuple[str, ...] | None:
    """The tokens under the first of `names` that is among `fields`; None where none is.

    Raises:
        RequestError: it is no list of strings.

    >>> token_field({"keys": ["b", "c"]}, ["key_tokens", "keys"], "it")
    ('b', 'c')
    """
    name = next((name for name in names if name in fields), None)
    return None if name is None else _strings(fields[name], f"{origin}, {name},")


def _strings(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise RequestError(f'{what} holds no list of strings: tokens are written as in ["the", "cat"]')
    for i, token in enumerate(value):
        if not isinstance(token, str):
            raise RequestError(f"{what} holds {json.dumps(token, default=str):.40} at position {i}, which is no string")
    return tuple(value)


@dataclass(frozen=True)
class TokenSources:
    """All that names the tokens of an attention file."""

    given: TokenLists | None
    """From --tokens; one list is for both axes where they are equally long, else for the queries."""
    for_keys: TokenLists | None
    """From --key-tokens."""
    fields: Mapping[str, Any]
    """Of the attention file itself, which come last."""
    attention: str
    """How messages call the attention file."""

    def resolve(self, n_queries: int, n_keys: int) -> tuple[Tokens, Tokens]:
        """The tokens of the queries and of the keys, the very same object where they are the same strings.

        What has no tokens is numbered.

        Raises:
            RequestError: there are more or fewer tokens than queries or keys, or a field holds no strings.
        """
        queries, origin = self._queries()
        query = Tokens.of(self._fitting(queries, n_queries, "queries", origin))
        keys, origin = self._keys(queries if n_queries == n_keys else None, origin)
        texts = self._fitting(keys, n_keys, "keys", origin)
        return query, (query if texts == query.pieces else Tokens.of(texts))

    def _queries(self) -> tuple[tuple[str, ...] | None, str]:
        if self.given is not None and self.given.queries is not None:
            return self.given.queries, self.given.origin
        return token_field(self.fields, _QUERIES, self.attention), _ITS_OWN

    def _keys(self, queries: tuple[str, ...] | None, origin: str) -> tuple[tuple[str, ...] | None, str]:
        """The keys' tokens; `queries` are those that serve for both, from `origin`."""
        if self.for_keys is not None:
            own = self.for_keys.keys
            return (self.for_keys.queries if own is None else own), self.for_keys.origin
        if self.given is not None and self.given.keys is not None:
            return self.given.keys, self.given.origin
        if self.given is not None and queries is not None:
            return queries, origin
        own = token_field(self.fields, _KEYS, self.attention)
        return (queries, origin) if own is None else (own, _ITS_OWN)

    def _fitting(self, texts: tuple[str, ...] | None, size: int, axis: str, origin: str) -> tuple[str, ...]:
        if texts is None:
            return tuple(map(str, range(size)))
        if len(texts) != size:
            option = "--tokens" if axis == "queries" else "--key-tokens"
            hint = f": give {option} FILE" if origin == _ITS_OWN else ""
            raise RequestError(f"{self.attention} has {size} {axis}, but {origin} has {len(texts)} tokens{hint}")
        return texts


_ITS_OWN = "its own list"
