"""Takes pictures of all pages in all states, in the four looks of a desktop and a phone, light and dark, to look at.

`make screenshots` writes them to build/screenshots; with names of states, only those; with `--language fr`, in French.
"""

import argparse
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

from console.display.language import ENGLISH, LANGUAGES
from tests.console.browser.axe import DESKTOP, PHONE
from tests.console.browser.conftest import PATIENCE_MS, launch
from tests.console.browser.pages import NAMES, OPERATOR_NAMES, open_state
from tests.console.harness import ConsoleHarness

FOLDER: Final = Path(__file__).parents[3] / "build" / "screenshots"
LOOKS: Final = tuple(product(("light", "dark"), (("desktop", DESKTOP), ("phone", PHONE))))


def main(names: list[str], language: str) -> None:
    suffix = "" if language == ENGLISH else f"-{language}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as folder, sync_playwright() as play:
        console = ConsoleHarness(Path(folder))
        console.start()
        browser = launch(play)
        for scheme, (device, size) in LOOKS:
            context = browser.new_context(
                base_url=console.origin,
                color_scheme=scheme,
                viewport=size,
                timezone_id="UTC",
                locale="en-CA",
                # A picture in the middle of a transition between pages would show both.
                reduced_motion="reduce",
            )
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            for name in names or (*NAMES, *OPERATOR_NAMES):
                open_state(page, console, name, language)
                path = FOLDER / f"{name}-{scheme}-{device}{suffix}.png"
                page.screenshot(path=path, full_page=True, animations="disabled")
            context.close()
        browser.close()
        console.stop()
    sys.stdout.write(f"{FOLDER}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--language", choices=LANGUAGES, default=ENGLISH)
    given = parser.parse_args()
    main(given.names, given.language)
