"""Looks at pages in a browser: their weight, and how soon something is seen."""

from dataclasses import dataclass
from typing import Any, Final

from playwright.sync_api import Browser, Page

ATTEMPTS: Final = 5
PATIENCE_MS: Final = 60_000
# A slow phone: a quarter of the processor, 1.6 Mbit/s, 150 ms to the server and back.
SLOW_CPU: Final = {"rate": 4}
SLOW_NETWORK: Final = {
    "offline": False,
    "latency": 150,
    "downloadThroughput": 1_600_000 / 8,
    "uploadThroughput": 750_000 / 8,
}
FIRST_PAINT: Final = """() => new Promise((resolve) => {
  const find = () => {
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    paint ? resolve(paint.startTime) : setTimeout(find, 10);
  };
  find();
})"""


@dataclass(frozen=True)
class PageFigures:
    path: str
    wire_bytes: int
    requests: int
    first_paint_ms: float
    slow_first_paint_ms: float


def look_at(browser: Browser, origin: str, cookies: dict[str, str], path: str) -> PageFigures:
    plain = [_open(browser, origin, cookies, path, is_slow=False) for _ in range(ATTEMPTS)]
    slow = [_open(browser, origin, cookies, path, is_slow=True) for _ in range(ATTEMPTS)]
    wire_bytes, requests, _ = plain[0]
    return PageFigures(
        path, wire_bytes, requests, min(paint_ms for *_, paint_ms in plain), min(paint_ms for *_, paint_ms in slow)
    )


def _open(
    browser: Browser, origin: str, cookies: dict[str, str], path: str, *, is_slow: bool
) -> tuple[int, int, float]:
    """Opens a page with an empty cache; returns bytes on the wire, requests, and when something was first seen."""
    context = browser.new_context(base_url=origin, viewport={"width": 390, "height": 844})
    context.set_default_timeout(PATIENCE_MS)
    given: list[Any] = [
        {"name": name, "value": value, "url": origin.replace("http:", "https:"), "secure": name.startswith("__Host-")}
        for name, value in cookies.items()
        if value
    ]
    context.add_cookies(given)
    page = context.new_page()
    sizes = _measure(page, is_slow=is_slow)
    page.goto(path)
    page.wait_for_load_state("networkidle")
    paint_ms: float = page.evaluate(FIRST_PAINT)
    context.close()
    return sum(sizes), len(sizes), paint_ms


def _measure(page: Page, *, is_slow: bool) -> list[int]:
    """Returns a list that gets the size of every response, headers included."""
    sizes: list[int] = []
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    if is_slow:
        session.send("Emulation.setCPUThrottlingRate", SLOW_CPU)
        session.send("Network.emulateNetworkConditions", SLOW_NETWORK)
    return sizes
