"""Pages point at what is there."""

import re
from pathlib import Path

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


def test_links_lead_somewhere() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {link}" for page in PAGES for link in links_of(page) if not leads(page, link)
    ]
    assert missing == []


def links_of(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())


def leads(page: Path, link: str) -> bool:
    return "://" in link or (page.parent / link).exists()


def test_pages_name_files_that_exist() -> None:
    """Except decisions, which tell of what there was, and examples with a made-up name."""
    folders = "edge|console|services|cli|protos|legato_protos|tests|bench|deploy|examples"
    missing = [
        f"{page.relative_to(ROOT)}: {path}"
        for page in PAGES
        if page.parent.name != "decisions"
        for path in re.findall(rf"`((?:{folders})/[\w/.-]+)`", page.read_text())
        if not (ROOT / path).exists() and path not in MADE_UP
    ]
    assert missing == []


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
