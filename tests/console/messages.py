"""Gathers the console's words in its catalogues, and leaves out those that are no longer used: `make messages`."""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from console.display.language import (
    CONTEXT_MARK,
    ENGLISH,
    LANGUAGES,
    Catalogue,
    catalogue_path,
    in_context,
    read_catalogue,
)
from console.web.assets import Assets
from console.web.rendering import FOLDER as TEMPLATES
from console.web.rendering import new_environment

CONSOLE: Final = TEMPLATES.parent
MARKS: Final = frozenset({"_", "N_", "gettext", "ngettext", "pgettext"})
_HEAD: Final = r"""msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: {}\n"
"Plural-Forms: nplurals=2; plural=(n > 1);\n"
"""


def marked_words() -> dict[str, str]:
    """Returns every message of templates and code with its plural; empty: it has none."""
    found: dict[str, str] = {}
    for one, many in (*_in_templates(), *_in_code()):
        found[one] = many or found.get(one, "")
    return found


def _in_templates() -> Iterator[tuple[str, str]]:
    environment = new_environment(Assets())
    for path in sorted(TEMPLATES.rglob("*.html")):
        for _line, function, message in environment.extract_translations(path.read_text()):  # type: ignore[attr-defined]
            texts = [text or "" for text in (message if isinstance(message, tuple) else (message,))]
            if texts[0]:
                yield _message_of(function, texts)


def _in_code() -> Iterator[tuple[str, str]]:
    for path in sorted(CONSOLE.rglob("*.py")):
        for call in marked_calls(path):
            texts = [each.value for each in call.args[:2] if isinstance(each, ast.Constant)]
            if texts and isinstance(texts[0], str):
                yield _message_of(ast.unparse(call.func), [str(text) for text in texts])


def _message_of(function: str, texts: list[str]) -> tuple[str, str]:
    """Returns a message as catalogues name it, and its plural."""
    if function == "pgettext":
        return in_context(*texts), ""
    return texts[0], texts[1] if len(texts) > 1 else ""


def marked_calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKS:
            yield node


def as_po(language: str, messages: dict[str, str], translated: Catalogue) -> str:
    """Returns a catalogue, ordered by its messages and without places in the code, so that changes merge easily."""
    entries = [_HEAD.format(language)]
    for one, many in sorted(messages.items()):
        forms = translated.get(one, ())
        context, _mark, message = one.rpartition(CONTEXT_MARK)
        lines = [f"msgctxt {_quoted(context)}"] if context else []
        lines.append(f"msgid {_quoted(message)}")
        if many:
            forms = (*forms, "", "")[:2]
            lines += [
                f"msgid_plural {_quoted(many)}",
                *(f"msgstr[{n}] {_quoted(form)}" for n, form in enumerate(forms)),
            ]
        else:
            lines.append(f"msgstr {_quoted(forms[0] if forms else '')}")
        entries.append("\n".join(lines) + "\n")
    return "\n".join(entries)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def main() -> None:
    messages = marked_words()
    for language in LANGUAGES:
        if language != ENGLISH:
            path = catalogue_path(language)
            translated = read_catalogue(path.read_text()) if path.exists() else {}
            path.write_text(as_po(language, messages, translated))
            missing = [one for one in messages if not all(translated.get(one, ("",)))]
            sys.stdout.write(f"{path}: {len(messages)} messages, {len(missing)} to translate\n")


if __name__ == "__main__":
    main()
