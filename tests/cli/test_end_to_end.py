"""The commands against a service that really runs; what one test makes is its own."""

import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.cli.service import Up


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as folder:
        service = Up(Path(folder) / "data")
        service.ready()
        yield service
        assert service.stop() == 0
        service.close()


@pytest.fixture
def account_id(up: Up) -> str:
    made: str = up.json("accounts", "create", "Ada", "--credits", "5.00")["account_id"]
    return made


def test_an_account_has_its_credit_from_the_start(up: Up, account_id: str) -> None:
    shown = up.json("accounts", "show", account_id)
    assert shown["account_id"].startswith("acct_")
    assert (shown["name"], shown["class"], shown["balance_usd"]) == ("Ada", "forte", "5.00")
    assert datetime.fromisoformat(shown["created_at"]).utcoffset() is not None
    assert shown in up.json("accounts", "list")


def test_what_is_set_is_kept(up: Up, account_id: str) -> None:
    changed = up.json("accounts", "set", account_id, "--class", "mezzo", "--requests-per-minute", "60")
    assert (changed["class"], changed["requests_per_minute"]) == ("mezzo", 60)
    assert up.json("accounts", "show", account_id) == changed
    assert up.json("accounts", "set", account_id, "--requests-per-minute", "0")["requests_per_minute"] is None


def test_a_key_lives_and_is_revoked(up: Up, account_id: str) -> None:
    made = up.json(
        "keys", "create", "--account", account_id, "--name", "laptop", "--scope", "models", "--expires", "90"
    )
    assert made.pop("api_key").startswith("sk-legato-")
    assert (made["name"], made["scopes"], made["state"]) == ("laptop", ["models"], "active")
    lifetime = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])
    assert lifetime.days == 90
    assert up.json("keys", "list", "--account", account_id) == [made]
    assert up.json("keys", "revoke", made["key_id"])["state"] == "revoked"
    assert up.json("keys", "list", "--account", account_id)[0]["state"] == "revoked"


def test_credit_is_granted_and_adjusted_exactly(up: Up, account_id: str) -> None:
    assert up.json("credits", "grant", account_id, "0.000000001")["balance_usd"] == "5.000000001"
    assert (
        up.json("credits", "adjust", account_id, "-1.25", "--reason", "charged twice")["balance_usd"] == "3.750000001"
    )
    balance = up.json("credits", "balance", account_id)
    assert (balance["balance_nanos"], balance["held_nanos"]) == (3_750_000_001, 0)


def test_no_balance_goes_below_zero(up: Up, account_id: str) -> None:
    done = up.legato("credits", "adjust", account_id, "-5.000000001", "--reason", "too much")
    assert done.exit_code == 1
    assert done.stderr.startswith("legato: ")
    assert done.stderr.count("\n") == 1
    assert up.json("credits", "balance", account_id)["balance_usd"] == "5.00"
    assert up.json("credits", "adjust", account_id, "-5", "--reason", "all of it")["balance_usd"] == "0.00"


@pytest.mark.parametrize(
    "arguments",
    [
        ["accounts", "show", "acct_unknown"],
        ["accounts", "set", "acct_unknown", "--class", "mezzo"],
        ["keys", "create", "--account", "acct_unknown"],
        ["keys", "list", "--account", "acct_unknown"],
        ["keys", "revoke", "key_unknown"],
        ["credits", "grant", "acct_unknown", "5"],
        ["credits", "adjust", "acct_unknown", "5", "--reason", "slip"],
        ["credits", "balance", "acct_unknown"],
        ["usage", "--account", "acct_unknown"],
        ["accounts", "create", ""],
    ],
    ids=" ".join,
)
def test_what_is_not_there_is_refused_on_one_line(up: Up, arguments: list[str]) -> None:
    done = up.legato(*arguments)
    assert done.exit_code == 1, done.stderr
    assert done.stderr.startswith("legato: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_nothing_used_is_no_rows_and_the_books_are_right(up: Up, account_id: str) -> None:
    assert up.json("usage", "--account", account_id, "--by", "day", "--group", "key,class") == []
    audited = up.json("audit")
    assert (audited["ok"], audited["violations"]) == (True, [])
    # At least the account's creation.
    assert audited["audit_events"] >= 1
