"""Every page is small and asks little: design limits that hold for each state in the list of pages."""

import re

import pytest

from tests.console.browser.pages import STATES
from tests.console.harness import ConsoleHarness

LARGEST_PAGE_BYTES = 30_000
LARGEST_SCRIPTS_BYTES = 15_000
REQUESTS_MOST = 4
# Beside the two of every page.
CALLS_MOST = 4
ASSET = re.compile(r'(?:href|src)="(/static/[^"]+)"')
GZIP = {"Accept-Encoding": "gzip"}


@pytest.mark.parametrize("name", STATES)
def test_a_page_is_small_and_asks_little(console: ConsoleHarness, name: str) -> None:
    path, prepare = STATES[name]
    prepare(console.backends)
    answer = console.get(path, console.auth.sign_in(), GZIP)
    assets = {asset: console.get(asset, headers=GZIP) for asset in set(ASSET.findall(answer.text))}
    sizes = {asset: int(found.headers["content-length"]) for asset, found in assets.items()}

    assert len(sizes) < REQUESTS_MOST
    assert int(answer.headers["content-length"]) + sum(sizes.values()) < LARGEST_PAGE_BYTES
    assert sum(size for asset, size in sizes.items() if asset.endswith(".js")) < LARGEST_SCRIPTS_BYTES
    calls = console.backends.calls_of_page
    assert len(calls) <= CALLS_MOST, calls
    assert console.backends.calls.count("MeteringService.GetBalance") <= 1
