"""Keeps a text that is to become the routes file from naming API keys for other servers than before.

Who may ask what a text would change need not know the keys, and the text is checked with them.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

# What the service's own variables begin with; and what those of providers' keys have in their names.
_OWN_PREFIX: Final = "LEGATO_"
_KEY_VARIABLE: Final = re.compile(r"KEY|TOKEN")


class KeyOrigins:
    """The servers that get each API key by the files that this process has seen on disk. A key that was taken out of
    the file meanwhile is the same key, and so is a file by another of its names."""

    def __init__(self, folder: Path) -> None:
        """`folder` has the routes; paths are relative to it."""
        self._folder = folder
        # By the name of a variable, or the paths of a file.
        self._servers: dict[str | Path, frozenset[str]] = {}

    def note(self, text: str) -> None:
        """Notes a file on disk; raises ValueError if it is no TOML."""
        for provider in _providers_in(text).values():
            for source in self._sources_of(provider):
                self._servers[source] = self._servers.get(source, frozenset()) | {_server_of(provider)}

    def find_moved_keys(self, text: str) -> list[str]:
        """Returns where a text in TOML would send an API key to a server that does not get it so far, or would have a
        variable or file read that is none of a provider's."""
        found = ((name, self._mistake_of(provider)) for name, provider in _providers_in(text).items())
        return [f"providers.{name}: {what}: change this where the file is" for name, what in found if what]

    def _mistake_of(self, provider: Mapping[str, Any]) -> str:
        sources = self._sources_of(provider)
        if servers := frozenset[str]().union(*(self._servers.get(source, ()) for source in sources)):
            return "" if _server_of(provider) in servers else "would get the API key of another server"
        for source in sources:
            if isinstance(source, str) and (source.startswith(_OWN_PREFIX) or not _KEY_VARIABLE.search(source)):
                return f"names a variable, {source}, that is no provider's key"
            if isinstance(source, Path) and source.resolve().parent not in self._folders():
                return f"names a file, {provider['api_key_file']}, outside the folders of the routes and their keys"
        return ""

    def _folders(self) -> set[Path]:
        files = [source for source in list(self._servers) if isinstance(source, Path)]
        return {folder.resolve() for folder in (self._folder, *(file.parent for file in files))}

    def _sources_of(self, provider: Mapping[str, Any]) -> list[str | Path]:
        """Returns the variable of a provider's key, or the paths of its file: as it is written, and where links lead.
        Secrets of Kubernetes are links, which lead elsewhere whenever a secret changes."""
        variable, file = provider.get("api_key_env"), provider.get("api_key_file")
        sources: list[str | Path] = [variable] if isinstance(variable, str) else []
        if isinstance(file, str):
            sources += [Path(os.path.normpath(self._folder / file)), (self._folder / file).resolve()]
        return sources


def _providers_in(text: str) -> dict[str, Mapping[str, Any]]:
    providers = tomllib.loads(text).get("providers", {})
    if not isinstance(providers, Mapping):
        return {}
    return {name: given for name, given in providers.items() if isinstance(given, Mapping)}


def _server_of(provider: Mapping[str, Any]) -> str:
    base_url = provider.get("base_url")
    if not isinstance(base_url, str):
        return str(provider.get("kind"))
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc}".lower()
