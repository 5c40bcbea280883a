"""What a person does in the playground."""

from playwright.sync_api import Page


def send(page: Page, text: str) -> None:
    page.get_by_label("Your message", exact=True).fill(text)
    page.keyboard.press("Enter")


def show_all(page: Page) -> None:
    """Unfolds what scrolls: axe cannot judge the colours of what is scrolled out of its box."""
    page.evaluate("document.querySelectorAll('.turns, pre').forEach((each) => { each.style.maxHeight = 'none'; })")
