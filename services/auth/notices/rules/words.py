"""The words of notices: one sentence each. They name keys and figures, never anything that was said in a chat."""

import hashlib
from typing import Any, Final

import msgspec

from services.auth.core.times import from_micros
from services.auth.notices.records import Kind, OwnerNotice

_PERIODS: Final = {"day": "daily", "month": "monthly", "total": "total"}
SUBJECTS: Final = {
    "balance.low": "The balance of {account} is low",
    "spend_limit.near": "{account} is close to a spend limit",
    "spend_limit.reached": "{account} has reached a spend limit",
    "key.expires_soon": "A key of {account} expires soon",
    "key.new_network": "A key of {account} was used from a new network",
    "test": "A test notice of {account}",
}


def id_of(*subject: str) -> str:
    """Returns the id of a notice that comes once for each subject."""
    return "ntc_" + hashlib.sha256("\n".join(subject).encode()).hexdigest()[:32]


def make_notice(
    notice_id: str, account_id: str, kind: Kind, key_id: str, key_name: str, data: dict[str, Any], now_us: int
) -> OwnerNotice:
    body = {
        "id": notice_id,
        "kind": kind,
        "created_at": from_micros(now_us).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "account_id": account_id,
        "key_id": key_id or None,
        "key_name": key_name or None,
        "summary": summarise(kind, key_name or key_id, data),
        "data": data,
    }
    return OwnerNotice(notice_id, account_id, kind, key_id, msgspec.json.encode(body).decode(), now_us)


def summarise(kind: str, key_name: str, data: dict[str, Any]) -> str:
    if kind == "balance.low":
        return f"The balance is ${data['balance_usd']}, which is below ${data['threshold_usd']}."
    if kind.startswith("spend_limit."):
        whose = f"The key {key_name}" if key_name else "The account"
        limit = f"its {_PERIODS[data['period']]} spend limit of ${data['limit_usd']}"
        if kind == "spend_limit.reached":
            return f"{whose} has reached {limit}: requests are refused."
        return f"{whose} has spent ${data['spent_usd']} of {limit}."
    if kind == "key.expires_soon":
        return f"The key {key_name} expires on {data['expires_at'][:10]}."
    if kind == "key.new_network":
        return f"The key {key_name} was used from {data['network']}, where it had not been used before."
    return "This is a test. Nothing has happened."


def advise(kind: str) -> str:
    """Returns what owners can do, for mail."""
    return {
        "balance.low": "Requests are refused when the balance does not cover them. Add credit in time.",
        "spend_limit.near": "When the limit is reached, requests are refused until the period ends.",
        "spend_limit.reached": "Raise the limit, or wait until its period ends.",
        "key.expires_soon": "Rotate it: the new key works beside the old one until that expires.",
        "key.new_network": "If you do not know this network, revoke the key.",
    }.get(kind, "You asked for it on the page of notices.")
