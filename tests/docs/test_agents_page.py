"""The page on agents is that of their table."""

from docs.agents_page import PAGE, page
from services.rules.agents import AGENTS


def test_page_is_current() -> None:
    assert PAGE.read_text() == page(), "make agents-page"


def test_page_has_a_version_and_a_section_for_each() -> None:
    text = page()
    for agent in AGENTS:
        [row] = [line for line in text.splitlines() if line.startswith(f"| {agent.title} |")]
        assert row.split("|")[2].strip()[0].isdecimal(), row
        assert f"\n## {agent.title}\n" in text
