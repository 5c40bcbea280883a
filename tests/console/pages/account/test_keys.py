"""Keys of an account that has very many: pages, search, and reports of them."""

import re

from protos.auth.v1 import auth_pb2
from protos.metering.v1 import metering_pb2
from tests.console.fakes.keys import SECRET
from tests.console.harness import COOKIE, ConsoleHarness
from tests.console.metering import ACCOUNT_ID


def names_on(page: str) -> list[str]:
    return re.findall(r'<a href="/keys/key_\d+">([^<]+)</a>', page)


def path_of(page: str, words: str) -> str:
    [path] = re.findall(rf'href="([^"]+)" rel="\w+">{words}<', page)
    return str(path).replace("&amp;", "&")


def test_many_keys_come_in_pages_that_lead_forwards_and_back(console: ConsoleHarness) -> None:
    console.fakes.add_many_keys(120)
    session = console.fakes.sign_in()
    first = console.get("/keys", session).text
    assert names_on(first) == [f"Service {number:04d}" for number in range(50)]
    assert "Newer keys" not in first
    second = console.get(path_of(first, "Older keys"), session).text
    assert names_on(second)[0] == "Service 0050"
    last = console.get(path_of(second, "Older keys"), session).text
    assert names_on(last) == [f"Service {number:04d}" for number in range(100, 120)]
    assert "Older keys" not in last
    assert names_on(console.get(path_of(last, "Newer keys"), session).text) == names_on(second)


def test_a_page_of_keys_asks_for_the_costs_of_those_that_it_shows(console: ConsoleHarness) -> None:
    console.fakes.add_many_keys(120)
    console.get("/keys", console.fakes.sign_in())
    [asked] = [each for each in console.fakes.requests if isinstance(each, metering_pb2.ListUsageRequest)]
    assert list(asked.key_ids) == [each.key_id for each in console.fakes.keys[:50]]


def test_keys_are_searched_and_the_search_stays_on_the_next_page(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.add_many_keys(120)
    session = console.fakes.sign_in()
    found = console.get("/keys?q=service+01&show=active", session).text
    assert names_on(found) == [f"Service {number:04d}" for number in range(100, 120)]
    assert 'value="service 01"' in found
    page = console.get("/keys?q=service&show=active", session).text
    assert path_of(page, "Older keys").startswith("/keys?q=service&show=active&page=")
    [*_, asked] = [each for each in console.fakes.requests if isinstance(each, auth_pb2.ListKeysRequest)]
    assert (asked.search, asked.only_active, asked.newest_first) == ("service", True, True)
    assert "No key has this in its name" in console.get("/keys?q=nonsense", session).text
    none_in_use = console.get("/keys?q=contractor", session).text
    assert "No key in use has this in its name" in none_in_use
    assert names_on(none_in_use) == ["Contractor"]


def test_few_keys_need_no_search(console: ConsoleHarness) -> None:
    console.fakes.fill()
    text = console.get("/keys", console.fakes.sign_in()).text
    assert 'role="search"' not in text
    assert "Older keys" not in text


def test_what_is_searched_for_is_text_whatever_it_looks_like(console: ConsoleHarness) -> None:
    text = console.get("/keys?q=%22%3E%3Cscript%3E", console.fakes.sign_in()).text
    assert "<script>" not in text.split("<main")[1]
    assert "&#34;&gt;&lt;script&gt;" in text


def test_a_key_is_created_with_what_the_form_says(console: ConsoleHarness) -> None:
    fields = {"name": "Report", "scope": "inference", "allowed": "mezzo", "expires": "30", "form_id": "f1"}
    fields["requests_per_minute"] = "60"
    session = console.fakes.sign_in()
    answer = console.follow(console.post("/keys", fields, session), session)
    assert answer.text.count(SECRET) == 4
    [request] = [request for request in console.fakes.requests if hasattr(request, "expires_after_days")]
    assert (request.account_id, request.name, request.expires_after_days) == (ACCOUNT_ID, "Report", 30)
    assert list(request.scopes) == [auth_pb2.SCOPE_INFERENCE]
    assert request.requests_per_minute == 60
    assert not request.HasField("tokens_per_minute")


def test_the_page_of_a_new_key_loaded_again_shows_it_no_more(console: ConsoleHarness) -> None:
    fields = {"name": "Report", "scope": "inference", "allowed": "mezzo", "expires": "never", "form_id": "f1"}
    session = console.fakes.sign_in()
    made = console.post("/keys", fields, session)
    first = console.follow(made, session, {"Accept-Encoding": "gzip"})
    assert SECRET in first.text
    assert "content-encoding" not in first.headers
    assert first.headers["cache-control"] == "no-store"
    # The page again with the cookie, which the first view removed, and the form again.
    for again in (console.follow(made, session), console.post("/keys", fields, session)):
        assert (again.status, again.headers["location"]) == (303, "/keys/key_0000000000000001")
        assert SECRET not in again.text
        assert any(cookie.startswith("legato-notice=shown-before.0") for cookie in again.cookies)
    assert len(console.fakes.keys) == 1


def test_a_form_with_mistakes_says_which_and_creates_nothing(console: ConsoleHarness) -> None:
    fields = {"name": "x" * 101, "expires": "7", "tokens_per_minute": "many"}
    answer = console.post("/keys", fields, console.fakes.sign_in())
    assert answer.status == 400
    for problem in ("At most 100", "Choose what the key may do", "Choose when", "A whole number"):
        assert problem in answer.text
    assert console.fakes.keys == []


def test_revoking_says_how_long_it_took_until_every_edge_refuses(console: ConsoleHarness) -> None:
    console.fakes.fill()
    session = console.fakes.sign_in()
    answer = console.post("/keys/key_0000000000000001/revoke", session=session)
    assert (answer.status, answer.headers["location"]) == (303, "/keys/key_0000000000000001")
    [notice] = [cookie for cookie in answer.cookies if cookie.startswith("legato-notice=")]
    shown = console.get("/keys/key_0000000000000001", headers={"Cookie": f"{COOKIE}={session}; {notice.split(';')[0]}"})
    assert re.search(r"Every edge refuses the key since \d+\.\d s after you clicked", shown.text)
    assert any(cookie.startswith('legato-notice=""; ') for cookie in shown.cookies)


def test_rotation_shows_old_and_new_side_by_side(console: ConsoleHarness) -> None:
    console.fakes.fill()
    session = console.fakes.sign_in()
    sent = console.post("/keys/key_0000000000000003/rotate", {"expires": "90", "form_id": "f"}, session)
    made = console.follow(sent, session)
    assert SECRET in made.text
    page = console.get("/keys/key_0000000000000003", session)
    assert "Rotation under way" in page.text
    assert "has not been used for 119 days" in page.text
    assert "key_0000000000000006" in page.text
