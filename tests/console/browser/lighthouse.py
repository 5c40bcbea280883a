"""Has Lighthouse judge the console's pages: performance, accessibility and best practices, on its slow phone.

`make lighthouse` installs it into build/lighthouse, and prints a table for docs/console.md. With names of states, only
those. It uses the browser of the tests, and pages with the tests' data.
"""

import json
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, sync_playwright

from tests.console.browser.conftest import launch, session_cookie
from tests.console.browser.pages import OPERATOR_STATES, STATES
from tests.console.harness import ConsoleHarness

COMMAND: Final = Path(__file__).parents[3] / "build/lighthouse/node_modules/lighthouse/cli/index.js"
CATEGORIES: Final = ("performance", "accessibility", "best-practices")
SESSION: Final = "the-visitor"
TIMEOUT_S: Final = 300


def main(names: list[str]) -> None:
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as folder, sync_playwright() as play:
        console = ConsoleHarness(Path(folder))
        console.start()
        browser = launch(play, [f"--remote-debugging-port={port}"])
        _sign_in(browser, console)
        sys.stdout.write("| Page | Performance | Accessibility | Best practices | Blocking time | Layout shift |\n")
        sys.stdout.write("|---|---|---|---|---|---|\n")
        for name in names or _every_page():
            _show(name, _judge(console, port, name))
        browser.close()
        console.stop()


def _sign_in(browser: Browser, console: ConsoleHarness) -> None:
    """Gives the browser cookies. A header of Lighthouse's own would not do: a page that asks for news goes on when
    Lighthouse has looked and its headers are gone, and would be led to the sign-in before everything is read."""
    cookies = [session_cookie(console, SESSION), {"name": "legato-zone", "value": "UTC", "url": console.origin}]
    browser.new_browser_cdp_session().send("Storage.setCookies", {"cookies": cookies})


def _every_page() -> list[str]:
    """Returns the first state of each address."""
    paths = {f"operator-{name}": path for name, (path, _) in OPERATOR_STATES.items()}
    paths |= {name: path for name, (path, _) in STATES.items()}
    first: dict[str, str] = {}
    for name, path in paths.items():
        first.setdefault(path.partition("?")[0], name)
    return list(first.values())


def _judge(console: ConsoleHarness, port: int, name: str) -> Any:
    is_operator = name.startswith("operator-")
    path, prepare = OPERATOR_STATES[name.removeprefix("operator-")] if is_operator else STATES[name]
    console.backends.reset()
    console.auth.be_operator(is_operator=is_operator)
    prepare(console.backends)
    console.auth.sign_in(SESSION)
    # Some pages answer 404, and are to be judged, too.
    options = ["--output=json", "--quiet", "--ignore-status-code", f"--port={port}"]
    options.append(f"--only-categories={','.join(CATEGORIES)}")
    run = subprocess.run(
        ["node", COMMAND, console.origin + path, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    if run.returncode:
        sys.stderr.write(f"  {name}: {run.stderr}\n")
    # A page that could not be judged has a report, too, without scores.
    return json.loads(run.stdout)


def _show(name: str, report: Any) -> None:
    audits = report["audits"]
    scores = [_in_words(report["categories"][category]["score"]) for category in CATEGORIES]
    figures = [
        audits[audit].get("displayValue", "not judged") for audit in ("total-blocking-time", "cumulative-layout-shift")
    ]
    if report["finalDisplayedUrl"] != report["requestedUrl"]:
        sys.stderr.write(f"  {name}: leads to {report['finalDisplayedUrl']}\n")
    sys.stdout.write(f"| {name}{_answered(report)} | {' | '.join([*scores, *figures])} |\n")
    for category in CATEGORIES:
        for each in report["categories"][category]["auditRefs"]:
            audit = audits[each["id"]]
            if each["weight"] and (audit["score"] or 0) < 1 and audit["scoreDisplayMode"] != "notApplicable":
                figure = audit.get("errorMessage") or audit.get("displayValue") or audit["score"]
                sys.stderr.write(f"  {name}: {category}: {audit['title']} ({figure})\n")
    sys.stdout.flush()


def _answered(report: Any) -> str:
    """Tells the status of a page that is an error by design: the browser logs it, which costs 4 points of best
    practices."""
    found = re.search(r"Status code: (\d+)", " ".join(report["runWarnings"]))
    return f" (answers {found[1]})" if found else ""


def _in_words(score: float | None) -> str:
    """A category has no score if one of its audits could not be made."""
    return "not judged" if score is None else str(round(100 * score))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


if __name__ == "__main__":
    main(sys.argv[1:])
