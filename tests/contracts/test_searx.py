"""The search as a real searx understands it, and its answers as we understand them."""

from collections.abc import Iterator

import pytest

from services.router.grounding.search import SearxSearch
from tests.support.outside.searx_server import SearxMissing, SearxServer


@pytest.fixture(scope="module")
def searx() -> Iterator[SearxServer]:
    try:
        with SearxServer() as server:
            yield server
    except SearxMissing as missing:
        pytest.skip(str(missing))


async def test_query_reaches_the_engine_and_its_results_come_back(searx: SearxServer) -> None:
    searx.results[:] = [
        {"url": "https://one.test/a?b=c", "title": "The <b>first</b>", "content": "Oil & filter, café."},
        {"url": "https://two.test/", "title": "The second", "content": "More."},
    ]
    search = SearxSearch(searx.base_url, timeout_s=30)
    try:
        found = await search.find("pumpe größe & more")
        searx.results.clear()
        nothing = await search.find("another")
    finally:
        await search.aclose()
    assert searx.asked == ["pumpe größe & more", "another"]
    assert [result.url for result in found] == ["https://one.test/a?b=c", "https://two.test/"]
    assert found[1].title == "The second"
    assert found[0].snippet == "Oil & filter, café."
    assert nothing == []
