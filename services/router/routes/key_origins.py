"""Keeps a text that is to become the routes file from naming API keys for other servers than before.

Who may ask what a text would change need not know the keys, and the text is checked with them.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

# What the service's own variables begin with; and what those of providers' keys have in their names.
_OWN_PREFIX: Final = "LEGATO_"
_KEY_VARIABLE: Final = re.compile(r"KEY|TOKEN")


class KeyOrigins:
    """The servers that get each API key by the files that this process has seen on disk. A key that was taken out of
    the file meanwhile is the same key, and so is a file by another of its names, or behind a variable."""

    def __init__(self, folder: Path, environ: Mapping[str, str] = os.environ) -> None:
        """`folder` has the routes; paths are relative to it."""
        self._folder = folder
        self._environ = environ
        # By the name of a variable, or the paths of a file.
        self._servers: dict[str | Path, frozenset[str]] = {}
        # Those of the routes and of the key files that they name.
        self._folders = {folder.resolve()}

    def record(self, text: str) -> None:
        """Records a file on disk; raises ValueError if it is no TOML."""
        for provider in _providers_in(text).values():
            for source in self._sources_of(provider):
                self._servers[source] = self._servers.get(source, frozenset()) | {_server_of(provider)}
            self._folders |= {path.parent.resolve() for path in self._files_of(provider)}

    def find_moved_keys(self, text: str) -> list[str]:
        """Returns where a text in TOML would send an API key to a server that does not get it so far, or would have a
        variable or file read that is none of a provider's."""
        found = ((name, self._mistake_of(provider)) for name, provider in _providers_in(text).items())
        return [f"providers.{name}: {what}: change this where the file is" for name, what in found if what]

    def _mistake_of(self, provider: Mapping[str, object]) -> str:
        sources = self._sources_of(provider)
        if servers := frozenset[str]().union(*(self._servers.get(source, ()) for source in sources)):
            return "" if _server_of(provider) in servers else "would get the API key of another server"
        variable = provider.get("api_key_env")
        if isinstance(variable, str) and (variable.startswith(_OWN_PREFIX) or not _KEY_VARIABLE.search(variable)):
            return f"names a variable, {variable}, that is no provider's key"
        if any(path.resolve().parent not in self._folders for path in self._files_of(provider)):
            return f"names a file, {provider['api_key_file']}, outside the folders of the routes and their keys"
        return ""

    def _sources_of(self, provider: Mapping[str, object]) -> list[str | Path]:
        """Returns the variable of a provider's key, and the file that has it or that the variable leads to."""
        variable, sources = provider.get("api_key_env"), list[str | Path](self._files_of(provider))
        if isinstance(variable, str):
            sources.append(variable)
            if file := self._environ.get(f"{variable}_FILE"):
                sources += _names_of(Path(file).absolute())
        return sources

    def _files_of(self, provider: Mapping[str, object]) -> list[Path]:
        file = provider.get("api_key_file")
        return _names_of(self._folder / file) if isinstance(file, str) else []


def _names_of(path: Path) -> list[Path]:
    """Returns a path as it is written, and where links lead. Secrets of Kubernetes are links, which lead elsewhere
    whenever a secret changes."""
    return [Path(os.path.normpath(path)), path.resolve()]


def _providers_in(text: str) -> dict[str, Mapping[str, object]]:
    providers = tomllib.loads(text).get("providers", {})
    if not isinstance(providers, Mapping):
        return {}
    return {name: given for name, given in providers.items() if isinstance(given, Mapping)}


def _server_of(provider: Mapping[str, object]) -> str:
    base_url = provider.get("base_url")
    if not isinstance(base_url, str):
        return str(provider.get("kind"))
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc}".lower()
