"""What a notice says of the key that it is about."""

import json

import pytest

from services.auth.notices.records import Kind
from services.auth.notices.rules.words import make_notice, sentence_of

LIMIT = {"period": "day", "limit_usd": "5.00", "spent_usd": "4.00"}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Kind.SPEND_LIMIT_NEAR, LIMIT),
        (Kind.SPEND_LIMIT_REACHED, LIMIT),
        (Kind.KEY_EXPIRES_SOON, {"expires_at": "2026-12-01T00:00:00Z"}),
        (Kind.KEY_NEW_NETWORK, {"network": "198.51.100.0/24"}),
    ],
)
def test_a_key_without_a_name_is_told_by_its_id_and_not_taken_for_the_account(kind: Kind, data: dict[str, str]) -> None:
    for key_name, told in (("", "key_1"), ("billing", "billing")):
        body = json.loads(make_notice("ntc_1", "acct_1", kind, "key_1", key_name, data, 0).body)
        assert body["summary"].startswith(f"The key {told} ")
        assert (body["key_id"], body["key_name"]) == ("key_1", key_name or None)


def test_a_notice_of_the_account_speaks_of_the_account() -> None:
    body = json.loads(make_notice("ntc_1", "acct_1", Kind.SPEND_LIMIT_REACHED, "", "", LIMIT, 0).body)
    assert body["summary"] == "The account has reached its daily spend limit of $5.00: requests are refused."


@pytest.mark.parametrize("key", ["", "key_1"])
def test_the_sentence_of_every_kind_has_the_words_of_the_summary_and_an_id(key: str) -> None:
    data = {"balance_usd": "0.87", "threshold_usd": "1.00", "expires_at": "2026-12-01T00:00:00Z"}
    data |= {"network": "198.51.100.0/24"}
    for kind in Kind:
        for period in ("day", "month", "total"):
            notice = make_notice("ntc_1", "acct_1", kind, key, key and "billing", data | LIMIT | {"period": period}, 0)
            sentence = sentence_of(notice)
            assert sentence.id, kind
            assert str(sentence) == notice.summary
