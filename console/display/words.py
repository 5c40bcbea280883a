"""Words and figures as people read them."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from console.display.language import N_, is_french
from legato_protos.auth.v1 import auth_pb2, users_pb2
from legato_protos.type.v1 import access_token_pb2
from services.chassis.money import NANOS_PER_DOLLAR

SCOPES: Final = {
    auth_pb2.SCOPE_INFERENCE: ("inference", N_("Chat")),
    auth_pb2.SCOPE_MODELS: ("models", N_("List models")),
    auth_pb2.SCOPE_USAGE: ("usage", N_("Read usage")),
}
KEY_STATES: Final = {
    auth_pb2.KEY_STATE_ACTIVE: (N_("Active"), "good"),
    auth_pb2.KEY_STATE_REVOKED: (N_("Revoked"), "bad"),
    auth_pb2.KEY_STATE_EXPIRED: (N_("Expired"), "warn"),
}
ROLES: Final = {
    access_token_pb2.ACCOUNT_ROLE_OWNER: ("owner", N_("Owner"), N_("Everything, including members")),
    access_token_pb2.ACCOUNT_ROLE_MEMBER: ("member", N_("Member"), N_("Their own keys, and usage")),
    access_token_pb2.ACCOUNT_ROLE_VIEWER: ("viewer", N_("Viewer"), N_("Reads usage and credit")),
}
SIGN_IN_METHODS: Final = {
    users_pb2.SIGN_IN_METHOD_PASSKEY: N_("Passkey"),
    users_pb2.SIGN_IN_METHOD_LINK: N_("Sign-in link"),
    users_pb2.SIGN_IN_METHOD_RECOVERY_CODE: N_("Recovery code"),
    users_pb2.SIGN_IN_METHOD_INVITATION: N_("Invitation"),
    users_pb2.SIGN_IN_METHOD_PASSWORD: N_("Password"),
    users_pb2.SIGN_IN_METHOD_OIDC: N_("Single sign-on"),
}
# Address, icon, name and shortcut of the pages for operators; capital letters, beside the small ones of account pages.
OPERATOR_PAGES: Final = (
    ("/operator", "status", N_("Live status"), "S"),
    ("/operator/accounts", "accounts", N_("Accounts"), "A"),
    ("/operator/users", "users", N_("Users"), "U"),
    ("/operator/keys", "identify", N_("Whose key?"), "K"),
    ("/operator/routes", "routes", N_("Routes"), "R"),
    ("/operator/reports", "usage", N_("Reports"), "P"),
    ("/operator/ledger", "ledger", N_("Ledger audit"), "L"),
    ("/operator/dead-letters", "letters", N_("Dead letters"), "D"),
    ("/operator/audit-log", "log", N_("Audit log"), "E"),
)
MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


def usd(nanos: int, places: int | None = None) -> str:
    """Formats money for reading: cents, or three significant digits of what is less than ten cents; or with as many
    `places` as a column of it has."""
    dollars = Decimal(nanos) / NANOS_PER_DOLLAR
    if places is None:
        places = significant_places(nanos, 3)
    rounded = abs(dollars).quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN)
    return f"{'−' if nanos < 0 else ''}${rounded:,f}"


def significant_places(nanos: int, digits: int) -> int:
    """Returns the places that show so many digits of an amount; two from ten cents."""
    dollars = Decimal(nanos) / NANOS_PER_DOLLAR
    return min(9, digits - 1 - dollars.adjusted()) if dollars and abs(dollars) < Decimal("0.1") else 2


def column_places(amounts: Iterable[int | None], digits: int = 2) -> int:
    """Returns the places of a column, so that the smallest amount in it shows so many digits; at most six."""
    return min(6, max((significant_places(nanos, digits) for nanos in amounts if nanos), default=2))


def credit(nanos: int) -> str:
    """Formats what is left: to cents, never more than there is."""
    cents = (Decimal(nanos) / NANOS_PER_DOLLAR).quantize(Decimal("0.01"), ROUND_DOWN)
    return f"{'−' if nanos < 0 else ''}${abs(cents):,}"


def exact(nanos: int) -> str:
    """Formats all nine decimals."""
    dollars, rest = divmod(abs(nanos), NANOS_PER_DOLLAR)
    return f"{'−' if nanos < 0 else ''}${dollars:,}.{rest:09d}"


def percent(value: float, places: int | None = None) -> str:
    """Formats a share of a hundred: with as many `places` as a column of it has, or as many as it needs."""
    space = "\N{NO-BREAK SPACE}" if is_french() else " "
    return f"{decimal(value, places)}{space}%"


def number(value: float) -> str:
    """Formats a whole number, its thousands apart."""
    return decimal(value, 0)


def decimal(value: float, places: int | None = 1) -> str:
    shown = f"{value:g}" if places is None else f"{value:,.{places}f}"
    return shown.replace(",", "\N{NARROW NO-BREAK SPACE}").replace(".", ",") if is_french() else shown


def plural(count: int, one: str, many: str = "") -> str:
    """Says how many there are: `plural(2, "page")` is "2 pages"."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def size(count: int) -> str:
    """Formats a number of bytes by its largest unit."""
    if count < 1024:
        return plural(count, "byte")
    if count < 1024**2:
        return f"{count / 1024:.0f} KB"
    return f"{count / 1024**2:.1f} MB"


def time_of(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(UTC)


def day(when: date) -> str:
    return f"{when.day} {MONTHS[when.month - 1]} {when.year}"


def short_day(when: date, *, year: bool = False) -> str:
    return f"{when.day} {MONTHS[when.month - 1][:3]}{f' {when.year}' if year else ''}"


def action_words(action: str) -> str:
    """Names an audited action: `key.created` is "Key created"."""
    return action.replace(".", " ").replace("_", " ").capitalize()


def day_range(first: date, last: date) -> str:
    if first == last:
        return day(first)
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day}–{day(last)}"
    if first.year == last.year:
        return f"{first.day} {MONTHS[first.month - 1]} – {day(last)}"
    return f"{day(first)} – {day(last)}"


def in_words(span: timedelta) -> str:
    """Formats a duration by its largest unit."""
    minutes = int(span.total_seconds() // 60)
    if minutes < 60:
        return plural(max(1, minutes), "minute")
    if minutes < 48 * 60:
        return plural(minutes // 60, "hour")
    return f"{minutes // (24 * 60)} days"


def listed(items: Sequence[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def browser_of(user_agent: str) -> str:
    """Names a browser and its system, as far as its own words go."""
    browsers = (
        ("Edg/", "Edge"),
        ("OPR/", "Opera"),
        ("Firefox/", "Firefox"),
        ("Chrome/", "Chrome"),
        ("Safari/", "Safari"),
    )
    systems = (
        ("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"), ("Mac OS X", "macOS"),
        ("CrOS", "ChromeOS"), ("Linux", "Linux"),
    )  # fmt: skip
    browser = next((name for mark, name in browsers if mark in user_agent), "Unknown browser")
    system = next((name for mark, name in systems if mark in user_agent), "")
    return f"{browser} on {system}" if system else browser
