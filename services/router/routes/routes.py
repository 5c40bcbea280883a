"""Reads `routes.toml`: which models serve a class, and where they are.

The file is validated before anything is opened, and all mistakes are reported at once, each with its key.
"""

import hashlib
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Final, Protocol

import msgspec

from services.chassis.settings import SettingsError
from services.chassis.small_file import read_small_file
from services.router.prompts import prompt
from services.router.prompts.prompt import Character, load_character
from services.router.providers.base import ProviderRoute, Timeouts
from services.router.routes import file as kinds
from services.router.routes.class_route import ClassRoute, read_class_route
from services.router.routes.file import Table
from services.router.routes.keys.api_keys import KeySource
from services.router.routes.provider import read_provider
from services.router.routes.retention_promise import utc_today
from services.router.routes.target import DEFAULT_TIMEOUTS, read_target
from services.rules.model_classes import CLASSES

DEFAULT_PATH = Path(__file__).parents[3] / "routes.toml"
VERSION_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Routes:
    # Only the providers that some class uses.
    providers: Mapping[str, ProviderRoute]
    classes: Mapping[str, ClassRoute]
    # The system prompt of each class.
    characters: Mapping[str, Character] = field(default_factory=lambda: dict.fromkeys(CLASSES, load_character()))
    # The same on every router whose file has the same content; empty if they come from no file.
    version: str = ""

    @property
    def uses_local_model(self) -> bool:
        """Returns whether the bundled model must be started."""
        return any(provider.kind == "local" for provider in self.providers.values())

    @property
    def bundled_classes(self) -> frozenset[str]:
        """Returns the classes that the bundled model answers, unless it fails."""
        return frozenset(
            class_id
            for class_id, route in self.classes.items()
            if all(self.providers[member.target.provider].kind == "local" for member in route.tiers[0])
        )


class RoutesInUse(Protocol):
    """The routes by which models are called at present: what calls them keeps them."""

    routes: Routes

    def replace(self, routes: Routes) -> None:
        """Takes other routes into use, for new chats."""

    def use_keys(self, providers: Mapping[str, ProviderRoute]) -> None:
        """Takes over the API keys of providers, in which nothing else has changed."""


class RoutesMistaken(SettingsError):
    """Reports all mistakes of a routes file: of each its key, a colon and what is wrong, or that alone."""

    def __init__(self, path: Path, mistakes: Sequence[str]) -> None:
        super().__init__("\n".join(f"{path}: {mistake}" for mistake in mistakes))
        self.mistakes = tuple(mistakes)


def load_routes(
    path: Path = DEFAULT_PATH,
    environ: Mapping[str, str] = os.environ,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    today: date | None = None,
    *,
    has_keys: bool = True,
) -> Routes:
    """Loads and validates the file; `timeouts` are the defaults for models without their own. What providers promise
    must hold today. Without `has_keys`, API keys are not looked for: they are on other machines."""
    try:
        text = read_small_file(path)
    except OSError as error:
        raise SettingsError(f"LEGATO_ROUTES: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise RoutesMistaken(path, [str(error)]) from None
    return read_routes(text, path, environ, timeouts, today, has_keys=has_keys)


def read_routes(
    text: str,
    path: Path,
    environ: Mapping[str, str] = os.environ,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    today: date | None = None,
    *,
    has_keys: bool = True,
) -> Routes:
    """Reads and validates a text as the content of the file at `path`; raises RoutesMistaken."""
    try:
        document = tomllib.loads(text)
    except ValueError as error:
        raise RoutesMistaken(path, [str(error)]) from None
    keys = KeySource(path.parent, environ, has_keys)
    reader = _Reader(path.parent, keys, timeouts, today or utc_today())
    routes = reader.read(document)
    if reader.mistakes:
        raise RoutesMistaken(path, reader.mistakes)
    return routes


class _Reader:
    def __init__(self, folder: Path, keys: KeySource, timeouts: Timeouts, today: date) -> None:
        """`folder` contains the routes file; paths in the file are relative to it."""
        self.mistakes: list[str] = []
        self._folder = folder
        self._keys = keys
        self._timeouts = timeouts
        self._today = today

    def read(self, document: dict[str, object]) -> Routes:
        root = Table(self.mistakes, "", document)
        providers = {
            name: read_provider(name, table, self._keys, self._today)
            for name, table in root.tables("providers").items()
        }
        models = {name: read_target(table, providers, self._timeouts) for name, table in root.tables("models").items()}
        default_character = root.read("character", kinds.TEXT, prompt.DEFAULT)
        tables = root.tables("classes")
        characters = {name: self._read_character(table, default_character) for name, table in tables.items()}
        classes = {name: read_class_route(name, table, models) for name, table in tables.items()}
        root.finish()
        for name in CLASSES:
            if name not in classes:
                self.mistakes.append(f"classes.{name}: is missing")
        used = {target.provider for route in classes.values() for target in route.targets}
        used_providers = {name: route for name, route in providers.items() if name in used}
        return Routes(used_providers, classes, characters, _version_of(document, characters))

    def _read_character(self, table: Table, default: str) -> Character:
        try:
            return load_character(table.read("character", kinds.TEXT, default), self._folder)
        except SettingsError as error:
            table.mistake("character", str(error))
            return load_character()


def _version_of(document: dict[str, object], characters: Mapping[str, Character]) -> str:
    """Returns a digest of the file's content, whatever its comments and order, and of the characters' texts. API keys
    are not in it: the file only names their variables and files."""
    texts = {class_id: (character.version, character.text) for class_id, character in characters.items()}
    content = msgspec.json.encode((document, texts), order="sorted")
    return hashlib.sha256(content).hexdigest()[:VERSION_DIGITS]
