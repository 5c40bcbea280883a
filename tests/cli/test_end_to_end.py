"""The commands against a service that really runs; what one test makes is its own."""

import csv
import json
import subprocess
from datetime import datetime

import pytest

from tests.support.service import LEGATO
from tests.support.up import Up


@pytest.fixture
def account_id(running: Up) -> str:
    made: str = running.json("accounts", "create", "Ada", "--credits", "5.00")["account_id"]
    return made


def test_an_account_has_its_credit_from_the_start(running: Up, account_id: str) -> None:
    shown = running.json("accounts", "show", account_id)
    assert shown["account_id"].startswith("acct_")
    assert (shown["name"], shown["class"], shown["balance_usd"]) == ("Ada", "forte", "5.00")
    assert datetime.fromisoformat(shown["created_at"]).utcoffset() is not None
    assert shown in running.json("accounts", "list")


def test_command_in_a_process_of_its_own_says_the_same(running: Up, account_id: str) -> None:
    command = [str(LEGATO), "accounts", "show", account_id, "--json", "--data", str(running.data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == running.json("accounts", "show", account_id)
    command[command.index(account_id)] = "acct_unknown"
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("legato: ")


def test_what_is_set_is_kept(running: Up, account_id: str) -> None:
    changed = running.json("accounts", "set", account_id, "--class", "mezzo", "--requests-per-minute", "60")
    assert (changed["class"], changed["requests_per_minute"]) == ("mezzo", 60)
    assert running.json("accounts", "show", account_id) == changed
    assert running.json("accounts", "set", account_id, "--requests-per-minute", "0")["requests_per_minute"] is None


def test_a_key_lives_and_is_revoked(running: Up, account_id: str) -> None:
    made = running.json(
        "keys", "create", "--account", account_id, "--name", "laptop", "--scope", "models", "--expires", "90"
    )
    assert made.pop("api_key").startswith("sk-legato-")
    assert (made["name"], made["scopes"], made["state"]) == ("laptop", ["models"], "active")
    lifetime = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])
    assert lifetime.days == 90
    assert running.json("keys", "list", "--account", account_id) == [made]
    assert running.json("keys", "revoke", made["key_id"])["state"] == "revoked"
    assert running.json("keys", "list", "--account", account_id)[0]["state"] == "revoked"


def test_credit_is_granted_and_adjusted_exactly(running: Up, account_id: str) -> None:
    assert running.json("credits", "grant", account_id, "0.000000001")["balance_usd"] == "5.000000001"
    assert (
        running.json("credits", "adjust", account_id, "-1.25", "--reason", "charged twice")["balance_usd"]
        == "3.750000001"
    )
    balance = running.json("credits", "balance", account_id)
    assert (balance["balance_nanos"], balance["held_nanos"]) == (3_750_000_001, 0)


def test_no_balance_goes_below_zero(running: Up, account_id: str) -> None:
    done = running.legato("credits", "adjust", account_id, "-5.000000001", "--reason", "too much")
    assert done.exit_code == 1
    assert done.stderr.startswith("legato: ")
    assert done.stderr.count("\n") == 1
    assert running.json("credits", "balance", account_id)["balance_usd"] == "5.00"
    assert running.json("credits", "adjust", account_id, "-5", "--reason", "all of it")["balance_usd"] == "0.00"


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
def test_what_is_not_there_is_refused_on_one_line(running: Up, arguments: list[str]) -> None:
    done = running.legato(*arguments)
    assert done.exit_code == 1, done.stderr
    assert done.stderr.startswith("legato: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_nothing_used_is_no_rows_and_the_books_are_right(running: Up, account_id: str) -> None:
    assert running.json("usage", "--account", account_id, "--by", "day", "--group", "key,class") == []
    audited = running.json("audit")
    assert (audited["ok"], audited["violations"]) == (True, [])
    # At least the account's creation.
    assert audited["audit_events"] >= 1


def test_statement_ends_at_the_balance_and_its_account_is_audited_alone(running: Up, account_id: str) -> None:
    running.json("credits", "adjust", account_id, "-1.250000001", "--reason", "charged, twice")
    rows = list(csv.DictReader(running.legato("credits", "statement", account_id).stdout.splitlines()))
    assert [row["balance_usd"] for row in rows] == ["5.00", "3.749999999"]
    assert rows[1]["reason"] == "charged, twice"
    assert running.json("requests", "list", account_id) == []
    assert {price["class"] for price in running.json("prices")} == {"mezzo", "forte", "fortissimo"}
    assert running.json("audit", "--account", account_id) == {"ok": True, "violations": []}
