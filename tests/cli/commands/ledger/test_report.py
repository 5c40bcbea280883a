import csv
import io
import json
from pathlib import Path
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.metering.v1 import reports_pb2 as pb
from legato_protos.type.v1.usage_pb2 import Usage
from tests.cli.played import Played, play

# The first of November 2026.
FIRST = Timestamp(seconds=1_793_491_200)
KNOWN = pb.ReportSums(
    requests=2, usage=Usage(prompt_tokens=90, cached_tokens=4, completion_tokens=7), charged_nanos=3_000_000_001,
    costed_nanos=3_000_000_001, calls=3, cost_nanos=3_500_000_001,
    told_usage=Usage(prompt_tokens=95, completion_tokens=7),
)  # fmt: skip
UNKNOWN = pb.ReportSums(requests=1, charged_nanos=5, lost_nanos=2, calls=1, uncosted_calls=1)
OUTSTANDING = pb.OutstandingCredit(live_holds=2, held_nanos=7, overdue_holds=1, overdue_nanos=3, owing_accounts=1)


def played(**changes: Any) -> Played:
    rows = [
        pb.ReportRow(day=FIRST, provider="acme", model_name="large", sums=KNOWN),
        pb.ReportRow(day=FIRST, sums=UNKNOWN),
    ]
    total = pb.ReportSums(charged_nanos=3_000_000_006, costed_nanos=3_000_000_001, calls=4, uncosted_calls=1)
    answer = pb.GetReportResponse(rows=rows, total=total, outstanding=OUTSTANDING, **changes)
    return play(("metering", "ReportService.GetReport", answer))


def test_report_tells_cost_and_margin_where_they_are_known_and_nothing_where_they_are_not() -> None:
    far_end = played()
    asked = ("--by", "day,provider,model", "--from", "2026-11-01", "--to", "2026-11-15T08:00:00Z", "--top", "5")
    told = json.loads(far_end.run("report", *asked, "--json").stdout)
    known, unknown = told["rows"]
    assert (known["day"], known["provider"], known["model"], known["account"]) == ("2026-11-01", "acme", "large", None)
    # Sold below cost.
    assert (known["revenue_nanos"], known["cost_usd"], known["margin_usd"]) == (3_000_000_001, "3.500000001", "-0.50")
    assert (known["prompt_tokens"], known["told_prompt_tokens"]) == (90, 95)
    assert (unknown["provider"], unknown["cost_nanos"], unknown["margin_nanos"]) == (None, None, None)
    assert (unknown["uncosted_nanos"], unknown["unpaid_nanos"]) == (5, 2)
    assert (told["outstanding"]["overdue_nanos"], told["outstanding"]["owing_accounts"]) == (3, 1)
    [request] = far_end.requests
    assert (request.start_time.seconds, request.end_time.seconds) == (FIRST.seconds, FIRST.seconds + 15 * 86_400)
    assert (list(request.groups), request.top_rows) == ([1, 3, 4], 5)


def test_table_has_the_total_the_others_and_what_is_outstanding() -> None:
    done = played(other_rows=3, summed_time=FIRST).run("report", "--by", "provider", "--provider", "acme")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["provider", "acme", "-", "3", "total"]
    assert "3.000000001" in lines[1]
    assert "held and overdue      0.000000003 USD by 1 requests" in lines
    assert "Entries from 2026-11-01T00:00:00Z on are still being added up." in done.stderr


def test_csv_has_the_groups_and_all_sums() -> None:
    done = played().run("report", "--by", "model,day", "--csv")
    first, second = csv.DictReader(io.StringIO(done.stdout))
    assert list(first)[:3] == ["day", "model", "requests"]
    assert (first["cost_usd"], second["cost_usd"]) == ("3.500000001", "")


def test_days_in_the_wrong_order_are_refused() -> None:
    done = play().run("report", "--from", "2026-11-02", "--to", "2026-11-02")
    assert done.exit_code == 2
    assert "--from must be before --to." in done.stderr


def test_bill_is_compared_by_the_providers_own_counts(tmp_path: Path) -> None:
    file = tmp_path / "bill.csv"
    lines = ["date,model,input_tokens,output_tokens,cost", "2026-11-01,Large 2,100,7,3.6", "2026-11-03,new,1,1,0.01"]
    file.write_text("\n".join(lines))
    far_end = played()
    bill = ("report", "bill", str(file), "--provider", "acme")
    told = json.loads(far_end.run(*bill, "--model", "Large 2=large", "--json").stdout)
    [request] = far_end.requests
    assert (request.provider, request.end_time.seconds - request.start_time.seconds) == ("acme", 3 * 86_400)
    assert [(row["model"], row["only_in"]) for row in told] == [("large", None), ("new", "bill"), ("", "ledger")]
    assert (told[0]["their_input"], told[0]["our_input"], told[0]["input_difference"]) == (100, 95, 5)
    assert told[0]["cost_difference_nanos"] == 99_999_999
    assert told[2]["our_cost_nanos"] is None
    shown = played().run(*bill).stdout
    assert shown.splitlines()[0].split()[:3] == ["day", "model", "only_in"]
    as_csv = played().run(*bill, "--csv").stdout
    assert len(as_csv.splitlines()) == 5


def test_bill_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bill.csv"
    file.write_text("date,model\n2026-11-01,large\n")
    done = play().run("report", "bill", str(file), "--provider", "acme")
    assert (done.exit_code, "no column of tokens or cost is known" in done.stderr) == (2, True)
    done = play().run("report", "bill", str(file), "--provider", "acme", "--model", "large")
    assert "--model is THEIRS=OURS." in done.stderr
