import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Request, sync_playwright

from services.chassis.rpc.replica_channel import ReplicaChannel
from tests.console.browser.axe import DESKTOP, PHONE, bring_axe
from tests.console.harness import COOKIE, ConsoleHarness
from tests.support.servers.chromium import find_chromium

# Everything a browser does here is over in a moment; a busy machine may take long.
PATIENCE_MS = 60_000
# What a page's policy forbade is kept for the end of the test.
WATCH = """
window.refusedByPolicy = [];
document.addEventListener("securitypolicyviolation",
  (event) => window.refusedByPolicy.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""

OpenPage = Callable[..., Page]


def session_cookie(console: ConsoleHarness, token: str) -> Any:
    return {
        "name": COOKIE,
        "value": token,
        "url": console.origin.replace("http:", "https:"),
        "secure": True,
        "httpOnly": True,
        "sameSite": "Lax",
    }


def sizes_of_responses(page: Page, path: str) -> list[int]:
    """Opens a page, and returns the bytes of each response."""
    finished: list[Request] = []

    def note(request: Request) -> None:
        finished.append(request)

    page.on("requestfinished", note)
    page.goto(path)
    page.wait_for_load_state("networkidle")
    return [request.sizes()["responseBodySize"] for request in finished]


def launch(play: Playwright, options: Sequence[str] = ()) -> Browser:
    shell = find_chromium()
    # Its sandbox needs rights that containers seldom give; it opens no page but ours.
    return play.chromium.launch(
        executable_path=shell.path,
        env={**os.environ, **shell.environ},
        args=["--no-sandbox", *options],
        timeout=PATIENCE_MS,
    )


@pytest.fixture(scope="package", autouse=True)
def patient_console() -> Iterator[None]:
    """Lets services take as long as the browser may: on a busy machine a page would say that they do not answer."""
    ask = ReplicaChannel.ask

    async def ask_patiently(self: ReplicaChannel, *given: Any, timeout_s: float, metadata: Any = None) -> Any:
        return await ask(self, *given, timeout_s=max(timeout_s, PATIENCE_MS / 1000), metadata=metadata)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplicaChannel, "ask", ask_patiently)
        yield


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Starts a browser for this folder. Playwright's synchronous interface keeps an event loop running in this thread:
    it must end before the tests of other folders, which may be asynchronous."""
    with sync_playwright() as play:
        # No script of a test runs for long enough to earn back what V8 would spend on optimizing it.
        started = launch(play, ["--js-flags=--no-opt"])
        yield started
        started.close()


@pytest.fixture(scope="package")
def visited(browser: Browser, running_console: ConsoleHarness) -> Iterator[Page]:
    """One page for all states: a context of its own for each would take longer than looking at it."""
    context = browser.new_context(
        base_url=running_console.origin, timezone_id="UTC", locale="en-CA", reduced_motion="reduce"
    )
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(WATCH)
    bring_axe(context)
    yield context.new_page()
    context.close()


@pytest.fixture
def open_page(browser: Browser, console: ConsoleHarness) -> Iterator[OpenPage]:
    """Opens pages, signed in and without animations unless told otherwise; at the end none of them may have met its own
    policy or an error."""
    contexts: list[BrowserContext] = []
    pages: list[Page] = []
    errors: list[str] = []

    def open_one(path: str, *, signed_in: bool = True, phone: bool = False, dark: bool = False, **options: Any) -> Page:
        context = browser.new_context(
            base_url=console.origin,
            viewport=PHONE if phone else DESKTOP,
            color_scheme="dark" if dark else "light",
            **{"reduced_motion": "reduce", **options},
        )
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        if signed_in:
            context.add_cookies([session_cookie(console, console.auth.sign_in())])
        context.add_init_script(WATCH)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        pages.append(page)
        page.goto(path)
        return page

    yield open_one
    refused = [text for page in pages if not page.is_closed() for text in page.evaluate("window.refusedByPolicy || []")]
    for context in contexts:
        context.close()
    assert refused == []
    assert errors == []
