"""Tells where a routes file may have a secret itself, rather than name where one is, and keeps a file that is edited
from afar from sending API keys to other servers than before.

A file that may have a secret is shown to nobody. An operator of the console may change routes, but does not know the
keys: a text that gives a key's variable to another server would tell it."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from services.router.routing.route_lines import KeyLines, Mistake

# Texts that name things. All others are secret if they look so.
_PLAIN_KEYS: Final = frozenset(
    {"kind", "region", "version", "output_field", "api_key_file", "provider", "name", "model", "models", "accounts"}
    | {"character", "evidence", "base_url", "queue_metrics_url", "continues"}
)
_SECRET_KEY: Final = re.compile(r"key|token|secret|password|auth|credential", re.IGNORECASE)
_SECRET_ADDRESS: Final = re.compile(r"//[^/@\s]*@|\?.")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# Letters and digits without an end: no word, and no name of a model. Accounts have ids like that.
_LONG_RUN: Final = re.compile(r"(?<![A-Za-z0-9])(?<!acct_)(?=[a-zA-Z]*\d)(?=\d*[a-zA-Z])[A-Za-z0-9]{16,}")
# What the service's own variables begin with; and what those of providers' keys have in their names.
_OWN_PREFIX: Final = "LEGATO_"
_KEY_VARIABLE: Final = re.compile(r"KEY|TOKEN")
_SOURCES: Final = ("api_key_env", "api_key_file")
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


def find_moved_keys(before: str, text: str, folder: Path) -> list[Mistake]:
    """Returns where a text would send an API key to a server that does not get it by the file before, or would have a
    variable or file read that is none of a provider's. Both texts are TOML; paths are relative to `folder`."""
    origins: dict[str, set[str]] = {}
    for provider in _providers_in(before).values():
        for source in _sources_of(provider):
            origins.setdefault(source, set()).add(_origin_of(provider))
    folders = {folder, *((folder / source).parent for source in origins)}
    lines, found = KeyLines(text), []
    for name, provider in _providers_in(text).items():
        for source in _sources_of(provider):
            if source in origins:
                what = "would get the API key of another server" if _origin_of(provider) not in origins[source] else ""
            elif provider.get("api_key_file") == source:
                is_near = (folder / source).resolve().parent in {each.resolve() for each in folders}
                what = "" if is_near else f"names a file, {source}, outside the folders of the routes and their keys"
            else:
                is_providers = _KEY_VARIABLE.search(source) and not source.startswith(_OWN_PREFIX)
                what = "" if is_providers else f"names a variable, {source}, that is no provider's key"
            if what:
                key = f"providers.{name}"
                found.append(Mistake(lines.find(key), key, f"{what}: change this where the file is"))
    return found


def _providers_in(text: str) -> dict[str, dict[str, Any]]:
    providers = tomllib.loads(text).get("providers", {})
    if not isinstance(providers, Mapping):
        return {}
    return {name: dict(given) for name, given in providers.items() if isinstance(given, Mapping)}


def _sources_of(provider: Mapping[str, Any]) -> list[str]:
    return [source for key in _SOURCES if isinstance(source := provider.get(key), str)]


def _origin_of(provider: Mapping[str, Any]) -> str:
    base_url = provider.get("base_url")
    if not isinstance(base_url, str):
        return str(provider.get("kind"))
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc}".lower()
