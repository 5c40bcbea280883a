"""Reads a provider of the routes file."""

import re
from dataclasses import replace
from datetime import date
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from services.chassis.http_client.origin import has_host
from services.chassis.http_client.own_hosts import is_own_host
from services.router.providers import KINDS
from services.router.providers.base import ProviderRoute
from services.router.providers.http.http_provider import AUTHORIZATION
from services.router.providers.openai.known_hosts import host_of
from services.router.routes import file as kinds
from services.router.routes.file import Table
from services.router.routes.keys.api_keys import KeySource
from services.router.routes.keys.credentials import read_credentials
from services.router.routes.keys.request_additions import read_headers, read_query
from services.router.routes.region import read_region, region_of_address
from services.router.routes.retention_promise import read_promise

_OUTPUT_FIELDS: Final = ("max_tokens", "max_completion_tokens")
_APIS: Final = ("chat", "responses", "auto")
# Kinds whose servers speak as OpenAI does.
_OPENAI_KINDS: Final = ("openai", "responses")
# The headers that a key may be sent in; `authorization`: as a Bearer token.
_KEY_HEADERS: Final = (AUTHORIZATION, "api-key", "x-api-key", "x-goog-api-key")
_PLATFORM_HOSTS: Final = {
    "vertex": re.compile(r"(?:[a-z0-9-]+-)?aiplatform(?:\.[a-z0-9-]+\.rep)?\.googleapis\.com"),
    "bedrock": re.compile(r"(?:.+\.)?bedrock-runtime(?:-fips)?\.[a-z0-9-]+\..+"),
}


def read_provider(name: str, table: Table, keys: KeySource, today: date) -> ProviderRoute:
    """Reads a provider, whose promise to retain no data must hold today."""
    kind = table.choose("kind", tuple(KINDS))
    route = ProviderRoute(name, kind)
    if kind in KINDS and KINDS[kind].needs_address:
        route = _read_remote(name, kind, table, keys, today)
    if kind in KINDS:
        # The keys of an unknown kind of provider cannot be checked.
        table.finish()
    return route


def _read_remote(name: str, kind: str, table: Table, keys: KeySource, today: date) -> ProviderRoute:
    lack = "must be true" if table.has("zero_retention") else "is missing"
    if table.read("zero_retention", Any, None) is not True:
        table.mistake("zero_retention", f"{lack}: only providers that retain no data are used")
    base_url = read_address(table)
    host = (urlsplit(base_url).hostname or "") if has_host(base_url) else ""
    evidence, until = read_promise(table, host, today)
    platform = _read_platform(table, kind, host)
    versions = KINDS[kind].platforms.get(platform, KINDS[kind].versions)
    region = read_region(table, base_url)
    credentials = read_credentials(table, keys, region.lower() or region_of_address(base_url) or "", host)
    api_key, api_key_file = keys.read(table, is_needed=bool(KINDS[kind].versions) and credentials is None)
    key_header = table.choose("api_key_header", _KEY_HEADERS, "")
    if credentials is not None and (api_key or api_key_file or key_header):
        table.mistake("credentials", "are given beside an API key: give only one of them")
    route = ProviderRoute(
        name,
        kind,
        base_url=base_url,
        evidence=evidence,
        until=until,
        region=region,
        api_key=api_key,
        api_key_file=api_key_file,
        key_header=key_header or (AUTHORIZATION if platform else ""),
        credentials=credentials,
        headers=read_headers(table, keys),
        query=read_query(table, keys, base_url),
        platform=platform,
        extra_json=msgspec.json.encode(table.read("body", kinds.TABLE, {})),
    )
    known = host_of(base_url)
    if kind in _OPENAI_KINDS:
        is_own = bool(host) and is_own_host(host)
        route = replace(
            route,
            prompt_cache_key=known.takes_cache_key,
            reasoning_needed=known.needs_reasoning,
            # A server of one's own ignores the field, or may pass it on.
            no_store=known.takes_no_store or is_own,
            open_parameters=known.takes_open_parameters or is_own,
            api=table.choose("api", _APIS, known.api) if kind == "openai" else "responses",
            allowed_tools=known.takes_allowed_tools or kind == "responses",
            custom_tools=known.takes_custom_tools,
            always_max_tokens=not (known.needs_no_limit or is_own),
        )
    flags = {key: table.read(key, kinds.FLAG, getattr(route, key)) for key in KINDS[kind].flags}
    if KINDS[kind].versions:
        version = table.choose("version", versions) if versions else ""
        return replace(route, version=version, **flags)
    if kind == "responses":
        return replace(route, **flags)
    return replace(route, output_field=table.choose("output_field", _OUTPUT_FIELDS, known.output_field), **flags)


def _read_platform(table: Table, kind: str, host: str) -> str:
    """Reads which cloud has the models; by default that of a host that is known to."""
    platforms = KINDS[kind].platforms
    if not platforms:
        return ""
    known = next((name for name in platforms if _PLATFORM_HOSTS[name].fullmatch(host)), "")
    return table.choose("platform", tuple(platforms), known)


def read_address(table: Table, key: str = "base_url") -> str:
    url: str = table.read(key, kinds.TEXT)
    if url and not url.startswith(("http://", "https://")):
        table.mistake(key, "must start with http:// or https://")
    elif url and not has_host(url):
        table.mistake(key, "must have a host, and a valid port if it has one")
    elif url and (urlsplit(url).username is not None or urlsplit(url).fragment):
        table.mistake(key, "must have no user, no password and no fragment (#)")
    return url
