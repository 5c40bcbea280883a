"""Tells where a routes file may have a secret itself, rather than name where one is: such a file is shown to nobody."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

from services.router.routing.route_lines import KeyLines, Mistake

# Texts that name things. All others are secret if they look so.
_PLAIN_KEYS: Final = frozenset(
    {"kind", "region", "version", "output_field", "api_key_file", "provider", "name", "model", "models", "accounts"}
    | {"character", "evidence", "base_url", "queue_metrics_url", "continues"}
)
_SECRET_KEY: Final = re.compile(r"key|token|secret|password|auth|credential", re.IGNORECASE)
_SECRET_ADDRESS: Final = re.compile(r"//[^/@\s]*@|\?(?!api-version=[0-9a-z-]{1,32}$).")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# Letters and digits without an end: no word, and no name of a model. Accounts have ids like that.
_LONG_RUN: Final = re.compile(r"(?<![A-Za-z0-9])(?<!acct_)(?=[a-zA-Z]*\d)(?=\d*[a-zA-Z])[A-Za-z0-9]{16,}")
_SUSPECTED: Final = "may be a secret"


def find_secrets(text: str) -> list[Mistake]:
    """Returns the places of a file that may be secret. One that is no TOML may have them anywhere."""
    lines = KeyLines(text)
    try:
        document = tomllib.loads(text)
    except ValueError as error:
        [mistake] = lines.place([str(error)])
        return [mistake._replace(what=f"is not TOML, so it is unknown where it has secrets: {mistake.what}")]
    found, plain = [], []
    for path, value in _texts_in(document, ()):
        if _is_secret(path, value):
            key = ".".join(path)
            found.append(Mistake(lines.find(key), key, _SUSPECTED))
        else:
            plain.append(value)
    known = "\n".join(plain)
    told = {mistake.line for mistake in found}
    for number, line in enumerate(text.splitlines(), start=1):
        if number not in told and any(run[0] not in known for run in _LONG_RUN.finditer(line)):
            found.append(Mistake(number, "", _SUSPECTED))
    return found


def _texts_in(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts_in(inner, (*path, name))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(inner, path)
    elif isinstance(value, str):
        yield path, value


def _is_secret(path: tuple[str, ...], value: str) -> bool:
    key = path[-1]
    if key == "api_key_env":
        return _VARIABLE.fullmatch(value) is None or _LONG_RUN.search(value) is not None
    if key in _PLAIN_KEYS and "body" not in path:
        return _SECRET_ADDRESS.search(value) is not None
    return _SECRET_KEY.search(key) is not None or _LONG_RUN.search(value) is not None
