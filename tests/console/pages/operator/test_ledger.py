"""The audit of the ledger."""

from console.routes import PAGES
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness

FOR_OPERATORS = [page for page in PAGES if page.needs_operator]


def test_the_ledger_is_audited_on_demand(console: ConsoleHarness, session: str) -> None:
    assert "Consistent" in console.get("/operator/ledger", session).text
    assert "The ledger is consistent" in console.post("/operator/ledger/audit", session=session).text
    console.metering.falsify_balance(5)
    answer = console.post("/operator/ledger/audit", session=session)
    assert "One violation" in answer.text
    assert "balance is +5 nanos off" in answer.text
    console.backends.fail = {"CreditAdminService.Audit": not_answering()}
    assert "takes longer than this page waits" in console.post("/operator/ledger/audit", session=session).text
