"""Reads `routes.toml`: which models serve a class, and where they are.

The file is validated before anything is opened, and all mistakes are reported at once, each with its key.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from services.chassis.http_client.origin import has_host
from services.chassis.settings import SettingsError, read_variable
from services.router.prompts import prompt
from services.router.prompts.prompt import Character, load_character
from services.router.providers import KINDS
from services.router.providers.base import ProviderRoute, Timeouts
from services.router.routing import route_file as kinds
from services.router.routing.queue_watch import MOST_WAITING
from services.router.routing.route_file import Table
from services.rules.model_classes import CLASSES

DEFAULT_PATH = Path(__file__).parents[3] / "routes.toml"
DEFAULT_TIMEOUTS = Timeouts()

_OUTPUT_FIELDS = ("max_tokens", "max_completion_tokens")
_FLAGS = ("no_store", "short_call_ids", "string_content")
# Timeouts that a model may override; the connect timeout belongs to the provider.
_TIMEOUTS = ("first_byte_s", "idle_s", "whole_s", "total_s")


@dataclass(frozen=True, slots=True)
class ProviderCost:
    """The prices of a provider for a million tokens, in nano-dollars."""

    input_nanos: int
    cached_input_nanos: int
    output_nanos: int


@dataclass(frozen=True, slots=True)
class Target:
    """A model that may serve a class."""

    provider: str
    model_name: str
    context_tokens: int
    max_output_tokens: int
    # Concurrency limit; None: as many chats as its server accepts.
    concurrency: int | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    # Whether it supports tool calls while streaming, so that our search function can be offered.
    has_tools: bool = True
    # Where its server publishes its queue length, and the longest queue allowed.
    queue_metrics_url: str = ""
    queue_most_waiting: int = MOST_WAITING
    # Delay of the first token, beyond the usual, that counts as queueing. 0 disables the measurement; None uses the
    # default.
    queueing_s: float | None = None
    # What the provider charges us; None: not stated.
    cost: ProviderCost | None = None


@dataclass(frozen=True, slots=True)
class Routes:
    # Only the providers that some class uses.
    providers: Mapping[str, ProviderRoute]
    # In order of preference.
    classes: Mapping[str, tuple[Target, ...]]
    # The system prompt of each class.
    characters: Mapping[str, Character] = field(default_factory=lambda: dict.fromkeys(CLASSES, load_character()))

    @property
    def uses_local_model(self) -> bool:
        """Returns whether the bundled model must be started."""
        return any(provider.kind == "local" for provider in self.providers.values())

    @property
    def bundled_classes(self) -> frozenset[str]:
        """Returns the classes that the bundled model answers, unless it fails."""
        return frozenset(
            class_id
            for class_id, targets in self.classes.items()
            if targets and self.providers[targets[0].provider].kind == "local"
        )


def load_routes(
    path: Path = DEFAULT_PATH, environ: Mapping[str, str] = os.environ, timeouts: Timeouts = DEFAULT_TIMEOUTS
) -> Routes:
    """Loads and validates the file; `timeouts` are the defaults for models without their own."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"LEGATO_ROUTES: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from None
    reader = _Reader(path.parent, environ, timeouts)
    routes = reader.read(document)
    if reader.mistakes:
        raise SettingsError("\n".join(f"{path}: {mistake}" for mistake in reader.mistakes))
    return routes


class _Reader:
    def __init__(self, folder: Path, environ: Mapping[str, str], timeouts: Timeouts) -> None:
        """`folder` contains the routes file; paths in the file are relative to it."""
        self.mistakes: list[str] = []
        self._folder = folder
        self._environ = environ
        self._timeouts = timeouts

    def read(self, document: dict[str, Any]) -> Routes:
        root = Table(self.mistakes, "", document)
        providers = {name: self._read_provider(name, table) for name, table in root.tables("providers").items()}
        models = {name: self._read_model(table, providers) for name, table in root.tables("models").items()}
        default_character = root.read("character", kinds.TEXT, prompt.DEFAULT)
        tables = root.tables("classes")
        characters = {name: self._read_character(table, default_character) for name, table in tables.items()}
        classes = {name: self._read_class(name, table, models) for name, table in tables.items()}
        root.finish()
        for name in CLASSES:
            if name not in classes:
                self.mistakes.append(f"classes.{name}: is missing")
        used = {target.provider for targets in classes.values() for target in targets}
        return Routes({name: route for name, route in providers.items() if name in used}, classes, characters)

    def _read_provider(self, name: str, table: Table) -> ProviderRoute:
        kind = table.choose("kind", tuple(KINDS))
        route = ProviderRoute(name, kind)
        if kind in KINDS and KINDS[kind].needs_address:
            route = self._read_remote(name, kind, table)
        if kind in KINDS:
            # The keys of an unknown kind of provider cannot be checked.
            table.finish()
        return route

    def _read_remote(self, name: str, kind: str, table: Table) -> ProviderRoute:
        lack = "must be true" if table.has("zero_retention") else "is missing"
        if table.read("zero_retention", Any, None) is not True:
            table.mistake("zero_retention", f"{lack}: only providers that retain no data are used")
        versions = KINDS[kind].versions
        route = ProviderRoute(
            name,
            kind,
            base_url=self._read_address(table),
            api_key=self._read_secret(table, is_needed=bool(versions)),
            extra_json=msgspec.json.encode(table.read("body", kinds.TABLE, {})),
        )
        if versions:
            return replace(route, version=table.choose("version", versions))
        flags = {key: table.read(key, kinds.FLAG, getattr(route, key)) for key in _FLAGS}
        return replace(route, output_field=table.choose("output_field", _OUTPUT_FIELDS, "max_tokens"), **flags)

    @staticmethod
    def _read_address(table: Table, key: str = "base_url") -> str:
        url: str = table.read(key, kinds.TEXT)
        if url and not url.startswith(("http://", "https://")):
            table.mistake(key, "must start with http:// or https://")
        elif url and not has_host(url):
            table.mistake(key, "must have a host, and a valid port if it has one")
        return url

    def _read_secret(self, table: Table, *, is_needed: bool) -> str:
        if table.read("api_key", Any, None) is not None:
            table.mistake("api_key", "do not put secrets in this file: name a variable in api_key_env")
        variable = table.read("api_key_env", kinds.TEXT, MISSING if is_needed else "")
        if not variable:
            return ""
        try:
            secret = read_variable(variable, self._environ)
        except SettingsError as error:
            table.mistake("api_key_env", str(error))
            return ""
        if not secret:
            table.mistake("api_key_env", f"the variable {variable} is not set")
        return secret or ""

    def _read_model(self, table: Table, providers: Mapping[str, ProviderRoute]) -> Target:
        provider = table.read("provider", kinds.TEXT)
        if provider and provider not in providers:
            table.mistake("provider", f'no provider named "{provider}"')
        target = Target(
            provider,
            table.read("name", kinds.TEXT),
            table.read("context_tokens", kinds.POSITIVE),
            table.read("max_output_tokens", kinds.POSITIVE),
            table.read("concurrency", kinds.POSITIVE, None),
            replace(self._timeouts, **{key: table.read(key, kinds.SECONDS) for key in _TIMEOUTS if table.has(key)}),
            # The bundled model does not stream with tools, which is worth it only for the client's own tools.
            table.read("tools", kinds.FLAG, provider not in providers or providers[provider].kind != "local"),
            self._read_address(table, "queue_metrics_url") if table.has("queue_metrics_url") else "",
            table.read("queue_most_waiting", kinds.POSITIVE, MOST_WAITING),
            table.read("queueing_s", kinds.SECONDS_OR_ZERO, None),
            self._read_cost(table) if table.has("cost") else None,
        )
        table.finish()
        return target

    @staticmethod
    def _read_cost(table: Table) -> ProviderCost:
        cost = table.inner("cost")
        input_nanos = cost.read("input", kinds.DOLLARS)
        cached_nanos = cost.read("cached_input", kinds.DOLLARS, input_nanos)
        output_nanos = cost.read("output", kinds.DOLLARS)
        cost.finish()
        return ProviderCost(input_nanos, cached_nanos, output_nanos)

    def _read_character(self, table: Table, default: str) -> Character:
        try:
            return load_character(table.read("character", kinds.TEXT, default), self._folder)
        except SettingsError as error:
            table.mistake("character", str(error))
            return load_character()

    @staticmethod
    def _read_class(name: str, table: Table, models: Mapping[str, Target]) -> tuple[Target, ...]:
        if name not in CLASSES:
            table.mistake("", f"is not a class; the classes are {', '.join(CLASSES)}")
            return ()
        named = table.read("models", kinds.NAMES)
        for model in named:
            if model not in models:
                table.mistake("models", f'no model named "{model}"')
        if len(set(named)) < len(named):
            table.mistake("models", "names a model twice")
        table.finish()
        return tuple(models[model] for model in named if model in models)
