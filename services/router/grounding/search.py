"""A client of SearXNG's JSON API. Only its results are used; no page is ever fetched."""

import re
from base64 import b64encode
from typing import Final, Protocol
from urllib.parse import unquote, urlencode, urlsplit

import msgspec

from services.chassis.http_client.failures import Interrupted
from services.chassis.http_client.fetch import fetch
from services.chassis.http_client.origin import RequestHead, read_url
from services.chassis.http_client.pool import ConnectionPool
from services.router.grounding.records import SearchResult
from services.router.providers.base import UNREADABLE

RESULTS_MOST: Final = 5
LONGEST_ADDRESS: Final = 2_000
LONGEST_TITLE: Final = 200
LONGEST_SNIPPET: Final = 600
LONGEST_QUERY: Final = 300
LARGEST_ANSWER_BYTES: Final = 2 * 1024 * 1024

_SPACES: Final = re.compile(r"\s+")


class SearchFailed(Exception):
    """The search engine is unreachable or its response invalid. The message does not contain the query."""


class Search(Protocol):
    async def find(self, query: str) -> list[SearchResult]:
        """Returns the best results first. Raises SearchFailed."""
        ...


class _FoundPage(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    content: str | None = None


class _Found(msgspec.Struct):
    results: list[_FoundPage]


_found: Final = msgspec.json.Decoder(_Found)


class SearxSearch:
    def __init__(self, base_url: str, timeout_s: float) -> None:
        origin, path = read_url(base_url)
        path, mark, query = path.partition("?")
        self._path = f"{path.rstrip('/')}/search{mark}{query}"
        self._timeout_s = timeout_s
        self._connections = ConnectionPool(origin, timeout_s)
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/x-www-form-urlencoded",
            "User-Agent": "legato",
        }
        self._head = RequestHead(origin, headers | _credentials(base_url))

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def find(self, query: str) -> list[SearchResult]:
        # Sent in the body, since servers and proxies log URLs.
        form = urlencode({"q": query[:LONGEST_QUERY], "format": "json"}, errors="replace").encode()
        head = self._head.for_body(self._path, form)
        try:
            response = await fetch(
                self._connections, head, form, timeout_s=self._timeout_s, most_bytes=LARGEST_ANSWER_BYTES
            )
        except Interrupted as error:
            raise SearchFailed(str(error)) from None
        if response.status != 200:
            raise SearchFailed(f"answered with status {response.status}")
        if not response.is_whole:
            raise SearchFailed("sent too much")
        try:
            return _read(_found.decode(response.body))
        except UNREADABLE:
            raise SearchFailed("sent something that is not a list of results") from None


def _credentials(base_url: str) -> dict[str, str]:
    """Returns the Authorization header for a user and password in the URL, if there are any."""
    parts = urlsplit(base_url)
    if parts.username is None:
        return {}
    user_and_password = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {b64encode(user_and_password.encode()).decode()}"}


def _read(found: _Found) -> list[SearchResult]:
    results: dict[str, SearchResult] = {}
    for page in found.results:
        if len(results) == RESULTS_MOST:
            break
        url = page.url or ""
        is_address = url.startswith(("http://", "https://")) and len(url) <= LONGEST_ADDRESS
        if is_address and url not in results:
            title = _SPACES.sub(" ", page.title or "").strip() or url
            snippet = _SPACES.sub(" ", page.content or "").strip()
            results[url] = SearchResult(title[:LONGEST_TITLE], url, snippet[:LONGEST_SNIPPET])
    return list(results.values())
