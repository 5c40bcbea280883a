"""The menu of a visit: the pages that the table has an entry of."""

from dataclasses import dataclass

from console.display.language import _
from console.routes import PAGES, PageRoute
from console.web.visit import Visit


@dataclass(frozen=True, slots=True)
class MenuItem:
    path: str
    icon: str
    words: str
    shortcut: str
    is_current: bool = False


@dataclass(frozen=True, slots=True)
class Menu:
    items: tuple[MenuItem, ...]
    # Of the other pages: the operators', or those of the visitor's account. None: the visitor has no others.
    other: MenuItem | None
    is_operators: bool

    @property
    def title(self) -> str:
        """The title of a page whose template has none of its own."""
        return next((item.words for item in self.items if item.is_current), "")


_OF_ACCOUNTS, _OF_OPERATORS = (
    tuple(page for page in PAGES if page.is_in_menu and page.needs_operator is is_operators)
    for is_operators in (False, True)
)


def menu_of(visit: Visit) -> Menu | None:
    """Returns the menu of a page; None: the visitor is not signed in."""
    if visit.known is None:
        return None
    path: str = visit.request.scope["path"].partition("?")[0]
    is_operator = visit.console.serves_operators and visit.who.user.is_operator
    is_operators = is_operator and path.startswith(_OF_OPERATORS[0].path)
    shown = _OF_OPERATORS if is_operators else _OF_ACCOUNTS
    items = tuple(_item(page, path) for page in shown if visit.who.may_write or not page.needs_notes_role)
    if is_operators:
        return Menu(items, _other(_OF_ACCOUNTS[0], _("Your account")), is_operators)
    return Menu(items, _other(_OF_OPERATORS[0], _("Operator")) if is_operator else None, is_operators)


def _item(page: PageRoute, path: str) -> MenuItem:
    # The first page of each menu is at the beginning of the addresses of the others.
    is_first = page in (_OF_ACCOUNTS[0], _OF_OPERATORS[0])
    is_current = path == page.path or (not is_first and path.startswith(page.path))
    return MenuItem(page.path, page.menu.icon, _(page.menu.title), page.menu.shortcut, is_current)


def _other(page: PageRoute, words: str) -> MenuItem:
    return MenuItem(page.path, page.menu.icon, words, page.menu.shortcut)
