"""Names of keys in reports."""

import csv
import io

from protos.metering.v1.statements_pb2 import ListRequestsRequest
from protos.type.v1 import access_token_pb2
from tests.console.fakes.services import not_answering
from tests.console.harness import ConsoleHarness


def test_members_see_their_own_keys_first_and_all_if_they_ask(console: ConsoleHarness) -> None:
    console.fakes.role = access_token_pb2.ACCOUNT_ROLE_MEMBER
    console.fakes.fill()
    session = console.fakes.sign_in()
    own = console.get("/usage?by=key", session).text
    body = own[own.index("Usage by key") :]
    assert "Nightly report" in body
    assert "Website chat" not in body
    assert "Website chat" in (console.get("/usage?by=key&keys=all", session).text[own.index("Usage by key") :])
    console.get("/requests", session)
    asked = [request for request in console.fakes.requests if isinstance(request, ListRequestsRequest)]
    assert list(asked[-1].key_ids) == [each.key_id for each in console.fakes.keys if each.created_by == "user_1"]
    console.get("/requests?keys=all", session)
    asked = [request for request in console.fakes.requests if isinstance(request, ListRequestsRequest)]
    assert list(asked[-1].key_ids) == []


def test_revoked_keys_stay_in_reports_by_their_names(console: ConsoleHarness) -> None:
    console.fakes.fill()
    session = console.fakes.sign_in()
    for path in ("/requests", "/credit/entries"):
        assert "Contractor" in console.get(path, session).text
    assert "Contractor · Revoked" in console.get("/usage", session).text


def test_reports_have_ids_while_names_are_not_known(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.fail = {"KeyAdminService.ListKeys": not_answering()}
    text = console.get("/usage?by=key", console.fakes.sign_in()).text
    assert "keys have no names" in text
    assert "key_0000000000000001" in text


def test_a_file_names_every_key_however_many_there_are(console: ConsoleHarness) -> None:
    console.fakes.add_many_keys(1_200)
    answer = console.get("/usage.csv", console.fakes.sign_in())
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["key_name"] for row in rows] == [f"Service {number:04d}" for number in range(1_200)]
    assert {row["created_by"] for row in rows} == {"Ada Lovelace"}
