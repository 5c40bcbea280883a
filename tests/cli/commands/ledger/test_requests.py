import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

from legato_protos.auth.v1 import auth_pb2
from legato_protos.metering.v1 import metering_pb2, statements_pb2
from legato_protos.type.v1.chat_api_pb2 import CHAT_API_MESSAGES
from legato_protos.type.v1.usage_pb2 import Usage
from tests.cli.played import play

KNOWN = ("auth", "AccountAdminService.GetAccount", auth_pb2.GetAccountResponse())


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


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
    uncharged = receipt(state=metering_pb2.REQUEST_STATE_VOID, end=metering_pb2.END_UPSTREAM_CUT, api=CHAT_API_MESSAGES)
    answer = statements_pb2.ListRequestsResponse(requests=[uncharged])
    far_end = play(("metering", "StatementService.ListRequests", answer))
    shown = json.loads(far_end.run("requests", "show", "acct_1", "1" * 32, "--json").stdout)
    told = (shown["state"], shown["end"], shown["charged_nanos"], shown["api"])
    assert told == ("void", "upstream_cut", 0, "messages")
    assert far_end.requests[0].request_id == "1" * 32
    unknown = play(("metering", "StatementService.ListRequests", statements_pb2.ListRequestsResponse()))
    assert unknown.run("requests", "show", "acct_1", "1" * 32).exit_code == 1
