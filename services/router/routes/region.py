"""Finds the region of a provider's server by its name.

No region is required: messages go wherever the routes send them (`services/rules/residency.py`). But a stated region
must not contradict the server's own name and certificate.
"""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from services.chassis.http_client.origin import has_host
from services.router.routes import file as kinds
from services.router.routes.file import Table

# Vendors that have the region in the names of their servers.
_REGIONAL_NAMES: Final = [
    re.compile(rf"(?:.*\.)?{pattern}")
    for pattern in (
        # Amazon, including private endpoints.
        r"([a-z]{2}(?:-[a-z]+)+-\d)\.(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.aws)",
        # Microsoft.
        r"([a-z]+\d?)\.api\.cognitive\.microsoft\.com",
        r"([a-z]+\d?)\.(?:models\.ai|inference\.ml)\.azure\.com",
        # Google: a region, and a part of the world.
        r"([a-z]+-[a-z]+\d+)-aiplatform\.googleapis\.com",
        r"([a-z0-9-]+)\.rep\.googleapis\.com",
        # OpenAI.
        r"([a-z]{2})\.api\.openai\.com",
    )
]
# Hosts whose path has the location where requests are processed, which may be anywhere (`global`).
_LOCATED_HOSTS: Final = re.compile(r"aiplatform\.googleapis\.com")
_LOCATION: Final = re.compile(r"/v1(?:beta1)?/projects/[^/]+/locations/([a-z0-9-]+)")


def region_of(host: str) -> str | None:
    """Returns the region that a host name contains, in its vendor's words."""
    found = (pattern.fullmatch(host.lower()) for pattern in _REGIONAL_NAMES)
    return next((match[1] for match in found if match is not None), None)


def region_of_address(base_url: str) -> str | None:
    """Returns the region in the host's name, or else in the path, which has it in some of Google's addresses."""
    parts = urlsplit(base_url) if has_host(base_url) else urlsplit("")
    host = parts.hostname or ""
    located = _LOCATION.match(parts.path) if _LOCATED_HOSTS.fullmatch(host) else None
    return region_of(host) or (None if located is None else located[1])


def read_region(table: Table, base_url: str) -> str:
    region: str = table.read("region", kinds.TEXT, "")
    known = region_of_address(base_url)
    if region and known is not None and known != region.lower():
        table.mistake("region", f'is "{region}", but {urlsplit(base_url).hostname} is in {known}')
    return region


def find_other_region(region: str, names: Iterable[str]) -> str | None:
    """Returns a region that the names in a server's certificate contain, if they contain any and not the stated one."""
    known = {found for name in names if (found := region_of(name.removeprefix("*."))) is not None}
    return min(known) if region and known and region.lower() not in known else None
