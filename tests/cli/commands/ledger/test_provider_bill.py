from datetime import date

import pytest

from cli.commands.ledger.provider_bill import INPUTS, BillColumns, BillMistake, UsedTokens, compare, read_bill

FIRST, SECOND = date(2026, 11, 1), date(2026, 11, 2)

# As these providers export them, with some of the columns that are not read.
EXPORTS = {
    "OpenAI": [
        "start_time,end_time,start_time_iso,project_id,num_model_requests,model,input_tokens,output_tokens",
        "1793491200,1793577600,2026-11-01T00:00:00+00:00,proj_1,2,large,100,7",
        "1793491200,1793577600,2026-11-01T00:00:00+00:00,proj_2,1,large,20,3",
    ],
    "Anthropic": [
        f"usage_date_utc,model_version,{','.join(INPUTS[0])},usage_output_tokens,web_search_count",
        "2026-11-01,large,60,5,5,50,10,0",
    ],
    "OpenRouter": [
        "generation_id,created_at,cost_total,tokens_prompt,tokens_completion,model_permaslug,provider_name",
        "gen-1,2026-11-01 02:37:51.271,0.0000000014,70,4,large,Acme",
        "gen-2,2026-11-01 23:59:59.999,0.0000000011,50,6,large,Acme",
    ],
}


@pytest.mark.parametrize("export", EXPORTS)
def test_exports_of_providers_are_read_as_they_are(export: str) -> None:
    # A nano and four tenths and a nano and a tenth are two and a half: rounded once.
    cost_nanos = 2 if export == "OpenRouter" else None
    bill = read_bill(EXPORTS[export], BillColumns(), {})
    assert bill == {(FIRST, "large"): UsedTokens(120, 10, cost_nanos)}


def test_columns_and_models_can_be_named() -> None:
    lines = ["When,What,In,Cached,Out,Dollars", '1793491200,acme/large-2,"1,000",5,7,$0.5', ",,1005,5,7,0.5"]
    columns = BillColumns(("When",), ("What",), ("In", "Cached"), ("Out",), ("Dollars",))
    bill = read_bill(lines, columns, {"acme/large-2": "large"})
    assert bill == {(FIRST, "large"): UsedTokens(1_005, 7, 500_000_000)}


def test_days_are_those_of_utc() -> None:
    lines = ["date,model,input_tokens", "2026-11-01T23:30:00-05:00,large,1", "2026-11-02,large,2"]
    assert read_bill(lines, BillColumns(), {}) == {(SECOND, "large"): UsedTokens(3, None, None)}


@pytest.mark.parametrize(
    ("lines", "columns", "message"),
    [
        (["day,model", "2026-11-01,large"], BillColumns(), "no column of tokens or cost"),
        (["model,input_tokens", "large,1"], BillColumns(), "no column of the day is known: name it by --day-column"),
        (["day,model,input_tokens", "1st,large,1"], BillColumns(), 'line 2: "1st" is no day'),
        (
            ["day,model,input_tokens", "2026-11-01,large,1.5"],
            BillColumns(),
            '"1.5" of input_tokens is no count',
        ),
        (["day,model,cost", "2026-11-01,large,free"], BillColumns(), 'line 2: "free" of cost is no number'),
        (["day,model,cost"], BillColumns(), "no rows"),
        (["day,model,cost"], BillColumns(cost=("Total",)), 'no column "Total"'),
    ],
)
def test_mistake_in_the_file_is_told(lines: list[str], columns: BillColumns, message: str) -> None:
    with pytest.raises(BillMistake, match=message):
        read_bill(lines, columns, {})


def test_largest_difference_is_first_and_what_one_side_lacks_is_listed() -> None:
    bill = {
        (FIRST, "large"): UsedTokens(100, 10, 500),
        (FIRST, "small"): UsedTokens(100, 10, 500),
        (FIRST, "billed"): UsedTokens(1, 1, 90),
    }
    ledger = {
        (FIRST, "large"): UsedTokens(99, 10, 497),
        (FIRST, "small"): UsedTokens(100, 30, None),
        (SECOND, "ours"): UsedTokens(7, 1, 40),
    }
    rows = compare(bill, ledger)
    assert [(row.model_name, row.only_in, row.cost_difference_nanos) for row in rows] == [
        ("billed", "bill", 90), ("ours", "ledger", -40), ("large", None, 3), ("small", None, None),
    ]  # fmt: skip
    assert (rows[2].input_difference, rows[3].output_difference) == (1, -20)


def test_what_a_bill_does_not_tell_is_not_nothing() -> None:
    [row] = compare({(FIRST, "large"): UsedTokens(None, None, 5)}, {(FIRST, "large"): UsedTokens(3, 4, 5)})
    assert (row.input_difference, row.output_difference, row.cost_difference_nanos) == (None, None, 0)
    rows = compare({(FIRST, "large"): UsedTokens(None, None, 5)}, {(SECOND, "large"): UsedTokens(3, 4, 5)})
    assert {row.only_in: (row.theirs.input_tokens, row.theirs.cost_nanos) for row in rows} == {
        "bill": (None, 5), "ledger": (None, 0),
    }  # fmt: skip
