"""Requests, and one receipt."""

import re
from urllib.parse import quote

from services.rules.usage import Usage
from tests.console.harness import ConsoleHarness
from tests.console.metering import before_us, charge_of, request_id, settled


def test_a_receipt_that_does_not_agree_says_so(console: ConsoleHarness) -> None:
    console.backends.fill()
    wrong = "UPDATE holds SET charged_nanos = charged_nanos + 1 WHERE request_id = :request_id"
    console.metering.change(wrong, request_id=request_id(7))
    text = console.get(f"/requests/{request_id(7)}", console.auth.sign_in()).text
    assert "Please tell the operator" in text
    assert "agrees with the ledger" not in text


def test_the_amounts_of_a_receipt_have_the_same_number_of_decimals(console: ConsoleHarness) -> None:
    console.backends.fill()
    text = console.get(f"/requests/{request_id(5)}", console.auth.sign_in()).text
    [computation] = re.findall(r"<table.*</table>", text, re.DOTALL)
    cells = re.findall(r'<td class="number">.*?([\d.]+)(?:</strong>)?</td>', computation)
    assert len(cells) == 6
    assert len({len(amount.partition(".")[2]) for amount in cells}) == 1
    prices = re.findall(r"\N{MULTIPLICATION SIGN} \$([\d.]+)</td>", computation)
    assert len({len(price.partition(".")[2]) for price in prices}) == 1


def test_parts_of_a_count_that_have_no_price_of_their_own_stand_below_it(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    usage = Usage(20, cached_tokens=8, completion_tokens=5, cache_write_tokens=7, reasoning_tokens=3)
    hold = settled(1, usage, before_us(hours=30), "key_0000000000000001")
    console.metering.write([charge_of(hold)], [hold])
    for page in (f"/requests/{request_id(1)}", "/requests"):
        text = console.get(page, session).text
        assert ">7 written to a cache<" in text
        assert ">3 reasoning<" in text
    text = console.get("/usage", session).text.replace("\N{NO-BREAK SPACE}", " ")
    assert "7 of them written to a cache (35 %)" in text
    assert "3 of them reasoning (60 %)" in text


def test_a_request_is_found_by_the_ids_that_clients_have(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    for given in (request_id(7), f"chatcmpl-{request_id(7)}", f" {request_id(7).upper()} "):
        answer = console.get(f"/requests?id={quote(given)}", session)
        assert answer.headers["location"] == f"/requests/{request_id(7)}"
    assert console.get("/requests?id=nonsense", session).status == 404
    unknown = console.get(f"/requests/{request_id(7)}", session)
    assert unknown.status == 404
    assert "No such request" in unknown.text


def test_days_that_are_given_in_the_other_order_are_put_right_and_it_is_said(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    for path in ("/requests", "/credit/entries", "/settings/audit-log"):
        text = console.get(f"{path}?from=2026-10-20&to=2026-10-02", session).text
        assert "The first day was after the last: 2\N{EN DASH}20 October 2026 is shown." in text, path
        assert "The first day was after" not in console.get(f"{path}?from=2026-10-02&to=2026-10-20", session).text
