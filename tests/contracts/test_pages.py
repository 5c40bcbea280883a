"""Pages point at what is there."""

import re
from pathlib import Path

import pytest

from tests.contracts.product import ROOT, product_modules

# In recipes of CONTRIBUTING.md.
MADE_UP = (
    "cli/commands/account/NAME.py",
    "console/pages/account/NAME.py",
    "console/templates/NAME.html",
    "edge/api/hello.py",
    "services/router/providers/NAME/",
    "tests/cli/commands/account/test_NAME.py",
    "tests/console/pages/account/test_NAME.py",
)
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_files_that_exist(page: Path) -> None:
    """Except decisions, which tell of what there was, and examples with a made-up name."""
    if page.parent.name == "decisions":
        return
    folders = "edge|console|services|cli|protos|legato_protos|tests|bench|deploy|examples"
    named = re.findall(rf"`((?:{folders})/[\w/.-]+)`", page.read_text())
    assert [path for path in named if not (ROOT / path).exists() and path not in MADE_UP] == []


def test_the_overview_lists_all_decisions_in_order() -> None:
    listed = re.findall(r"\]\(decisions/([^)]+)\)", (ROOT / "docs" / "index.md").read_text())
    assert listed == sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*.md"))


def test_the_map_has_one_line_for_each_folder_of_the_product() -> None:
    _, _, text = (ROOT / "ARCHITECTURE.md").read_text().partition("## The map")
    lines = [line.split("|")[1] for line in text.partition("\n## ")[0].splitlines() if line.startswith("|")]
    named = [folder.rstrip("/") for line in lines for folder in re.findall(r"`([\w/]+)`", line)]
    folders = {str(path.parent) for path in product_modules() if path.name != "__init__.py"}
    assert sorted(folders - set(named)) == []
    assert len(set(named)) == len(named)
    assert [folder for folder in named if not (ROOT / folder).is_dir()] == []
