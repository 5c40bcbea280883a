"""Changes of the audit log in words: limits, classes, roles and switches, before and after."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from console.display.language import N_, _
from console.display.words import ROLES, SCOPES, clock, listed, number, short_day, usd
from services.chassis.changes import Change, Value

NOTICE_KINDS: Final = {
    "balance.low": N_("Low balance"),
    "spend_limit.near": N_("Spend limit near"),
    "spend_limit.reached": N_("Spend limit reached"),
    "key.expires_soon": N_("Key expires soon"),
    "key.new_network": N_("Key used from a new network"),
}
_SCOPE_NAMES: Final = dict(SCOPES.values())
_ROLE_NAMES: Final = {name: title for name, title, _words in ROLES.values()}


class Field(NamedTuple):
    label: str
    # Of what is set.
    words: Callable[[Any], str]
    # What it means if it is not.
    unset: str


def _switch(is_on: bool) -> str:
    return _("on") if is_on else _("off")


def _names(titles: Mapping[str, str], none: str) -> Callable[[Iterable[str]], str]:
    """Returns what writes names as a list, each by its title if it has one."""
    return lambda names: listed([_(titles[name]) if name in titles else name for name in names]) or _(none)


def _role(name: str) -> str:
    return _(_ROLE_NAMES.get(name, name))


def _moment(at_us: int) -> str:
    moment = datetime.fromtimestamp(at_us / 1e6, UTC)
    return f"{short_day(moment.date(), year=True)}, {clock(moment)} UTC"


def _seconds(count: int) -> str:
    return _("%(number)s s", number=number(count))


def _amount(message: str) -> Callable[[int], str]:
    return lambda nanos: _(message, amount=usd(nanos))


FIELDS: Final[dict[str, Field]] = {
    "requests_per_minute": Field(N_("Requests a minute"), number, N_("no limit of its own")),
    "tokens_per_minute": Field(N_("Tokens a minute"), number, N_("no limit of its own")),
    "concurrent_requests": Field(N_("Requests at once"), number, N_("no limit of its own")),
    "allowed_classes": Field(N_("Classes"), _names({}, N_("no class")), N_("all")),
    "scopes": Field(N_("What it may do"), _names(_SCOPE_NAMES, N_("Everything")), N_("Everything")),
    "expires_at_us": Field(N_("Expires"), _moment, N_("never")),
    "replaces_key_id": Field(N_("Replaces"), str, N_("no key")),
    "preferred_class": Field(N_("What “auto” means"), str, N_("no class")),
    "search": Field(N_("Web search"), _switch, N_("off")),
    "memory": Field(N_("Memory"), _switch, N_("off")),
    "attachments": Field(N_("Documents"), _switch, N_("off")),
    "role": Field(N_("Role"), _role, N_("none")),
    "spend_day_nanos": Field(N_("Spend limit by day"), _amount(N_("%(amount)s a day")), N_("no limit")),
    "spend_month_nanos": Field(N_("Spend limit by month"), _amount(N_("%(amount)s a month")), N_("no limit")),
    "spend_total_nanos": Field(N_("Spend limit in all"), _amount(N_("%(amount)s in all")), N_("no limit")),
    "low_balance_nanos": Field(N_("Low balance"), usd, N_("the service’s own")),
    "muted_kinds": Field(N_("Not mailed"), _names(NOTICE_KINDS, N_("none")), N_("none")),
    "own_mail": Field(N_("Mail"), _switch, N_("off")),
    "webhook_host": Field(N_("Webhook"), str, N_("none")),
    "retry_after_s": Field(N_("Clients try again after"), _seconds, N_("none")),
    "amount_nanos": Field(N_("Amount"), usd, N_("none")),
    "routes_version": Field(N_("Version of the routes"), str, N_("no version")),
}


def words_of_value(field: str, value: Value | None) -> str:
    known = FIELDS.get(field)
    if known is None:
        # Of a later release of auth.
        return _("not known here")
    return _(known.unset) if value is None else known.words(value)


def change_words(change: Change, *, is_new: bool = False) -> str:
    """Says what changed; of what is new or removed, only what it is or was."""
    known = FIELDS.get(change.field)
    label = _(known.label) if known else change.field
    before, after = words_of_value(change.field, change.before), words_of_value(change.field, change.after)
    if is_new:
        return _("%(label)s: %(value)s", label=label, value=before if change.after is None else after)
    return _("%(label)s: from %(before)s to %(after)s", label=label, before=before, after=after)
