"""Lists the settings whose changes the audit log tells: ids, numbers and words. Names, addresses, content and secrets
are not among them: the log stays when their owner deletes them."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Final

from services.auth.records.accounts import Account
from services.auth.records.callers import CallerGrant
from services.auth.records.keys import Key
from services.chassis.access_tokens import AccountRole
from services.chassis.changes import Change, Settings, Value, changes_between

LONGEST_TEXT: Final = 253
TEXTS_MOST: Final = 50

FIELDS: Final[dict[str, type]] = {
    # Of keys and accounts.
    "requests_per_minute": int,
    "tokens_per_minute": int,
    "concurrent_requests": int,
    "allowed_classes": tuple,
    # Of keys.
    "scopes": tuple,
    "expires_at_us": int,
    "replaces_key_id": str,
    # Of accounts.
    "preferred_class": str,
    "search": bool,
    "memory": bool,
    "attachments": bool,
    # Of members and invitations.
    "role": str,
    # What metering changes.
    "spend_day_nanos": int,
    "spend_month_nanos": int,
    "spend_total_nanos": int,
    "low_balance_nanos": int,
    # Of notices: the kinds that are not mailed, an owner's own mail, and the host of a webhook.
    "muted_kinds": tuple,
    "own_mail": bool,
    "webhook_host": str,
    # What operators do.
    "retry_after_s": int,
    "amount_nanos": int,
    "routes_version": str,
}


def allowed_changes(changes: Iterable[Change]) -> tuple[Change, ...] | None:
    """Returns those that the log has, at most one of each field; None: none of them. Others are of a later version of
    metering, and mean nothing here."""
    allowed = {each.field: each for each in changes if _fits(each.field, each.before) and _fits(each.field, each.after)}
    return tuple(allowed.values()) or None


def key_changes(before: Key | None, after: Key) -> list[Change]:
    """Returns which settings of a key differ; None: it is new."""
    return changes_between(_settings_of_key(before) if before else {}, _settings_of_key(after))


def account_changes(before: Account, after: Account) -> list[Change]:
    return changes_between(_settings_of_account(before), _settings_of_account(after))


def grant_changes(before: CallerGrant | None, after: CallerGrant) -> list[Change]:
    return changes_between(asdict(before.limits) if before else {}, asdict(after.limits))


def role_change(before: AccountRole | None, after: AccountRole | None) -> list[Change]:
    """Returns the change of a member's role; None: they are no member."""
    return changes_between({"role": _name_of(before)}, {"role": _name_of(after)})


def _settings_of_key(key: Key) -> Settings:
    return {
        "scopes": tuple(scope.value for scope in key.scopes) or None,
        "expires_at_us": key.expires_at_us,
        **asdict(key.limits),
        "allowed_classes": key.allowed_classes.class_ids,
        "replaces_key_id": key.replaces_key_id,
    }


def _settings_of_account(account: Account) -> Settings:
    return {
        "preferred_class": account.preferred_class,
        "allowed_classes": account.allowed_classes.class_ids,
        **asdict(account.limits),
        **asdict(account.grounding),
    }


def _name_of(role: AccountRole | None) -> str | None:
    return role.name.lower() if role else None


def _fits(field: str, value: Value | None) -> bool:
    kind = FIELDS.get(field)
    if kind is None or not (value is None or type(value) is kind):
        return False
    texts = (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ()
    return len(texts) <= TEXTS_MOST and all(len(each) <= LONGEST_TEXT for each in texts)
