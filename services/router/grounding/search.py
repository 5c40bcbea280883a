"""Asks SearXNG, by its JSON interface. Results are what is used; no page is ever fetched."""

import asyncio
import re
from typing import Final, Protocol

import aiohttp
import msgspec

from services.router.grounding.records import SearchResult
from services.router.providers.answer import UNREADABLE

RESULTS_MOST: Final = 5
LONGEST_ADDRESS: Final = 2_000
LONGEST_TITLE: Final = 200
LONGEST_SNIPPET: Final = 600
LONGEST_QUERY: Final = 300
LARGEST_ANSWER_BYTES: Final = 2 * 1024 * 1024

_SPACES: Final = re.compile(r"\s+")


class SearchAway(Exception):
    """It cannot be reached, or does not answer as it should. Says nothing of the query."""


class Search(Protocol):
    async def find(self, query: str) -> list[SearchResult]:
        """The best first. Raises SearchAway."""
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
        self._url = f"{base_url.rstrip('/')}/search"
        self._timeout_s = timeout_s
        # Cookies would tell one search from another.
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)

    async def aclose(self) -> None:
        await self._session.close()

    async def find(self, query: str) -> list[SearchResult]:
        try:
            async with asyncio.timeout(self._timeout_s):
                body = await self._fetch(query[:LONGEST_QUERY])
            return _read(_found.decode(body))
        except TimeoutError:
            raise SearchAway("took too long") from None
        except (OSError, aiohttp.ClientError):
            raise SearchAway("could not be reached") from None
        except (*UNREADABLE, UnicodeError):
            raise SearchAway("sent something that is not a list of results") from None

    async def _fetch(self, query: str) -> bytes:
        # In the body, and not in the address, which servers and proxies log.
        form = {"q": query, "format": "json"}
        async with self._session.post(self._url, data=form, allow_redirects=False) as response:
            body = await response.content.read(LARGEST_ANSWER_BYTES + 1)
            while len(body) <= LARGEST_ANSWER_BYTES and (more := await response.content.read(LARGEST_ANSWER_BYTES)):
                body += more
            if response.status != 200:
                raise SearchAway(f"answered with status {response.status}")
            if len(body) > LARGEST_ANSWER_BYTES:
                raise SearchAway("sent too much")
            return body


def _read(found: _Found) -> list[SearchResult]:
    results: dict[str, SearchResult] = {}
    for page in found.results:
        if len(results) == RESULTS_MOST:
            break
        if page.url and _is_address(page.url) and page.url not in results:
            title = _SPACES.sub(" ", page.title or "").strip() or page.url
            snippet = _SPACES.sub(" ", page.content or "").strip()
            results[page.url] = SearchResult(title[:LONGEST_TITLE], page.url, snippet[:LONGEST_SNIPPET])
    return list(results.values())


def _is_address(url: str) -> bool:
    return url.startswith(("http://", "https://")) and len(url) <= LONGEST_ADDRESS
