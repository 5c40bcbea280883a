"""Whose a key is."""

from console.routes import PAGES
from protos.auth.v1 import auth_pb2
from tests.console.harness import ConsoleHarness

FOR_OPERATORS = [page for page in PAGES if page.needs_operator]


ACCOUNT = "/operator/accounts/acct_0000000000000001"


def test_a_key_leads_to_its_owner_and_is_revoked(console: ConsoleHarness, session: str) -> None:
    found = console.post("/operator/keys", {"key_id": "key_0000000000000001"}, session)
    assert found.headers["location"] == "/operator/keys/key_0000000000000001"
    page = console.get(found.headers["location"], session)
    assert ACCOUNT in page.text
    assert "Charles Babbage" in page.text
    assert console.post("/operator/keys/key_0000000000000001/revoke", session=session).status == 303
    assert console.fakes.operator.keys["key_0000000000000001"].state == auth_pb2.KEY_STATE_REVOKED


def test_a_whole_key_is_never_sent_on(console: ConsoleHarness, session: str) -> None:
    whole = "sk-legato-0123456789abcdefZYXWVUTSRQPONMLKJIHGFEDCBA9876543checks"
    answer = console.post("/operator/keys", {"key_id": whole}, session)
    assert answer.status == 400
    assert "KeyAdminService.GetKey" not in console.fakes.calls
    assert whole not in answer.text


def test_a_key_that_never_was_ours_is_told_so(console: ConsoleHarness, session: str) -> None:
    answer = console.post("/operator/keys", {"key_id": "key_zzzzzzzzzzzzzzzz"}, session)
    assert answer.status == 404
    assert "never one of this service" in answer.text
