"""Settings come from `LEGATO_*` variables, and below them from the TOML file that `LEGATO_SETTINGS` names.

A service describes its own as a frozen `msgspec.Struct`; the field `database_url` is read from `LEGATO_DATABASE_URL`,
or from the file that `LEGATO_DATABASE_URL_FILE` names, as secrets are mounted, or from `database_url` in the TOML file.
Every mistake is named at once, before anything is opened.
"""

import math
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

PREFIX = "LEGATO_"

Seconds = Annotated[float, msgspec.Meta(gt=0)]
# 0: none, or never.
SecondsOrZero = Annotated[float, msgspec.Meta(ge=0)]
# 0: any that is free.
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
# Empty: nowhere.
HostAndPort = Annotated[str, msgspec.Meta(pattern=r"^$|^\S+:[0-9]{1,5}$")]

SettingsT = TypeVar("SettingsT", bound=msgspec.Struct)

_PATHS = (Path, Path | None)


class SettingsError(Exception):
    """Says on one line each what is wrong with the settings."""


def load(kind: type[SettingsT], environ: Mapping[str, str] = os.environ) -> SettingsT:
    in_file = _read_file(environ.get(f"{PREFIX}SETTINGS"))
    given: dict[str, Any] = {}
    mistakes = []
    for field in msgspec.structs.fields(kind):
        variable = PREFIX + field.name.upper()
        try:
            value = read_variable(variable, environ)
            value = in_file.get(field.name) if value is None else value
            if value == "" and field.type in _PATHS:
                # Else an empty variable would name the folder in which the process was started.
                continue
            if value is not None:
                given[field.name] = _convert(value, field.type)
            elif field.required:
                mistakes.append(f"{variable} is not set")
        except SettingsError as error:
            mistakes.append(str(error))
        except msgspec.ValidationError as error:
            # The value itself is not quoted: it may be a secret.
            mistakes.append(f"{variable}: {error}")
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return kind(**given)


def read_variable(name: str, environ: Mapping[str, str]) -> str | None:
    """The variable, or what is in the file that the variable with `_FILE` behind its name names."""
    file = environ.get(f"{name}_FILE")
    if not file:
        return environ.get(name)
    if environ.get(name) is not None:
        raise SettingsError(f"{name} and {name}_FILE are both set: one of them is enough")
    try:
        return Path(file).read_text().strip()
    except UnicodeDecodeError:
        # The error itself would quote what it could not read.
        raise SettingsError(f"{name}_FILE: {file} is not text") from None
    except OSError as error:
        raise SettingsError(f"{name}_FILE: cannot read {file}: {error.strerror}") from error


def _read_file(path: str | None) -> dict[str, Any]:
    if not path:
        return {}
    try:
        return tomllib.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise SettingsError(f"{PREFIX}SETTINGS: cannot read {path}: {error}") from error


def _convert(value: Any, kind: Any) -> Any:
    converted = msgspec.convert(value, kind, strict=False, dec_hook=_decode)
    # "inf" is above any bound, and where there is none, "nan" is taken too; no timer takes either.
    if isinstance(converted, float) and not math.isfinite(converted):
        raise msgspec.ValidationError("Expected a finite number")
    return converted


def _decode(kind: type, value: Any) -> Any:
    if kind is not Path:
        raise NotImplementedError(kind)
    if not isinstance(value, str):
        raise TypeError("Expected a path")
    return Path(value)
