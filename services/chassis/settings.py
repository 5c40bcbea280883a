"""Settings come from `LEGATO_*` variables, and below them from the TOML file that `LEGATO_SETTINGS` names.

A service describes its own as a frozen `msgspec.Struct`; the field `database_url` is read from `LEGATO_DATABASE_URL`,
or from `database_url` in the file. Every mistake is named at once, before anything is opened.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

PREFIX = "LEGATO_"

SettingsT = TypeVar("SettingsT", bound=msgspec.Struct)


class SettingsError(Exception):
    """Says on one line each what is wrong with the settings."""


def load(kind: type[SettingsT], environ: Mapping[str, str] = os.environ) -> SettingsT:
    given: dict[str, Any] = _read_file(environ.get(f"{PREFIX}SETTINGS"))
    fields = msgspec.structs.fields(kind)
    for field in fields:
        value = environ.get(PREFIX + field.name.upper())
        if value is not None:
            given[field.name] = value
    mistakes = []
    for field in fields:
        if field.name not in given:
            if field.required:
                mistakes.append(f"{PREFIX}{field.name.upper()} is not set")
            continue
        try:
            given[field.name] = msgspec.convert(given[field.name], field.type, strict=False, dec_hook=_decode)
        except msgspec.ValidationError as error:
            # The value itself is not quoted: it may be a secret.
            mistakes.append(f"{PREFIX}{field.name.upper()}: {error}")
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return kind(**{field.name: given[field.name] for field in fields if field.name in given})


def _read_file(path: str | None) -> dict[str, Any]:
    if not path:
        return {}
    try:
        return tomllib.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise SettingsError(f"{PREFIX}SETTINGS: cannot read {path}: {error}") from error


def _decode(kind: type, value: Any) -> Any:
    if kind is not Path:
        raise NotImplementedError(kind)
    if not isinstance(value, str):
        raise TypeError("Expected a path")
    return Path(value)
