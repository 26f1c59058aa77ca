"""Bring the Portuguese catalogue up to date with the code: python tools/catalogue.py

New texts come into the .po without a translation, and texts that are gone go; write what is missing, then run it again.
What is printed is what is still missing; the .mo, which the program reads, is made of the .po.
"""

import io
import sys
from datetime import UTC, datetime
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from attnviz.translation import DOMAIN, FOLDER, PORTUGUESE

PACKAGE = Path(__file__).parent.parent / "attnviz"
PO = FOLDER / PORTUGUESE / "LC_MESSAGES" / f"{DOMAIN}.po"
MO = PO.with_suffix(".mo")
KEYWORDS = {"say": None, "mark": None, "many": (1, 2)}
"""What texts are the arguments of: `say(text)`, `mark(text)` and `say.many(one, more, n)`."""
METHODS = [("**.py", "python")]
NO_TIME = datetime(2000, 1, 1, tzinfo=UTC)
"""The same code makes the same file."""


def extracted() -> Catalog:
    """The texts that the code holds, in the order of its files."""
    catalog = Catalog(project=DOMAIN, charset="utf-8")
    found = extract_from_dir(PACKAGE, METHODS, keywords=KEYWORDS)
    for file, _, text, _, _ in sorted(found, key=lambda one: (one[0], one[1])):
        catalog.add(text, locations=[(f"attnviz/{file}", 0)])
    return catalog


def translated() -> Catalog:
    """The catalogue as it is in the .po, where there is one."""
    if not PO.exists():
        return Catalog(locale=PORTUGUESE)
    with PO.open("rb") as stream:
        return read_po(stream, locale=PORTUGUESE)


def updated() -> Catalog:
    """The texts of the code with the translations that are there; those of texts that are gone are dropped."""
    old, new = (
        translated(),
        Catalog(
            locale=PORTUGUESE,
            project=DOMAIN,
            version="1",
            charset="utf-8",
            fuzzy=False,
            header_comment="# The lessons of attnviz in Brazilian Portuguese.",
            creation_date=NO_TIME,
            revision_date=NO_TIME,
            last_translator="The attnviz authors",
            language_team="pt_BR",
            msgid_bugs_address="none",
        ),
    )
    new.mime_headers = [("Plural-Forms", "nplurals=2; plural=(n > 1);")]
    for message in extracted():
        if message.id:
            known = old.get(texts(message.id)[0])
            new.add(message.id, known.string if known else "", locations=message.locations)
    return new


def po_bytes(catalog: Catalog) -> bytes:
    """The .po file of a catalogue."""
    stream = io.BytesIO()
    write_po(stream, catalog, width=120, include_lineno=False, ignore_obsolete=True)
    return stream.getvalue()


def mo_bytes(catalog: Catalog) -> bytes:
    """The .mo file of a catalogue."""
    stream = io.BytesIO()
    write_mo(stream, catalog)
    return stream.getvalue()


def untranslated(catalog: Catalog) -> list[str]:
    """The texts that have no translation, or not in all their forms."""
    return [texts(message.id)[0] for message in catalog if message.id and not all(texts(message.string))]


def texts(one_or_more: str | list[str] | tuple[str, ...] | None) -> tuple[str, ...]:
    """A text, or its forms where it counts something."""
    return (one_or_more or "",) if isinstance(one_or_more, str | None) else tuple(one_or_more)


def main() -> None:
    PO.parent.mkdir(parents=True, exist_ok=True)
    catalog = updated()
    PO.write_bytes(po_bytes(catalog))
    MO.write_bytes(mo_bytes(catalog))
    missing = untranslated(catalog)
    print(f"{len(catalog)} texts, {len(missing)} without a translation", *missing, sep="\n  ")
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
