"""Measures the web console: what its pages weigh and cost, how soon they are seen, and how fast a key is revoked.

`make console-figures` prints a table for docs/console.md. Timings are the best of several attempts; do not run anything
else meanwhile.
"""

import re
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

from bench.console.pages import PageFigures, look_at
from bench.console.processes import cpu_ms_of_views, memory_mib, revocation_ms
from tests.console.browser.conftest import launch
from tests.e2e.running.test_console import Visitor
from tests.support.up import Up

PATHS: Final = ("/", "/keys", "/keys/new", "/security", "/settings")
VIEWS: Final = 40
REVOCATIONS: Final = 20


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as folder:
        up = Up(Path(folder) / "data", "--welcome", "--console-port", "0", "--json")
        try:
            up.line()
            match = re.search(r'"console": ?"([^"]+)/sign-in#([^"]+)"', up.line())
            assert match, up.stderr
            idle_mib = memory_mib(up, "console")
            visitor = Visitor(match[1])
            visitor.ask("POST", "/sign-in", {"code": match[2]})
            with sync_playwright() as play:
                browser = launch(play)
                figures = [look_at(browser, match[1], visitor.cookies, path) for path in PATHS]
                browser.close()
            cpu_ms = {path: cpu_ms_of_views(up, visitor, path, VIEWS) for path in PATHS}
            revoked_ms = revocation_ms(visitor, REVOCATIONS)
        finally:
            up.stop()
            up.close()
    _show(figures, cpu_ms, idle_mib, revoked_ms)


def _show(figures: list[PageFigures], cpu_ms: dict[str, float], idle_mib: float, revoked_ms: list[float]) -> None:
    middle_ms, longest_ms = sorted(revoked_ms)[len(revoked_ms) // 2], max(revoked_ms)
    lines = [
        "| Page | On the wire, cold | Requests | First paint | Slow phone | CPU time, all processes |",
        "|---|---|---|---|---|---|",
        *(
            f"| `{page.path}` | {page.wire_bytes / 1000:.1f} KB | {page.requests} | {page.first_paint_ms:.0f} ms "
            f"| {page.slow_first_paint_ms:.0f} ms | {cpu_ms[page.path]:.1f} ms |"
            for page in figures
        ),
        "",
        f"Idle memory of the console: {idle_mib:.0f} MiB.",
        f"Revoke, from click to everywhere: {middle_ms:.0f} ms (median), {longest_ms:.0f} ms (longest).",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
