"""Reads the API keys that the routes file names: in variables of the environment, or in files."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.chassis.settings import SettingsError, read_variable
from services.chassis.small_file import read_small_file
from services.router.routes import file as kinds
from services.router.routes.file import Table


@dataclass(frozen=True, slots=True)
class KeySource:
    # Of the routes file: paths are relative to it.
    folder: Path
    environ: Mapping[str, str]
    # False: the keys are on other machines, and all are taken to be there.
    has_keys: bool = True

    def read(self, table: Table, *, is_needed: bool) -> tuple[str, Path | None]:
        """Returns the API key of a provider, and the file that it comes from, if any."""
        if table.read("api_key", Any, None) is not None:
            table.mistake("api_key", "do not put secrets in this file: name a file in api_key_file")
        name = table.read("api_key_file", kinds.TEXT, "")
        variable = table.read("api_key_env", kinds.TEXT, "")
        if is_needed and not name and not variable:
            table.mistake("api_key_file", "is missing")
        if name and variable:
            table.mistake("api_key_file", "is given beside api_key_env: give only one of them")
        path = self.folder / name if name else None
        if not self.has_keys:
            return "", path
        try:
            if path is not None:
                return read_key_file(path), path
            return (self.read_variable(variable) if variable else ""), None
        except SettingsError as error:
            table.mistake("api_key_env" if path is None else "api_key_file", str(error))
            return "", path

    def read_variable(self, variable: str) -> str:
        """Raises SettingsError if a variable has no secret; the message quotes nothing of it."""
        return _checked(
            read_variable(variable, self.environ, read_small_file) or "", f"the variable {variable}", "is not set"
        )


def read_key_file(path: Path) -> str:
    """Raises SettingsError if the file has no key; the message quotes nothing of it."""
    try:
        text = read_small_file(path).strip()
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not text") from None
    return _checked(text, str(path), "is empty")


def _checked(api_key: str, source: str, if_empty: str) -> str:
    """Returns a key that can be sent in a header."""
    if not api_key:
        raise SettingsError(f"{source} {if_empty}")
    if not (api_key.isascii() and api_key.isprintable()):
        raise SettingsError(f"{source} is not one line of ASCII characters")
    return api_key
