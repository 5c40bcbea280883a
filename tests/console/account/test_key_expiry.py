"""The expiry of new keys."""

from datetime import UTC, datetime, timedelta

from console.account.key_expiry import NEVER, days_of, expiry_of
from legato_protos.auth.v1.auth_pb2 import Key

CREATED = datetime(2026, 11, 17, tzinfo=UTC)


def test_a_form_says_days_or_never() -> None:
    assert [days_of(each) for each in ("30", "90", "365", NEVER, "7", "")] == [30, 90, 365, None, None, None]


def test_a_rotated_key_is_offered_what_the_old_one_had() -> None:
    for days, expected in ((None, NEVER), (365, "365"), (12, "90")):
        key = Key()
        key.create_time.FromDatetime(CREATED)
        if days is not None:
            key.expire_time.FromDatetime(CREATED + timedelta(days=days))
        assert expiry_of(key) == expected
