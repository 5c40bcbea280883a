"""The words of notices: one sentence each. They name keys and figures, never anything that was in a chat."""

import hashlib
from typing import Final

import msgspec

from services.auth.core.times import from_micros
from services.auth.notices.records import Kind, NoticeData, OwnerNotice
from services.chassis.sentence import Sentence

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
    notice_id: str, account_id: str, kind: Kind, key_id: str, key_name: str, data: NoticeData, now_us: int
) -> OwnerNotice:
    body = {
        "id": notice_id,
        "kind": kind,
        "created_at": from_micros(now_us).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "account_id": account_id,
        "key_id": key_id or None,
        "key_name": key_name or None,
        "summary": str(_summarise(kind, key_name or key_id, data)),
        "data": data,
    }
    return OwnerNotice(notice_id, account_id, kind, key_id, msgspec.json.encode(body).decode(), now_us)


def sentence_of(notice: OwnerNotice) -> Sentence:
    """Returns the summary as a sentence, for readers of another language."""
    content = notice.content
    return _summarise(notice.kind, content.key_name or content.key_id or "", content.data)


def _summarise(kind: str, key: str, data: NoticeData) -> Sentence:
    if kind == "balance.low":
        return Sentence("notice_low_balance", balance=data["balance_usd"], threshold=data["threshold_usd"])
    if kind == "spend_limit.reached":
        limit = {"period": _PERIODS[str(data["period"])], "limit": data["limit_usd"]}
        return (
            Sentence("key_spend_limit_reached", key=key, **limit) if key else Sentence("spend_limit_reached", **limit)
        )
    if kind == "spend_limit.near":
        spent = {"period": _PERIODS[str(data["period"])], "limit": data["limit_usd"], "spent": data["spent_usd"]}
        return Sentence("key_spend_limit_near", key=key, **spent) if key else Sentence("spend_limit_near", **spent)
    if kind == "key.expires_soon":
        return Sentence("notice_key_expires", key=key, day=str(data["expires_at"])[:10])
    if kind == "key.new_network":
        return Sentence("notice_key_network", key=key, network=data["network"])
    return Sentence("notice_test")


def advise(kind: str) -> str:
    """Returns what owners can do, for mail."""
    return {
        "balance.low": "Requests are refused when the balance does not cover them. Add credit in time.",
        "spend_limit.near": "When the limit is reached, requests are refused until the period ends.",
        "spend_limit.reached": "Raise the limit, or wait until its period ends.",
        "key.expires_soon": "Rotate it: the new key works beside the old one until that expires.",
        "key.new_network": "If you do not know this network, revoke the key.",
    }.get(kind, "You asked for it on the page of notices.")
