"""Words and figures as people read them."""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from console.display.language import N_, _, in_figures, is_french, ngettext
from legato_protos.auth.v1 import auth_pb2, users_pb2
from legato_protos.type.v1 import access_token_pb2
from services.chassis.money import NANOS_PER_DOLLAR, format_usd

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
MONTHS: Final = (
    N_("January"), N_("February"), N_("March"), N_("April"), N_("May"), N_("June"), N_("July"), N_("August"),
    N_("September"), N_("October"), N_("November"), N_("December"),
)  # fmt: skip
SHORT_MONTHS: Final = (
    N_("Jan"), N_("Feb"), N_("Mar"), N_("Apr"), N_("May"), N_("Jun"), N_("Jul"), N_("Aug"), N_("Sep"), N_("Oct"),
    N_("Nov"), N_("Dec"),
)  # fmt: skip
LONGEST_WAIT_IN_SECONDS: Final = 90
NO_BREAK: Final = "\N{NO-BREAK SPACE}"


def number(value: float, places: int = 0) -> str:
    return in_figures(f"{value:,}" if isinstance(value, int) and not places else f"{value:,.{places}f}")


def percent(share: float, places: int | None = 0) -> str:
    """Formats a share, with as many places as a column of it has; None: with as many as it needs."""
    shown = in_figures(f"{100 * share:g}") if places is None else number(100 * share, places)
    return f"{shown}{NO_BREAK}%"


def dollars(nanos: int, digits: str) -> str:
    """Puts sign and currency to the digits of an amount, which have none."""
    sign = "−" if nanos < 0 else ""
    return f"{sign}{digits}{NO_BREAK}$" if is_french() else f"{sign}${digits}"


def usd(nanos: int, places: int | None = None) -> str:
    """Formats money for reading: cents, or three significant digits of what is less than ten cents; or with as many
    `places` as a column of it has."""
    amount = Decimal(nanos) / NANOS_PER_DOLLAR
    if places is None:
        places = significant_places(nanos, 3)
    rounded = abs(amount).quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN)
    return dollars(nanos, in_figures(f"{rounded:,f}"))


def significant_places(nanos: int, digits: int) -> int:
    """Returns the places that show so many digits of an amount; two from ten cents."""
    dollars = Decimal(nanos) / NANOS_PER_DOLLAR
    return min(9, digits - 1 - dollars.adjusted()) if dollars and abs(dollars) < Decimal("0.1") else 2


def exact_places(*amounts: int) -> int:
    """Returns how many places a column shows its amounts with, so that all are exact; at least two."""
    return max(2, *(len(f"{abs(nanos) % NANOS_PER_DOLLAR:09d}".rstrip("0")) for nanos in amounts))


def product_places(*millionths: int) -> int:
    """Returns how many places show millionths of a nano-dollar exactly."""
    return max(len(f"{each % (NANOS_PER_DOLLAR * 1_000_000):015d}".rstrip("0")) for each in millionths)


def column_places(amounts: Iterable[int | None], digits: int = 2) -> int:
    """Returns the places of a column, so that the smallest amount in it shows so many digits; at most six."""
    return min(6, max((significant_places(nanos, digits) for nanos in amounts if nanos), default=2))


def credit(nanos: int) -> str:
    """Formats what is left: to cents, never more than there is."""
    cents = (Decimal(nanos) / NANOS_PER_DOLLAR).quantize(Decimal("0.01"), ROUND_DOWN)
    return dollars(nanos, in_figures(f"{abs(cents):,}"))


def exact(nanos: int, places: int = 2) -> str:
    """Formats exactly, with at least so many decimals."""
    whole, _point, fraction = format_usd(abs(nanos)).partition(".")
    return dollars(nanos, in_figures(f"{int(whole):,}.{fraction.ljust(places, '0')}"))


def nine_decimals(nanos: int) -> str:
    """Returns the digits of an amount to the nano-dollar."""
    whole, rest = divmod(abs(nanos), NANOS_PER_DOLLAR)
    return in_figures(f"{whole:,}.{rest:09d}")


def product(millionths: int, places: int = 2) -> str:
    """Formats millionths of a nano-dollar exactly, with at least so many decimals: what tokens cost before the sum is
    rounded."""
    whole, rest = divmod(millionths, NANOS_PER_DOLLAR * 1_000_000)
    return dollars(whole, in_figures(f"{whole:,}.{f'{rest:015d}'.rstrip('0').ljust(places, '0')}"))


def size(count: int) -> str:
    """Formats a number of bytes by its largest unit."""
    if count < 1024:
        return ngettext("%(num)s byte", "%(num)s bytes", count)
    if count < 1024**2:
        return _("%(size)s KB", size=number(count / 1024))
    return _("%(size)s MB", size=number(count / 1024**2, 1))


def time_of(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(UTC)


def day(when: date) -> str:
    return f"{_day_of_month(when)} {month(when)}"


def short_day(when: date, *, year: bool = False) -> str:
    name = _(SHORT_MONTHS[when.month - 1])
    return f"{_day_of_month(when)} {name}{f' {when.year}' if year else ''}"


def _day_of_month(when: date) -> str:
    return "1er" if when.day == 1 and is_french() else str(when.day)


def month(when: date) -> str:
    return f"{_(MONTHS[when.month - 1])} {when.year}"


def short_month(when: date) -> str:
    return f"{_(SHORT_MONTHS[when.month - 1])} {when.year}"


def clock(when: datetime, *, seconds: bool = False) -> str:
    """Formats a time of day: 14:05, or 14 h 05; with seconds 14:05:09, or 14 h 05 min 09 s."""
    if not is_french():
        return f"{when:%H:%M:%S}" if seconds else f"{when:%H:%M}"
    rest = f"{NO_BREAK}min{NO_BREAK}{when:%S}{NO_BREAK}s" if seconds else ""
    return f"{when.hour}{NO_BREAK}h{NO_BREAK}{when:%M}{rest}"


def action_words(action: str) -> str:
    """Names an audited action: `key.created` is "Key created"."""
    return action.replace(".", " ").replace("_", " ").capitalize()


def day_range(first: date, last: date) -> str:
    if first == last:
        return day(first)
    if (first.year, first.month) == (last.year, last.month):
        return f"{_day_of_month(first)}–{day(last)}"
    if first.year == last.year:
        return f"{_day_of_month(first)} {_(MONTHS[first.month - 1])} – {day(last)}"
    return f"{day(first)} – {day(last)}"


def in_words(span: timedelta) -> str:
    """Formats a duration by its largest unit."""
    minutes = int(span.total_seconds() // 60)
    if minutes < 60:
        return ngettext("%(num)s minute", "%(num)s minutes", max(1, minutes))
    if minutes < 48 * 60:
        return ngettext("%(num)s hour", "%(num)s hours", minutes // 60)
    return ngettext("%(num)s day", "%(num)s days", minutes // (24 * 60))


def wait_words(seconds: float) -> str:
    """Formats how long to wait, rounded up: in seconds, minutes, or hours and minutes."""
    whole = math.ceil(seconds)
    minutes = math.ceil(seconds / 60)
    if whole <= LONGEST_WAIT_IN_SECONDS:
        return ngettext("%(num)s second", "%(num)s seconds", max(1, whole))
    if minutes < 60:
        return ngettext("%(num)s minute", "%(num)s minutes", minutes)
    hours, rest = divmod(minutes, 60)
    text = ngettext("%(num)s hour", "%(num)s hours", hours)
    return listed((text, ngettext("%(num)s minute", "%(num)s minutes", rest))) if rest else text


def listed(items: Sequence[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return _("%(first)s and %(last)s", first=", ".join(items[:-1]), last=items[-1])


def browser_of(user_agent: str) -> str:
    """Names a browser and its system, as far as its own words go; in English, as sessions keep it."""
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
    browser = next((name for mark, name in browsers if mark in user_agent), N_("Unknown browser"))
    system = next((name for mark, name in systems if mark in user_agent), "")
    return f"{browser} on {system}" if system else browser


def browser_words(named: str) -> str:
    """Writes what `browser_of` named in the language of the visit."""
    browser, _on, system = named.partition(" on ")
    return _("%(browser)s on %(system)s", browser=browser, system=system) if system else _(browser)
