"""Words and figures as people read them. All text of the pages passes through gettext."""

import gettext
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from protos.auth.v1 import auth_pb2, users_pb2
from protos.type.v1 import access_token_pb2
from services.chassis.money import NANOS_PER_DOLLAR

LANGUAGE: Final = "en-CA"
# Catalogues of other languages take this place; English is written in the pages themselves.
TRANSLATIONS: Final = gettext.NullTranslations()
_ = TRANSLATIONS.gettext
ngettext = TRANSLATIONS.ngettext

SCOPES: Final = {
    auth_pb2.SCOPE_INFERENCE: ("inference", _("Chat")),
    auth_pb2.SCOPE_MODELS: ("models", _("List models")),
    auth_pb2.SCOPE_USAGE: ("usage", _("Read usage")),
}
KEY_STATES: Final = {
    auth_pb2.KEY_STATE_ACTIVE: (_("Active"), "good"),
    auth_pb2.KEY_STATE_REVOKED: (_("Revoked"), "bad"),
    auth_pb2.KEY_STATE_EXPIRED: (_("Expired"), "warn"),
}
ROLES: Final = {
    access_token_pb2.ACCOUNT_ROLE_OWNER: ("owner", _("Owner"), _("Everything, including members")),
    access_token_pb2.ACCOUNT_ROLE_MEMBER: ("member", _("Member"), _("Their own keys, and usage")),
    access_token_pb2.ACCOUNT_ROLE_VIEWER: ("viewer", _("Viewer"), _("Reads usage and credit")),
}
SIGN_IN_METHODS: Final = {
    users_pb2.SIGN_IN_METHOD_PASSKEY: _("Passkey"),
    users_pb2.SIGN_IN_METHOD_LINK: _("Sign-in link"),
    users_pb2.SIGN_IN_METHOD_RECOVERY_CODE: _("Recovery code"),
    users_pb2.SIGN_IN_METHOD_INVITATION: _("Invitation"),
    users_pb2.SIGN_IN_METHOD_PASSWORD: _("Password"),
    users_pb2.SIGN_IN_METHOD_OIDC: _("Single sign-on"),
}
# Address, icon, name and shortcut of the pages for operators; capital letters, beside those of everybody.
OPERATOR_PAGES: Final = (
    ("/operator", "status", _("Live status"), "S"),
    ("/operator/accounts", "accounts", _("Accounts"), "A"),
    ("/operator/users", "users", _("Users"), "U"),
    ("/operator/keys", "identify", _("Whose key?"), "K"),
    ("/operator/routes", "routes", _("Routes"), "R"),
    ("/operator/ledger", "ledger", _("Ledger audit"), "L"),
    ("/operator/dead-letters", "letters", _("Dead letters"), "D"),
    ("/operator/audit-log", "log", _("Audit log"), "E"),
)
MONTHS: Final = (
    _("January"), _("February"), _("March"), _("April"), _("May"), _("June"), _("July"), _("August"), _("September"),
    _("October"), _("November"), _("December"),
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


def credit(nanos: int) -> str:
    """Formats what is left: to cents, never more than there is."""
    cents = (Decimal(nanos) / NANOS_PER_DOLLAR).quantize(Decimal("0.01"), ROUND_DOWN)
    return f"{'−' if nanos < 0 else ''}${abs(cents):,}"


def exact(nanos: int) -> str:
    """Formats all nine decimals."""
    dollars, rest = divmod(abs(nanos), NANOS_PER_DOLLAR)
    return f"{'−' if nanos < 0 else ''}${dollars:,}.{rest:09d}"


def size(count: int) -> str:
    """Formats a number of bytes by its largest unit."""
    if count < 1024:
        return ngettext("%(n)d byte", "%(n)d bytes", count) % {"n": count}
    if count < 1024**2:
        return _("%(n).0f KB") % {"n": count / 1024}
    return _("%(n).1f MB") % {"n": count / 1024**2}


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
        return ngettext("%(n)d minute", "%(n)d minutes", max(1, minutes)) % {"n": max(1, minutes)}
    if minutes < 48 * 60:
        return ngettext("%(n)d hour", "%(n)d hours", minutes // 60) % {"n": minutes // 60}
    return _("%(n)d days") % {"n": minutes // (24 * 60)}


def listed(items: Sequence[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return _("%(first)s and %(last)s") % {"first": ", ".join(items[:-1]), "last": items[-1]}


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
    browser = next((name for mark, name in browsers if mark in user_agent), _("Unknown browser"))
    system = next((name for mark, name in systems if mark in user_agent), "")
    return _("%(browser)s on %(system)s") % {"browser": browser, "system": system} if system else browser
