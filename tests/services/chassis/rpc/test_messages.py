from dataclasses import dataclass, field
from enum import Enum

import pytest

from legato_protos.auth.v1 import auth_pb2, notices_pb2
from services.chassis.rpc.messages import to_message, to_timestamp


class State(Enum):
    DELIVERED = 1


@dataclass(frozen=True)
class Webhook:
    webhook_id: str
    url: str
    created_at_us: int


@dataclass(frozen=True)
class Settings:
    webhooks: list[Webhook] = field(default_factory=list)
    muted_kinds: tuple[str, ...] = ("test",)
    kinds: tuple[str, ...] = ()
    is_mail_offered: bool = True
    mail_recipients: int = 2


@dataclass(frozen=True)
class Delivery:
    state: State | str
    delivery_id: str = "dlv"
    channel: str = "mail"
    attempts: int = 3
    failure: str = ""
    attempted_at_us: int | None = None


def test_fields_are_those_of_the_records_with_the_records_in_them() -> None:
    settings = Settings([Webhook("whk", "https://example.ca", 1_500_000)])
    message = to_message(notices_pb2.NoticeSettings, settings, own_mail=notices_pb2.OWN_MAIL_ON)
    webhook = notices_pb2.Webhook(webhook_id="whk", url="https://example.ca", create_time=to_timestamp(1_500_000))
    assert message == notices_pb2.NoticeSettings(
        webhooks=[webhook],
        muted_kinds=["test"],
        is_mail_offered=True,
        mail_recipients=2,
        own_mail=notices_pb2.OWN_MAIL_ON,
    )


@pytest.mark.parametrize("state", [State.DELIVERED, "delivered"])
def test_numbers_of_enumerations_are_found_by_their_names_and_by_texts(state: State | str) -> None:
    message = to_message(notices_pb2.NoticeDelivery, Delivery(state), recipient="shop", next_attempt_time=None)
    assert message.state == notices_pb2.DELIVERY_STATE_DELIVERED
    assert not message.HasField("attempt_time")


def test_field_that_no_record_has_is_an_error() -> None:
    with pytest.raises(StopIteration):
        to_message(auth_pb2.Maintenance, object())
