from datetime import UTC, datetime

from cli.descriptions import allowed_classes, described, money, tokens_of, value_of
from cli.values import LIMITS
from legato_protos.auth.v1.auth_pb2 import Key, KeyState
from legato_protos.metering.v1.metering_pb2 import CreditEntry, CreditKind
from legato_protos.type.v1.usage_pb2 import Usage
from services.rules.usage import COLUMNS


def test_time_that_is_not_set_is_none() -> None:
    key = Key()
    assert described(key, "expires_at") == {"expires_at": None}
    key.expire_time.FromDatetime(datetime(2026, 11, 15, 8, tzinfo=UTC))
    assert described(key, "expires_at") == {"expires_at": "2026-11-15T08:00:00Z"}


def test_enum_is_a_word_and_what_a_later_version_sends_is_none() -> None:
    assert value_of(Key(state=KeyState.KEY_STATE_REVOKED), "state") == "revoked"
    assert value_of(CreditEntry(kind=CreditKind.CREDIT_KIND_CHARGES), "kind") == "charges"
    assert value_of(Key(), "state") is None
    assert value_of(Key(state=99), "state") is None  # type: ignore[arg-type]


def test_amount_is_in_dollars_and_in_nano_dollars() -> None:
    assert money(held=1_500_000_000) == {"held_usd": "1.50", "held_nanos": 1_500_000_000}
    assert money(balance=None) == {"balance_usd": None, "balance_nanos": None}


def test_tokens_of_an_entry_without_usage_are_none_and_not_zero() -> None:
    assert tokens_of(Usage(prompt_tokens=3)) == dict.fromkeys(COLUMNS, 0) | {"prompt_tokens": 3}
    assert tokens_of(None) == dict.fromkeys(COLUMNS)


def test_limits_and_classes_that_are_not_set_are_none() -> None:
    key = Key(requests_per_minute=0)
    assert described(key, *LIMITS) == {"requests_per_minute": 0, "tokens_per_minute": None, "concurrent_requests": None}
    assert allowed_classes(key) is None
    key.allowed_classes.class_ids.append("mezzo")
    assert allowed_classes(key) == ["mezzo"]
