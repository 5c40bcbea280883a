"""Notices to the owners of an account, their deliveries, and the webhooks that they go to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec


class Kind(StrEnum):
    BALANCE_LOW = "balance.low"
    SPEND_LIMIT_NEAR = "spend_limit.near"
    SPEND_LIMIT_REACHED = "spend_limit.reached"
    KEY_EXPIRES_SOON = "key.expires_soon"
    KEY_NEW_NETWORK = "key.new_network"
    # Only what was asked for.
    TEST = "test"


# Those that can be muted, in the order in which they are shown.
KINDS: Final = tuple(kind for kind in Kind if kind is not Kind.TEST)


class Channel(StrEnum):
    WEBHOOK = "webhook"
    MAIL = "mail"


class DeliveryState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    # Given up: a dead letter.
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class OwnerNotice:
    notice_id: str
    account_id: str
    kind: Kind
    # Empty: about the account as a whole.
    key_id: str
    # JSON, as webhooks get it.
    body: str = field(repr=False)
    created_at_us: int

    @property
    def content(self) -> "NoticeContent":
        return msgspec.json.decode(self.body, type=NoticeContent) if self.body else NoticeContent()

    @property
    def summary(self) -> str:
        return self.content.summary


# What a notice says, by name: amounts in dollars and in nano-dollars, a period, a time, a network.
NoticeData = Mapping[str, str | int]


class NoticeContent(msgspec.Struct, frozen=True):
    """The body of a notice, as far as it is read again."""

    summary: str = ""
    key_id: str | None = None
    key_name: str | None = None
    data: NoticeData = {}


@dataclass(frozen=True, slots=True)
class Delivery:
    delivery_id: str
    notice_id: str
    channel: Channel
    # A webhook or a user.
    recipient_id: str
    state: DeliveryState = DeliveryState.PENDING
    attempts: int = 0
    # Of the last attempt; empty: none.
    failure: str = ""
    attempted_at_us: int | None = None
    next_attempt_at_us: int = 0


@dataclass(frozen=True, slots=True)
class Webhook:
    webhook_id: str
    account_id: str
    url: str = field(repr=False)
    secret: str = field(repr=False)
    created_at_us: int
