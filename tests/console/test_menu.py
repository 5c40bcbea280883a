"""The menu, and the titles of pages, are those of the table."""

import re

from console.routes import PAGES
from services.chassis.access_tokens import AccountRole
from tests.console.harness import ConsoleHarness

ENTRIES = [page for page in PAGES if page.is_in_menu]
OF_ACCOUNTS = [page for page in ENTRIES if not page.needs_operator]
OF_OPERATORS = [page for page in ENTRIES if page.needs_operator]


def menu_in(text: str) -> list[tuple[str, str]]:
    """Returns the addresses and the words of the menu of a page."""
    [menu] = re.findall(r'<nav class="menu".*?</nav>', text, re.DOTALL)
    return re.findall(r'<li><a href="([^"]+)"[^>]*><svg.*?</svg>\s*([^<]+)</a>', menu, re.DOTALL)


def current_in(text: str) -> list[str]:
    return re.findall(r'href="([^"]+)" data-shortcut="\w" aria-current="page"', text)


def test_the_menu_has_the_pages_of_the_table_in_its_order(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    expected = [(page.path, page.menu.title) for page in OF_ACCOUNTS]
    assert menu_in(console.get("/", session).text) == expected
    console.auth.be_operator()
    session = console.auth.sign_in()
    assert menu_in(console.get("/", session).text) == [*expected, ("/operator", "Operator")]
    operators = [(page.path, page.menu.title) for page in OF_OPERATORS]
    assert menu_in(console.get("/operator/users", session).text) == [*operators, ("/", "Your account")]


def test_viewers_are_offered_no_page_that_refuses_them(console: ConsoleHarness) -> None:
    console.auth.set_role(AccountRole.VIEWER)
    shown = menu_in(console.get("/", console.auth.sign_in()).text)
    assert shown == [(page.path, page.menu.title) for page in OF_ACCOUNTS if not page.needs_notes_role]


def test_each_page_of_the_menu_is_marked_in_it_and_has_its_title_and_shortcut(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.backends.fill_operator()
    console.auth.be_operator()
    session = console.auth.sign_in()
    for page in ENTRIES:
        text = console.get(page.path, session).text
        assert current_in(text) == [page.path]
        assert f"<kbd>g</kbd> <kbd>{page.menu.shortcut}</kbd></dt><dd>{page.menu.title}</dd>" in text, page.path
        # The overview says of which account, and an operator is asked a question.
        [title] = re.findall(r"<title>(.*) · Legato</title>", text)
        assert title.startswith(page.menu.title.rstrip("?")), page.path


def test_pages_below_one_of_the_menu_are_marked_as_that(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    assert current_in(console.get("/keys/new", session).text) == ["/keys"]
    assert current_in(console.get("/my-data", session).text) == []


def test_shortcuts_are_no_two_alike() -> None:
    shortcuts = [page.menu.shortcut for page in ENTRIES]
    assert len(set(shortcuts)) == len(shortcuts)
