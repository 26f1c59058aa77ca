"""The language that lessons speak: gettext catalogues, chosen by name or by the locale."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from gettext import NullTranslations, translation
from pathlib import Path
from typing import Any

from attnviz.errors import RequestError

DOMAIN = "attnviz"
FOLDER = Path(__file__).parent / "locale"
ENGLISH, PORTUGUESE = "en", "pt_BR"
LANGUAGES: Mapping[str, str] = {"en": ENGLISH, "pt": PORTUGUESE}
"""The language of each two-letter code; English is what the code itself is written in."""
_NO_LANGUAGE = ("C", "POSIX")


def mark(text: str) -> str:
    """`text` itself, noted for the catalogue: it is translated where it is used.

    >>> mark("heads")
    'heads'
    """
    return text


@dataclass(frozen=True)
class Say:
    """Texts in one language; a number in them is a named placeholder, with its format: {weight:.3f}."""

    language: str
    catalogue: NullTranslations

    def __call__(self, text: str, **values: Any) -> str:
        """`text` translated, with `values` in their places.

        >>> translator("en")("the weight is {weight:.2f}", weight=0.25)
        'the weight is 0.25'
        """
        return self.catalogue.gettext(text).format(**values)

    def many(self, one: str, more: str, n: int, **values: Any) -> str:
        """The form for `n` things of a text that counts them; `n` is a placeholder too.

        >>> translator("en").many("{n} token", "{n} tokens", 2)
        '2 tokens'
        """
        return self.catalogue.ngettext(one, more, n).format(n=n, **values)


IN_ENGLISH = Say(ENGLISH, NullTranslations())
"""Texts as the code has them."""


def translator(lang: str | None = None, environment: Mapping[str, str] = os.environ) -> Say:
    """What says texts in `lang`, or in the language of the locale where that is known, or in English.

    Args:
        lang: a two-letter code of `LANGUAGES`, in any case, with or without a country: pt, pt-BR, pt_PT.
        environment: where LANGUAGE, LC_ALL, LC_MESSAGES and LANG are looked up, as gettext does.

    Raises:
        RequestError: `lang` is none of them.

    >>> translator("pt-BR").language, translator(None, {"LANG": "pt_PT.UTF-8"}).language, translator(None, {}).language
    ('pt_BR', 'pt_BR', 'en')
    """
    if lang is None:
        language = _of_locale(environment)
    elif (found := _known(lang)) is None:
        raise RequestError(f"no language {lang!r}: --lang is {' or '.join(LANGUAGES)}")
    else:
        language = found
    return Say(language, NullTranslations() if language == ENGLISH else translation(DOMAIN, FOLDER, [language]))


def _of_locale(environment: Mapping[str, str]) -> str:
    locale = next(filter(None, (environment.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))), "C")
    if locale.partition(".")[0] in _NO_LANGUAGE:  # then LANGUAGE does not count
        return ENGLISH
    preferred = [*environment.get("LANGUAGE", "").split(":"), locale]
    return next(filter(None, map(_known, preferred)), ENGLISH)


def _known(name: str) -> str | None:
    """The language of a name such as pt, pt-BR or pt_BR.UTF-8@euro; None where there is none."""
    code = name.partition(".")[0].partition("@")[0].replace("-", "_").partition("_")[0]
    return LANGUAGES.get(code.lower())
