"""What axe is spared is only what looks like something that it has looked at."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.console.browser.axe import APPROVED, assert_accessible

PAGE = '<!doctype html><html lang="en"><title>Rows</title><main><h1>Rows</h1>{}<ul>{}</ul></main>'
ROW = "<li>Black on white</li>"
FAINT = '<li style="color: #eee">Light grey on white</li>'
LINK = '<li><a href="/next" style="display: block; padding: 1em">Next</a></li>'
EMPTY_LINK = LINK.replace("Next", "")


@pytest.fixture
def blank(visited: Page) -> Iterator[Page]:
    page = visited.context.new_page()
    yield page
    page.close()


def show(page: Page, rows: str, before: str = "") -> None:
    page.goto("about:blank")
    page.set_content(PAGE.format(before, rows))


@pytest.mark.parametrize(("right", "wrong", "rule"), [(ROW, FAINT, "color-contrast"), (LINK, EMPTY_LINK, "link-name")])
def test_one_row_among_many_is_found_if_it_differs(blank: Page, right: str, wrong: str, rule: str) -> None:
    show(blank, right * 6)
    assert_accessible(blank)
    show(blank, right * 3 + wrong + right * 3)
    with pytest.raises(AssertionError, match=rule):
        assert_accessible(blank)


def test_rows_that_are_all_wrong_are_found(blank: Page) -> None:
    show(blank, FAINT * 6)
    with pytest.raises(AssertionError, match="color-contrast"):
        assert_accessible(blank)


def test_a_part_of_the_frame_is_looked_at_again_where_its_colours_differ(blank: Page) -> None:
    brand = '<p class="brand">Legato</p>'
    show(blank, ROW, brand)
    assert_accessible(blank)
    # The same markup, on something dark.
    show(blank, ROW, f'<div style="background: #111">{brand}</div>')
    with pytest.raises(AssertionError, match="color-contrast"):
        assert_accessible(blank)
    show(blank, ROW, f"<style>p {{ color: #eee }}</style>{brand}")
    with pytest.raises(AssertionError, match="color-contrast"):
        assert_accessible(blank)


def test_what_only_a_phone_hides_is_found(blank: Page) -> None:
    words = "<style>@media (max-width: 50rem) { span { display: none } }</style>"
    show(blank, LINK.replace("Next", "<span>Next</span>"), words)
    with pytest.raises(AssertionError, match=r"dark.*link-name"):
        assert_accessible(blank)


def test_what_only_the_dark_theme_shows_badly_is_found(blank: Page) -> None:
    faint = "<style>@media (prefers-color-scheme: dark) { li { color: #eee } }</style>"
    show(blank, ROW, faint)
    with pytest.raises(AssertionError, match=r"dark.*color-contrast"):
        assert_accessible(blank)


SHADE = '<div style="background: #ddd; padding: 1em">{}</div>'
GREY = '<p style="color: #666">Dark grey</p>'
PLACED = '<div style="position: relative">{}<div style="position: absolute; top: 5px">{}</div></div>'
MOVED = '{}<div style="margin-top: -2em">{}</div>'


@pytest.mark.parametrize(
    "differing",
    [
        pytest.param(SHADE.format(GREY), id="on something darker"),
        pytest.param(f'<div style="opacity: 0.8">{GREY}</div>', id="shining through"),
        pytest.param(GREY.replace("#666", "#999"), id="in another colour"),
        pytest.param(PLACED.format(SHADE.format(""), GREY), id="placed before something darker"),
        pytest.param(MOVED.format(SHADE.format(""), GREY), id="moved before something darker"),
    ],
)
def test_a_text_is_judged_again_where_what_decides_on_its_contrast_differs(blank: Page, differing: str) -> None:
    show(blank, ROW, GREY * 2)
    assert_accessible(blank)
    show(blank, ROW, differing)
    with pytest.raises(AssertionError, match="color-contrast"):
        assert_accessible(blank)


def test_a_text_is_judged_once_in_its_colours_and_every_time_by_other_rules(blank: Page) -> None:
    link = '<a href="/next" style="color: #00e; display: block; padding: 1em">{}</a>'
    show(blank, ROW, link.format("Next"))
    assert_accessible(blank)
    known = [len(each["colours"]) for each in APPROVED.values()]
    show(blank, ROW, f'<div class="other">{link.format("Another")}</div>')
    assert_accessible(blank)
    assert [len(each["colours"]) for each in APPROVED.values()] == known
    show(blank, ROW, link.format(""))
    with pytest.raises(AssertionError, match="link-name"):
        assert_accessible(blank)
