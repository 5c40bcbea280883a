"""Loads settings from `LEGATO_*` variables, then from the TOML file that `LEGATO_SETTINGS` names.

A service describes its own as a frozen `msgspec.Struct`; the field `database_url` is read from `LEGATO_DATABASE_URL`,
or from the file that `LEGATO_DATABASE_URL_FILE` names, as secrets are mounted, or from `database_url` in the TOML file.
All mistakes are reported at once, before anything is opened.
"""

import math
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

import msgspec

PREFIX = "LEGATO_"
SETTINGS_VARIABLE = f"{PREFIX}SETTINGS"

# A year. Timers and databases overflow before a number does.
LONGEST_S: Final = 365 * 24 * 3600.0

Seconds = Annotated[float, msgspec.Meta(gt=0, le=LONGEST_S)]
# 0: none, or never.
SecondsOrZero = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S)]
# 0: any free port.
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]

# Strings with a format describe it by `description`, which the error message quotes. Empty: not set.
_PORT = "(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[0-9]{1,4})"
# Where a process serves health and metrics over HTTP.
OperationsListen = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^$|^unix:/\S+$|^\S+:{_PORT}$", description="HOST:PORT, with a port up to 65535, or unix:PATH"
    ),
]
HttpAddress = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^$|^https?://(\[[0-9A-Fa-f:.]+\]|[^][\s/:?#@]+)(:{_PORT})?(/\S*)?$",
        description="http://HOST:PORT or https://HOST:PORT",
    ),
]
PostgresAddress = Annotated[
    str,
    msgspec.Meta(pattern=r"^$|^postgres", description="a PostgreSQL address: SQLite files are kept in LEGATO_DATA"),
]

# The role of the console on a service's socket for one.
ConsoleRole = Literal["console", "operator-console"]

SettingsT = TypeVar("SettingsT", bound=msgspec.Struct)

_PATHS = (Path, Path | None)


class SettingsError(Exception):
    """Reports what is wrong with the settings, one mistake per line."""


def load(kind: type[SettingsT], environ: Mapping[str, str] = os.environ) -> SettingsT:
    """Reads and validates settings; a struct may have a method `check`, which raises if values do not fit together."""
    in_file = read_settings_file(environ)
    given: dict[str, Any] = {}
    mistakes = []
    fields = msgspec.structs.fields(kind)
    for field in fields:
        variable = PREFIX + field.name.upper()
        try:
            value: object = read_variable(variable, environ)
            value = in_file.get(field.name) if value is None else value
            if value == "" and field.type in _PATHS:
                # An empty variable would otherwise name the working directory.
                continue
            if value is not None:
                given[field.name] = _convert(value, field.type)
            elif field.required:
                mistakes.append(f"{variable} is not set")
        except SettingsError as error:
            mistakes.append(str(error))
        except msgspec.ValidationError as error:
            # The value itself is not quoted: it may be a secret.
            described = _description(field.type)
            mistakes.append(f"{variable}: must be {described}" if described else f"{variable}: {error}")
    if any(field.required and field.name not in given for field in fields):
        raise SettingsError("\n".join(mistakes))
    # Invalid values are replaced by defaults here, so that the remaining ones are checked as well.
    settings = kind(**given)
    try:
        getattr(settings, "check", lambda: None)()
    except SettingsError as error:
        mistakes.append(str(error))
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return settings


def check_all(*checks: Callable[[], object]) -> None:
    """Runs every check and raises all their errors as one."""
    mistakes = []
    for check in checks:
        try:
            check()
        except SettingsError as error:
            mistakes.append(str(error))
    if mistakes:
        raise SettingsError("\n".join(mistakes))


def read_variable(name: str, environ: Mapping[str, str], read: Callable[[Path], str] = Path.read_text) -> str | None:
    """Returns the variable, or the content of the file that the variable `NAME_FILE` names, as `read` does it."""
    file = environ.get(f"{name}_FILE")
    if not file:
        return environ.get(name)
    if environ.get(name) is not None:
        raise SettingsError(f"{name} and {name}_FILE are both set: set only one of them")
    try:
        return read(Path(file)).strip()
    except UnicodeDecodeError:
        # The error itself would quote the content.
        raise SettingsError(f"{name}_FILE: {file} is not text") from None
    except OSError as error:
        raise SettingsError(f"{name}_FILE: cannot read {file}: {error.strerror}") from error


def read_settings_file(environ: Mapping[str, str]) -> dict[str, object]:
    """Reads the TOML file, if one is named."""
    path = environ.get(SETTINGS_VARIABLE)
    if not path:
        return {}
    try:
        return tomllib.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise SettingsError(f"{SETTINGS_VARIABLE}: cannot read {path}: {error}") from error


def _description(kind: object) -> str:
    return next((part.description or "" for part in get_args(kind)[1:] if isinstance(part, msgspec.Meta)), "")


def _convert(value: object, kind: Any) -> object:
    converted: object = msgspec.convert(value, kind, strict=False, dec_hook=_decode)
    # "inf" exceeds every bound, but "nan" passes where there is none; timers accept neither.
    if isinstance(converted, float) and not math.isfinite(converted):
        raise msgspec.ValidationError("Expected a finite number")
    return converted


def _decode(kind: type, value: object) -> object:
    if kind is not Path:
        raise NotImplementedError(kind)
    if not isinstance(value, str):
        raise TypeError("Expected a path")
    return Path(value)
