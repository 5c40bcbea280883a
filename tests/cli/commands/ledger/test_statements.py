"""Exports of ledgers and receipts: every nano-dollar, page by page."""

import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

from legato_protos.auth.v1 import auth_pb2
from legato_protos.metering.v1 import metering_pb2, statements_pb2
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.money import parse_usd
from services.rules.usage import named
from tests.cli.played import Played, play

KNOWN = ("auth", "AccountAdminService.GetAccount", auth_pb2.GetAccountResponse())
GRANT, CHARGE = statements_pb2.LEDGER_ENTRY_KIND_GRANT, statements_pb2.LEDGER_ENTRY_KIND_CHARGE
USED = Usage(prompt_tokens=5, cached_tokens=2, completion_tokens=3)


def entry(entry_id: int, amount_nanos: int, balance_nanos: int, **fields: Any) -> statements_pb2.LedgerEntry:
    made = statements_pb2.LedgerEntry(
        entry_id=entry_id, amount_nanos=amount_nanos, balance_nanos=balance_nanos, **({"kind": GRANT} | fields)
    )
    made.time.FromDatetime(datetime(2026, 11, 15, 7, 0, entry_id, 5, tzinfo=UTC))
    return made


def charge(entry_id: int, amount_nanos: int, balance_nanos: int) -> statements_pb2.LedgerEntry:
    return entry(
        entry_id,
        amount_nanos,
        balance_nanos,
        kind=CHARGE,
        reference_id="1" * 32,
        key_id="key_1",
        class_id="forte",
        usage=USED,
        price_version=1,
        basis=metering_pb2.BASIS_PROVIDER,
        end=metering_pb2.END_COMPLETE,
    )


def played_pages(*pages: list[statements_pb2.LedgerEntry]) -> Played:
    answers = [
        statements_pb2.ListLedgerEntriesResponse(
            entries=page, next_page_token=f"page-{number}" if number < len(pages) else ""
        )
        for number, page in enumerate(pages, start=1)
    ]
    return play(KNOWN, *(("metering", "StatementService.ListLedgerEntries", answer) for answer in answers))


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_statement_has_every_nano_dollar() -> None:
    adjusted = entry(
        2, -1, 9_223_372_036_854_775_806, kind=statements_pb2.LEDGER_ENTRY_KIND_ADJUSTMENT, reason='twice, "sorry"'
    )
    far_end = played_pages(
        [entry(1, 9_223_372_036_854_775_807, 9_223_372_036_854_775_807), adjusted],
        [charge(3, -4_000_000_038, 9_223_372_032_854_775_768)],
    )
    rows = rows_of(far_end.run("credits", "statement", "acct_1").stdout)
    assert [row["amount_usd"] for row in rows] == ["9223372036.854775807", "-0.000000001", "-4.000000038"]
    assert [row["balance_usd"] for row in rows][1:] == ["9223372036.854775806", "9223372032.854775768"]
    assert [parse_usd(row["amount_usd"]) for row in rows] == [int(row["amount_nanos"]) for row in rows]
    assert rows[1]["reason"] == 'twice, "sorry"'
    assert rows[2] == {
        "entry_id": "3",
        "time": "2026-11-15T07:00:03.000005Z",
        "kind": "charge",
        "amount_usd": "-4.000000038",
        "amount_nanos": "-4000000038",
        "balance_usd": "9223372032.854775768",
        "balance_nanos": "9223372032854775768",
        "id": "1" * 32,
        "class": "forte",
        "key_id": "key_1",
        **{name: str(count) for name, count in named(USED).items()},
        "price_version": "1",
        "basis": "provider",
        "end": "complete",
        "loss_nanos": "0",
        "reason": "",
    }
    assert [request.page_token for request in far_end.requests[1:]] == ["", "page-1"]


def test_statement_is_a_json_array_and_an_empty_one_is_empty() -> None:
    shown = json.loads(
        played_pages([entry(1, 5, 5)], [charge(2, -1, 4)]).run("credits", "statement", "a", "--json").stdout
    )
    assert [row["balance_nanos"] for row in shown] == [5, 4]
    assert shown[0]["prompt_tokens"] is None
    assert json.loads(played_pages([]).run("credits", "statement", "acct_1", "--json").stdout) == []
    assert rows_of(played_pages([]).run("credits", "statement", "acct_1").stdout) == []


def test_period_of_a_statement_is_exact() -> None:
    far_end = played_pages([])
    times = ("--from", "2026-11-01", "--to", "2026-11-15T07:00:00.000001Z")
    assert far_end.run("credits", "statement", "acct_1", *times).exit_code == 0
    request = far_end.requests[1]
    assert request.start_time.ToDatetime(tzinfo=UTC) == datetime(2026, 11, 1, tzinfo=UTC)
    assert request.end_time.ToMicroseconds() % 1_000_000 == 1
    backwards = play(KNOWN).run("credits", "statement", "acct_1", "--from", "2026-11-02", "--to", "2026-11-01")
    assert backwards.exit_code == 2
