"""Keeps a text that is to become the routes file from naming API keys for other servers than before.

Who may ask what a text would change need not know the keys, and the text is checked with them.
"""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from services.router.routes.keys.credentials import FILE, VARIABLE
from services.router.routes.keys.credentials import KEY as CREDENTIALS
from services.router.routes.keys.request_additions import HEADERS, QUERY

# What the service's own variables begin with; and what those of providers' keys have in their names.
_OWN_PREFIX: Final = "LEGATO_"
_KEY_VARIABLE: Final = re.compile(r"KEY|TOKEN|SECRET")


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
        named, server = _named_in(provider), _server_of(provider)
        by_variable = {name: self._sources_behind(name) for name in named.variables}
        by_file = {name: self._names_of(name) for name in named.files}
        named_sources: list[tuple[str, Sequence[str | Path]]] = [*by_variable.items(), *by_file.items()]
        for name, sources in named_sources:
            if servers := frozenset[str]().union(*(self._servers.get(source, ()) for source in sources)):
                if server not in servers:
                    return "would get the API key of another server"
            elif name in by_variable and (name.startswith(_OWN_PREFIX) or not _KEY_VARIABLE.search(name)):
                return f"names a variable, {name}, that is no provider's key"
            elif name in by_file and any(path.resolve().parent not in self._folders for path in by_file[name]):
                return f"names a file, {name}, outside the folders of the routes and their keys"
        return ""

    def _sources_of(self, provider: Mapping[str, object]) -> list[str | Path]:
        """Returns the variables of a provider's secrets, and the files that have them or that the variables lead to."""
        behind = [source for variable in _named_in(provider).variables for source in self._sources_behind(variable)]
        return [*behind, *self._files_of(provider)]

    def _sources_behind(self, variable: str) -> list[str | Path]:
        file = self._environ.get(f"{variable}_FILE")
        return [variable, *(_names_of(Path(file).absolute()) if file else ())]

    def _files_of(self, provider: Mapping[str, object]) -> list[Path]:
        return [path for file in _named_in(provider).files for path in self._names_of(file)]

    def _names_of(self, file: str) -> list[Path]:
        return _names_of(self._folder / file)


class _Named(NamedTuple):
    """The places that the secrets of a provider are read from."""

    variables: list[str]
    files: list[str]


def _named_in(provider: Mapping[str, object]) -> _Named:
    """Returns the variables and files of a provider's key, and of its headers, query and credentials."""
    tables = [provider]
    for name in (HEADERS, QUERY):
        values = provider.get(name)
        tables += [
            value for value in (values.values() if isinstance(values, Mapping) else ()) if isinstance(value, Mapping)
        ]
    credentials = provider.get(CREDENTIALS)
    if isinstance(credentials, Mapping):
        tables.append(credentials)
    named = [(key, value) for table in tables for key, value in table.items() if isinstance(value, str)]
    return _Named(
        [value for key, value in named if f"_{key}".endswith(VARIABLE)],
        [value for key, value in named if f"_{key}".endswith(FILE)],
    )


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
    """Returns the server of a provider, and those that its credentials are shown to."""
    base_url, credentials = provider.get("base_url"), provider.get(CREDENTIALS)
    if not isinstance(base_url, str):
        return str(provider.get("kind"))
    others = credentials.values() if isinstance(credentials, Mapping) else ()
    urls = [base_url, *sorted(url for url in others if isinstance(url, str) and "://" in url)]
    return " ".join(f"{parts.scheme}://{parts.netloc}".lower() for parts in map(urlsplit, urls))
