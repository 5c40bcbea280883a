"""The processor time of the playground's Markdown: an answer of a hostile model, or one that has lost its way, does not
freeze the page."""

import json
import subprocess
from pathlib import Path

from tests.support.toolchains.node import NODE
from tests.support.waiting import WAIT_TIMEOUT_S

FOLDER = Path(__file__).parents[4] / "console" / "static" / "playground"
PROGRAM = Path(__file__).with_name("markdown_cost.js")
# What stands before, what is repeated, what stands after.
PATTERNS = {
    "a run of backticks": ("", "`", ""),
    "a run of backticks before another character": ("a", "`", "b"),
    "runs of backticks": ("", "`` ` ", ""),
    "runs of many lengths": ("", "".join("`" * length + " " for length in range(1, 60)), ""),
    "a run of tildes that opens nothing": ("", "~", "`"),
    "a run of backticks that opens nothing": ("", "`", " a`"),
    "asterisks": ("", "*", "a"),
    "emphasis that is not closed": ("", "*a ", ""),
    "emphasis that is not opened": ("", "a* ", ""),
    "strong emphasis that is not closed": ("", "**a ", ""),
    "two kinds that are not closed": ("", "*a **b _c __d ", ""),
    "nested emphasis": ("", "*_", ""),
    "nested emphasis that is closed": ("", "*a _b ", ""),
    "emphasis in emphasis": ("", "*_*_*_*_*a*_*_*_*_* ", ""),
    "underlines": ("", "_", "a"),
    "brackets": ("", "[", ""),
    "closed brackets": ("", "[]", ""),
    "links that are not closed": ("", "[a](", ""),
    "links with titles that are not closed": ("", '[a](b "', ""),
    "links with a parenthesis": ("", "[a](b(", ""),
    "addresses": ("", "https://", ""),
    "an address of signs": ("https://", ".", ""),
    "backslashes": ("", "\\", ""),
    "spaces": ("a", " ", "b"),
    "spaces in a heading": ("# ", " ", ""),
    "signs of a rule": ("", "- ", "x"),
    "quotes": ("", "> ", ""),
    "quotes on lines of their own": ("", "> > >\n", ""),
    "items": ("", "- ", ""),
    "items on lines of their own": ("", "- a\n", ""),
    "deeper items": ("", "  - a\n    - b\n", ""),
    "lines of a paragraph": ("", "a\n", ""),
    "empty lines": ("a", "\n", "b"),
    "cells": ("", "|", "\n-|-"),
    "rows": ("a|b\n-|-\n", "c|d\n", ""),
    "heads of tables": ("", "a|b\n", ""),
    "headings": ("", "# a\n### b\n", ""),
    "fences that are not closed": ("", "```\n~~~\n", ""),
}


def measured() -> dict[str, list[int]]:
    """Returns the processor times of each pattern, in microseconds: of 20,000 characters, and of four times as many."""
    given = [json.dumps(pattern) for pattern in PATTERNS.values()]
    program = [str(NODE), str(PROGRAM), str(FOLDER / "markdown.js"), *given]
    done = subprocess.run(program, capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(PATTERNS, json.loads(done.stdout), strict=True))


def test_four_times_the_length_takes_about_four_times_the_work() -> None:
    for name, (short_us, long_us) in measured().items():
        # What takes the square of it takes sixteen times. Little work is measured with an error of milliseconds.
        assert long_us < 8 * short_us + 10_000, name
