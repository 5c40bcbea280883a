"""Times a newcomer's way: from `legato up` in an empty folder, by the link that it prints, to the first words of an
answer in the playground, with the bundled model.

`make first-answer` prints the seconds of each step. The browser is the tests' one; a person also reads and types.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, expect, sync_playwright

from tests.console.browser.conftest import launch

LEGATO: Final = Path(sys.executable).with_name("legato")
QUESTION: Final = "Say hello."
AIM_S: Final = 60.0
# Longer than the aim: a figure that misses it is a figure.
PATIENCE_MS: Final = 300_000


class Steps:
    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self.ended_s: dict[str, float] = {}

    def note(self, step: str) -> None:
        self.ended_s[step] = time.monotonic() - self._began_s


def main() -> None:
    expect.set_options(timeout=PATIENCE_MS)
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as folder, sync_playwright() as play:
        # Before the clock starts: a newcomer's browser is open.
        browser = launch(play)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        steps = Steps()
        options = ("--welcome", "--json", "--port", "0", "--console-port", "0", "--data", f"{folder}/data")
        with subprocess.Popen([LEGATO, "up", *options], stdout=subprocess.PIPE, text=True) as up:
            try:
                answer = _walk(up, page, steps)
            finally:
                browser.close()
                up.terminate()
    _show(steps, answer)


def _walk(up: "subprocess.Popen[str]", page: Page, steps: Steps) -> str:
    assert up.stdout is not None
    json.loads(up.stdout.readline())
    steps.note("The service is ready")
    link = json.loads(up.stdout.readline())["console"]
    steps.note("The link is printed")
    page.goto(link)
    page.get_by_role("button", name="Sign in", exact=True).first.click()
    to_playground = page.get_by_role("link", name="Try it in the playground")
    expect(to_playground).to_be_visible()
    steps.note("The overview is shown, signed in")
    to_playground.click()
    page.get_by_label("Your message").fill(QUESTION)
    page.get_by_role("button", name="Send", exact=True).click()
    steps.note("A message is sent in the playground")
    text = page.locator("[data-part=turns] .turn.assistant > :not(h3)").first
    expect(text).to_have_text(re.compile(r"\w"))
    steps.note("The first words of the answer are there")
    return str(text.text_content())


def _show(steps: Steps, answer: str) -> None:
    lines = [f"{ended_s:6.1f} s  {step}" for step, ended_s in steps.ended_s.items()]
    total_s = max(steps.ended_s.values())
    verdict = "within" if total_s <= AIM_S else "beyond"
    sys.stdout.write("\n".join([*lines, f"{verdict} the aim of {AIM_S:.0f} s; the answer begins: {answer[:60]!r}", ""]))
    sys.exit(total_s > AIM_S)


if __name__ == "__main__":
    main()
