"""Keeps account data and counters in Canada.

Every store names its region, and a process does not start on one that lies elsewhere. Messages are not covered: they
are never stored, and go to the providers that the routes name, wherever those are.
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from services.chassis.settings import PREFIX, SettingsError

# A single machine, for evaluation or for owners who are in Canada themselves.
LOCAL: Final = "local"

CANADIAN_REGIONS: Final = frozenset(
    {
        # Amazon
        "ca-central-1",
        "ca-west-1",
        # Microsoft
        "canadacentral",
        "canadaeast",
        # Google
        "northamerica-northeast1",
        "northamerica-northeast2",
        # Self-hosted
        "canada",
    }
)

_THIS_MACHINE = ("", "localhost", "127.0.0.1", "::1")


class DataStore(msgspec.Struct, frozen=True):
    """A store of account data; `name` is part of its setting: LEGATO_DATABASE_REGION for DATABASE."""

    name: str
    region: str
    # The server's address; empty for a folder.
    url: str = ""

    @property
    def variable(self) -> str:
        return f"{PREFIX}{self.name}_REGION"

    def mistake(self) -> str | None:
        if not self.region:
            if _is_on_this_machine(self.url):
                return None
            return f"{self.variable} is not set: give the region of the server ({LOCAL} for a trial on one machine)"
        if self.region == LOCAL or self.region in CANADIAN_REGIONS:
            return None
        known = ", ".join(sorted(CANADIAN_REGIONS))
        return (
            f"{self.variable}: account data and counters must stay in Canada, and {self.region} is not there ({known})"
        )


def keep_in_canada(stores: Iterable[DataStore]) -> None:
    """Raises if a store lies elsewhere, before it is opened."""
    mistakes = [mistake for store in stores if (mistake := store.mistake())]
    if mistakes:
        raise SettingsError("\n".join(mistakes))


def _is_on_this_machine(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # PostgreSQL URLs may give the host, or a socket's folder, in the query string.
        hosts = [parts.hostname or "", *(parse_qs(parts.query).get("host", []))]
    except ValueError:
        # Opening the store reports what is wrong with it.
        return True
    return all(host in _THIS_MACHINE or host.startswith("/") for host in hosts)
