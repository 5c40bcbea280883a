"""The decision on code of our own names only what is there."""

import re

from tests.contracts.product import ROOT

[PAGE] = (ROOT / "docs" / "decisions").glob("0032-*.md")
_PATH = re.compile(r"`((?:cli|console|deploy|edge|services|tests)/[\w/.]+)`")


def test_every_module_that_is_named_is_there() -> None:
    named = _PATH.findall(PAGE.read_text())
    assert len(named) > 25
    assert [path for path in named if not (ROOT / path).exists()] == []
