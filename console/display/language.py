"""The language of a visit, and the console's words in it.

Words stand in the code in English. `_` marks them and translates them; `N_` only marks those of a table that is made
before there is a visit. `make messages` gathers them in the catalogues.
"""

import json
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from markupsafe import escape

# By what a browser asks for: the name of the language, and what pages say that they are in.
LANGUAGES: Final = {"en": ("English", "en-CA"), "fr": ("Français", "fr-CA")}
ENGLISH: Final = "en"
COOKIE: Final = "legato-language"
FOLDER: Final = Path(__file__).parents[1] / "locale"

# Between a message and what it is said of, as in compiled catalogues of gettext.
CONTEXT_MARK: Final = "\x04"
# Spaces that do not break.
_FRENCH_FIGURES: Final = str.maketrans({",": "\N{NO-BREAK SPACE}", ".": ","})

Catalogue = dict[str, tuple[str, ...]]

_current: ContextVar[str] = ContextVar("language", default=ENGLISH)


def read_catalogue(text: str) -> Catalogue:
    """Reads a .po file: by message, its translation, or one for each plural form."""
    found: Catalogue = {}
    for entry in text.split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in entry.splitlines():
            if line and not line.startswith("#"):
                keyword, quote, rest = line.partition('"')
                name = keyword.strip() or name
                fields[name] = fields.get(name, "") + json.loads(quote + rest)
        if fields.get("msgid"):
            found[in_context(fields.get("msgctxt", ""), fields["msgid"])] = tuple(
                text for name, text in fields.items() if name.startswith("msgstr")
            )
    return found


def in_context(context: str, message: str) -> str:
    """Returns what a catalogue has a message under that is translated differently by what it is said of."""
    return f"{context}{CONTEXT_MARK}{message}" if context else message


def catalogue_path(language: str) -> Path:
    return FOLDER / language / "LC_MESSAGES" / "console.po"


_CATALOGUES: Final[dict[str, Catalogue]] = {
    language: {} if language == ENGLISH else read_catalogue(catalogue_path(language).read_text())
    for language in LANGUAGES
}


def speak(language: str) -> None:
    """Makes it the language of this visit."""
    _current.set(language)


def spoken() -> str:
    return _current.get()


def is_french() -> bool:
    return _current.get() == "fr"


def tag() -> str:
    """Returns what a page says that its language is."""
    return LANGUAGES[_current.get()][1]


def choose(cookie: str, accepted: str) -> str:
    """Returns the language that a visitor chose, or else the first of a browser's `Accept-Language` that there is."""
    if cookie in LANGUAGES:
        return cookie
    weights: dict[str, float] = {}
    for each in accepted.split(","):
        name, _, quality = each.partition(";")
        language = name.strip().lower().partition("-")[0]
        if language in LANGUAGES:
            weights[language] = max(weights.get(language, 0), _weight(quality))
    best = max(weights, key=lambda language: weights[language], default=ENGLISH)
    return best if weights.get(best) else ENGLISH


def _weight(quality: str) -> float:
    try:
        return float(quality.strip().removeprefix("q=") or 1)
    except ValueError:
        return 0


def in_figures(figure: str) -> str:
    """Writes a figure, such as 1,234.5, as the language of the visit does."""
    return figure.translate(_FRENCH_FIGURES) if is_french() else figure


def gettext(message: str, **values: object) -> str:
    """Returns the words of a message; `values` stand in place of `%(name)s`."""
    found = _CATALOGUES[_current.get()].get(message, (message,))[0] or message
    return found % values if values else found


def pgettext(context: str, message: str) -> str:
    """Returns the words of a message that is said of this: a key is "active" in another gender than a user."""
    return _CATALOGUES[_current.get()].get(in_context(context, message), (message,))[0] or message


def ngettext(one: str, many: str, num: int, **values: object) -> str:
    """Returns the words for a number of things, which may be in place of `%(num)s`."""
    return plural_form(one, many, num) % {"num": in_figures(f"{num:,}"), **values}


def plural_form(one: str, many: str, num: int) -> str:
    """Returns the message for a number of things; templates put values in place themselves, and escape them."""
    translated = _CATALOGUES[_current.get()].get(one, (one, many))
    # In French, nothing is singular, unless the words say that it is one.
    is_many = num > 1 or (num == 0 and "%(" not in translated[0]) if is_french() else num != 1
    form = int(is_many)
    return translated[form] or (one, many)[form]


def mark(message: str) -> str:
    return message


_ = gettext
N_ = mark


class EnglishText(str):
    """Words of a service, which speaks English alone: pages in another language say so."""

    __slots__ = ()

    def __html__(self) -> str:
        escaped = escape(str(self))
        return str(escaped) if _current.get() == ENGLISH else f'<span lang="en">{escaped}</span>'
