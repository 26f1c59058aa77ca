"""Every text has its translation, and the translation fits."""

import re
import string
from gettext import GNUTranslations
from io import BytesIO
from typing import Any

import pytest
from babel.messages.catalog import Message

from attnviz.errors import RequestError
from attnviz.lessons.registry import LESSONS
from attnviz.translation import LANGUAGES, PORTUGUESE, translator
from tools.catalogue import MO, PO, extracted, mo_bytes, po_bytes, texts, translated, untranslated, updated

MESSAGES = [message for message in translated() if message.id]
THE_SAME = {
    "query", "key", "token", "queries", "keys", "values", "embeddings", "value", "causal", "split_heads",
    "compute_attention", "FLOPs, n = {n}", "FLOPs, d = {d_model}", "R_k PE(pos)", "PE(pos + k)", "tokens",
    "query {query}", "Softmax", "Self-attention", "Cross-attention",
}  # fmt: skip
"""Words that Portuguese takes over, and names."""


def placeholders(text: str) -> list[tuple[str, str | None]]:
    return sorted((name, form) for _, name, form, _ in string.Formatter().parse(text) if name is not None)


def test_no_text_of_the_code_lacks_its_translation() -> None:
    assert untranslated(updated()) == []


def test_the_catalogue_is_what_the_code_makes_of_it() -> None:
    assert PO.read_bytes() == po_bytes(updated()), "run python tools/catalogue.py"
    assert [texts(one.id) for one in MESSAGES] == [texts(one.id) for one in extracted() if one.id]


def test_what_the_program_reads_is_made_of_the_catalogue() -> None:
    assert MO.read_bytes() == mo_bytes(translated()), "run python tools/catalogue.py"


def test_a_text_without_a_translation_is_found() -> None:
    catalog = updated()
    catalog.add("a text that is new", "")
    catalog.add(("one text", "{n} texts"), ("um texto", ""))
    assert untranslated(catalog) == ["a text that is new", "one text"]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: texts(one.id)[0][:30])
def test_placeholders_and_their_formats_agree(message: Message) -> None:
    sources, targets = texts(message.id), texts(message.string)
    assert len(sources) == len(targets)
    for source, target in zip(sources, targets, strict=True):
        assert placeholders(source) == placeholders(target)
        assert not target.startswith(" ")
        assert not target.endswith(" ")
        assert re.search(r"[.:?]?$", source)[0] == re.search(r"[.:?]?$", target)[0]  # type: ignore[index]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: texts(one.id)[0][:30])
def test_a_translation_is_another_text_but_for_names_and_words_taken_over(message: Message) -> None:
    (source, *_), (target, *_) = texts(message.id), texts(message.string)
    assert (source == target) == (source in THE_SAME)


def test_nothing_is_taken_over_that_is_not_there() -> None:
    assert {texts(one.id)[0] for one in MESSAGES} >= THE_SAME


def test_the_plural_is_that_of_brazilian_portuguese() -> None:
    catalog = GNUTranslations(BytesIO(MO.read_bytes()))
    forms = [catalog.ngettext("Split: {n} head", "Split: {n} heads", n) for n in (0, 1, 2, 1_000_000)]
    assert forms == ["Dividir: {n} cabeça"] * 2 + ["Dividir: {n} cabeças"] * 2


@pytest.mark.parametrize("name", ["pt", "PT", "pt_BR", "pt-br", "pt_PT", "pt_BR.UTF-8", "pt_BR@euro"])
def test_portuguese_by_any_of_its_names(name: str) -> None:
    say = translator(name, {})
    assert say.language == PORTUGUESE
    assert say("head {head}", head=3) == "cabeça 3"
    assert say.many("Split: {n} head", "Split: {n} heads", 1) == "Dividir: 1 cabeça"


@pytest.mark.parametrize("name", ["en", "en_GB", "EN-us"])
def test_english_by_any_of_its_names(name: str) -> None:
    say = translator(name, {"LANG": "pt_BR.UTF-8"})
    assert say("head {head}", head=3) == "head 3"
    assert say.many("Split: {n} head", "Split: {n} heads", 2) == "Split: 2 heads"


@pytest.mark.parametrize("name", ["fr", "", "portuguese", "p", "pt\0"])
def test_another_language_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(RequestError, match=r"no language .*: --lang is en or pt") as error:
        translator(name, {})
    assert repr(name) in str(error.value)


@pytest.mark.parametrize(
    ("environment", "code"),
    [
        ({}, "en"),
        ({"LANG": "pt_BR.UTF-8"}, "pt"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "pt_BR.UTF-8", "LC_ALL": "en_US.UTF-8"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "pt_BR.UTF-8"}, "pt"),
        ({"LANG": "pt_BR.UTF-8", "LC_MESSAGES": "en_US.UTF-8", "LC_ALL": "pt_PT"}, "pt"),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "", "LANGUAGE": "de:pt_BR:en"}, "pt"),
        ({"LANG": "pt_BR.UTF-8", "LANGUAGE": "en"}, "en"),
        ({"LANG": "C.UTF-8", "LANGUAGE": "pt"}, "en"),
        ({"LC_ALL": "C", "LANG": "pt_BR.UTF-8"}, "en"),
        ({"LC_ALL": "POSIX", "LANG": "pt_BR.UTF-8"}, "en"),
        ({"LANGUAGE": "pt"}, "en"),
    ],
)
def test_without_a_name_the_locale_decides_as_in_gettext(environment: dict[str, str], code: str) -> None:
    assert translator(None, environment).language == LANGUAGES[code]


@pytest.mark.parametrize("value", ["{x}", "%s", "a\nb", "{0}"])
def test_values_are_never_taken_for_placeholders(value: Any) -> None:
    assert translator("pt", {})("query {query}", query=value) == f"query {value}"


def test_every_lessons_title_is_translated() -> None:
    say = translator("pt", {})
    assert all(say(entry.title) != entry.title for entry in LESSONS.values())
