"""Reads what a provider's requests have beside what we send: its tables `headers` and `query`."""

import re
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, urlsplit

from msgspec import Meta

from services.chassis.settings import SettingsError
from services.router.routes.file import Table
from services.router.routes.keys.api_keys import KeySource, read_key_file

HEADERS: Final = "headers"
QUERY: Final = "query"
# Where a value is that is secret.
FILE: Final = "file"
VARIABLE: Final = "env"
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_LONGEST_VALUE_CHARACTERS: Final = 8192
# Ours, and those of connections.
_OWN: Final = frozenset(
    (
        *("accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "cookie"),
        *("expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "user-agent"),
        *("anthropic-version", "traceparent", "tracestate"),
    )
)
_OF_KEYS: Final = frozenset(("authorization", "api-key", "x-api-key", "x-goog-api-key", "proxy-authorization"))
_SIGNED: Final = "x-amz-"
# What Gemini's streams are asked for with.
_OWN_PARAMETERS: Final = frozenset(("alt",))
_WHAT: Final = 'must be a text, or { file = "…" } or { env = "…" } for a secret'
_VALUE: Final = Annotated[str | dict[str, str], Meta(description=_WHAT)]
Pairs = tuple[tuple[str, str], ...]


def read_headers(provider: Table, keys: KeySource) -> Pairs:
    """Returns headers by their names in lower case."""
    table, found = provider.inner(HEADERS), {}
    for given in table.keys:
        name, value = given.lower(), _read_value(table, given, keys)
        if not _NAME.fullmatch(given):
            table.mistake(given, "is no name of a header")
        elif name in _OF_KEYS:
            table.mistake(given, "is the header of a key: use api_key_file or api_key_env, and api_key_header")
        elif name in _OWN or name.startswith(_SIGNED):
            table.mistake(given, "is a header that Legato sets itself")
        elif name in found:
            table.mistake(given, "is given twice, in capital and small letters")
        found[name] = value
    return tuple(found.items())


def read_query(provider: Table, keys: KeySource, base_url: str) -> Pairs:
    table = provider.inner(QUERY)
    in_address = {name for name, _ in parse_qsl(urlsplit(base_url).query, keep_blank_values=True)}
    found = []
    for name in table.keys:
        found.append((name, _read_value(table, name, keys)))
        if not name or not name.isprintable():
            table.mistake(name, "is no name of a parameter")
        elif name in _OWN_PARAMETERS:
            table.mistake(name, "is a parameter that Legato sets itself")
        elif name in in_address:
            table.mistake(name, "is in base_url as well: give only one of them")
    return tuple(found)


def _read_value(table: Table, name: str, keys: KeySource) -> str:
    given: Any = table.read(name, _VALUE, None)
    if given is None:
        return ""
    if isinstance(given, str):
        value = given
    elif len(given) != 1 or not given.keys() <= {FILE, VARIABLE}:
        table.mistake(name, _WHAT)
        return ""
    elif not keys.has_keys:
        return ""
    else:
        try:
            value = read_key_file(keys.folder / given[FILE]) if FILE in given else keys.read_variable(given[VARIABLE])
        except SettingsError as error:
            table.mistake(name, str(error))
            return ""
    is_sendable = value.isascii() and value.isprintable() and value == value.strip()
    if not value or not is_sendable or len(value) > _LONGEST_VALUE_CHARACTERS:
        # Not quoted: it may be secret.
        table.mistake(name, "must be one line of at most 8,192 ASCII characters, without blanks around it")
    return value
