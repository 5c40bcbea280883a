"""Exports of ledgers and receipts: every nano-dollar, page by page."""

import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from protos.auth.v1 import auth_pb2
from protos.metering.v1 import metering_pb2, statements_pb2
from protos.router.v1 import router_pb2
from protos.type.v1.usage_pb2 import Usage
from services.chassis.money import parse_usd
from tests.cli.played import Played, play

KNOWN = ("auth", "AccountAdminService.GetAccount", auth_pb2.GetAccountResponse())
GRANT, CHARGE = statements_pb2.LEDGER_ENTRY_KIND_GRANT, statements_pb2.LEDGER_ENTRY_KIND_CHARGE


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
        usage=Usage(prompt_tokens=5, cached_tokens=2, completion_tokens=3),
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
        "prompt_tokens": "5",
        "cached_tokens": "2",
        "completion_tokens": "3",
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


def receipt(**fields: Any) -> statements_pb2.RequestReceipt:
    made = statements_pb2.RequestReceipt(**({"request_id": "1" * 32, "key_id": "key_1", "class_id": "forte"} | fields))
    made.reserve_time.FromDatetime(datetime(2026, 11, 15, 7, tzinfo=UTC))
    return made


def test_receipts_are_listed_and_exported_with_what_recomputes_them() -> None:
    price = metering_pb2.Price(
        version=1, input_nanos_per_million=2_000_000, cached_input_nanos_per_million=1_000_000,
        output_nanos_per_million=10_000_000,
    )  # fmt: skip
    charged = receipt(
        state=metering_pb2.REQUEST_STATE_SETTLED,
        usage=Usage(prompt_tokens=5, cached_tokens=2, completion_tokens=3),
        cost_nanos=38,
        charged_nanos=38,
        price=price,
    )
    running = receipt(request_id="2" * 32, state=metering_pb2.REQUEST_STATE_RUNNING, held_nanos=100)
    answer = statements_pb2.ListRequestsResponse(running=[running], requests=[charged])
    listing = ("metering", "StatementService.ListRequests", answer)
    rows = rows_of(play(KNOWN, listing).run("requests", "export", "acct_1").stdout)
    assert [row["state"] for row in rows] == ["running", "settled"]
    tokens = [int(rows[1][name]) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")]
    nanos = [int(rows[1][f"{name}_nanos_per_million"]) for name in ("input", "cached_input", "output")]
    cost = (tokens[0] - tokens[1]) * nanos[0] + tokens[1] * nanos[1] + tokens[2] * nanos[2]
    assert cost == int(rows[1]["charged_nanos"]) * 1_000_000
    shown = json.loads(play(KNOWN, listing).run("requests", "list", "acct_1", "--limit", "1", "--json").stdout)
    assert [row["id"] for row in shown] == ["2" * 32]


def test_request_that_was_not_charged_is_shown_with_its_reason() -> None:
    uncharged = receipt(state=metering_pb2.REQUEST_STATE_VOID, end=metering_pb2.END_UPSTREAM_CUT)
    answer = statements_pb2.ListRequestsResponse(requests=[uncharged])
    far_end = play(("metering", "StatementService.ListRequests", answer))
    shown = json.loads(far_end.run("requests", "show", "acct_1", "1" * 32, "--json").stdout)
    assert (shown["state"], shown["end"], shown["charged_nanos"]) == ("void", "upstream_cut", 0)
    assert far_end.requests[0].request_id == "1" * 32
    unknown = play(("metering", "StatementService.ListRequests", statements_pb2.ListRequestsResponse()))
    assert unknown.run("requests", "show", "acct_1", "1" * 32).exit_code == 1


def price_of(output_nanos: int) -> metering_pb2.Price:
    return metering_pb2.Price(output_nanos_per_million=output_nanos)


def test_prices_are_the_current_and_the_scheduled_ones_unless_all_are_asked_for() -> None:
    versions = [
        statements_pb2.PriceVersion(
            version=version,
            start_time=Timestamp(seconds=version),
            prices=[
                statements_pb2.ClassPrice(class_id="mezzo", price=metering_pb2.Price(output_nanos_per_million=nanos))
            ],
        )
        for version, nanos in ((3, 220_000_000), (2, 210_000_001), (1, 200_000_000))
    ]
    response = statements_pb2.ListPricesResponse(versions=versions, current_version=2)
    listing = ("metering", "StatementService.ListPrices", response)
    [coming, current] = json.loads(play(listing).run("prices", "--json").stdout)
    assert (current["state"], current["version"], current["output_usd"]) == ("current", 2, "0.210000001")
    assert (coming["state"], coming["version"]) == ("scheduled", 3)
    states = [row["state"] for row in json.loads(play(listing).run("prices", "--all", "--json").stdout)]
    assert states == ["scheduled", "current", "past"]


def test_a_class_that_earns_less_than_its_provider_charges_is_shown() -> None:
    priced = statements_pb2.ClassPrice(
        class_id="mezzo",
        price=metering_pb2.Price(
            input_nanos_per_million=100, cached_input_nanos_per_million=20, output_nanos_per_million=200
        ),
    )
    version = statements_pb2.PriceVersion(version=1, prices=[priced])
    dear, unknown = (
        router_pb2.Target(class_id="mezzo", provider=name, model_name="m", cost=cost)
        for name, cost in (
            ("dear", router_pb2.ProviderCost(input_nanos=50, cached_input_nanos=10, output_nanos=210)),
            ("unknown", None),
        )
    )
    far_end = play(
        (
            "metering",
            "StatementService.ListPrices",
            statements_pb2.ListPricesResponse(versions=[version], current_version=1),
        ),
        ("router", "RouteAdminService.ListTargets", router_pb2.ListTargetsResponse(targets=[dear, unknown])),
    )
    rows = json.loads(far_end.run("prices", "--margins", "--json").stdout)
    assert [rows[0][name] for name in ("input", "cached_input", "output", "below_cost")] == [
        "50.0%",
        "50.0%",
        "-5.0%",
        True,
    ]
    assert rows[1]["below_cost"] is None
