"""Lists the settings whose changes the audit log tells: ids, numbers and words. Names, addresses, content and secrets
are not among them: the log stays when their owner deletes them."""

from collections.abc import Iterable
from typing import Final

from services.chassis.changes import Change, Value

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


def _fits(field: str, value: Value | None) -> bool:
    kind = FIELDS.get(field)
    if kind is None or not (value is None or type(value) is kind):
        return False
    texts = (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ()
    return len(texts) <= TEXTS_MOST and all(len(each) <= LONGEST_TEXT for each in texts)
