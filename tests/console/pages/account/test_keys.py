"""Keys of an account that has very many: pages, search, and reports of them."""

import re

from legato_protos.metering.v1 import metering_pb2
from services.auth.records.accounts import ClassAllowance, KeyLimits
from services.auth.records.keys import Scope
from services.auth.records.times import DAY_US
from services.chassis.access_tokens import AccountRole
from tests.console.auth import KEY_PATTERN, only_match
from tests.console.clock import NOW_US
from tests.console.harness import COOKIE, ConsoleHarness


def names_on(page: str) -> list[str]:
    return re.findall(r'<a href="/keys/key_\d+">([^<]+)</a>', page)


def path_of(page: str, words: str) -> str:
    [path] = re.findall(rf'href="([^"]+)" rel="\w+">{words}<', page)
    return str(path).replace("&amp;", "&")


def test_many_keys_come_in_pages_that_lead_forwards_and_back(console: ConsoleHarness) -> None:
    console.backends.add_many_keys(120)
    session = console.auth.sign_in()
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
    console.backends.add_many_keys(120)
    console.get("/keys", console.auth.sign_in())
    [asked] = [each for each in console.backends.requests if isinstance(each, metering_pb2.ListUsageRequest)]
    assert list(asked.key_ids) == [each.key_id for each in console.auth.list_keys()[:50]]


def test_keys_are_searched_and_the_search_stays_on_the_next_page(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.backends.add_many_keys(120)
    session = console.auth.sign_in()
    found = console.get("/keys?q=service+01&show=active", session).text
    assert names_on(found) == [f"Service {number:04d}" for number in range(100, 120)]
    assert 'value="service 01"' in found
    page = console.get("/keys?q=service&show=active", session).text
    assert path_of(page, "Older keys").startswith("/keys?q=service&show=active&page=")
    assert "No key has this in its name" in console.get("/keys?q=nonsense", session).text
    none_in_use = console.get("/keys?q=contractor", session).text
    assert "No key in use has this in its name" in none_in_use
    assert names_on(none_in_use) == ["Contractor"]


def test_few_keys_need_no_search(console: ConsoleHarness) -> None:
    console.backends.fill()
    text = console.get("/keys", console.auth.sign_in()).text
    assert 'role="search"' not in text
    assert "Older keys" not in text


def test_what_is_searched_for_is_text_whatever_it_looks_like(console: ConsoleHarness) -> None:
    text = console.get("/keys?q=%22%3E%3Cscript%3E", console.auth.sign_in()).text
    assert "<script>" not in text.split("<main")[1]
    assert "&#34;&gt;&lt;script&gt;" in text


def test_a_key_is_created_with_what_the_form_says(console: ConsoleHarness) -> None:
    fields = {"name": "Report", "scope": "inference", "allowed": "mezzo", "expires": "30", "form_id": "f1"}
    fields["requests_per_minute"] = "60"
    session = console.auth.sign_in()
    answer = console.follow(console.post("/keys", fields, session), session)
    assert len(KEY_PATTERN.findall(answer.text)) == 4
    [key] = console.auth.list_keys()
    assert (key.name, key.scopes, key.expires_at_us) == ("Report", (Scope.INFERENCE,), NOW_US + 30 * DAY_US)
    assert key.limits == KeyLimits(requests_per_minute=60)
    assert key.allowed_classes == ClassAllowance(("mezzo",))
    assert f"sk-legato-{key.key_id.removeprefix('key_')}" in only_match(KEY_PATTERN, answer.text)


def test_the_page_of_a_new_key_loaded_again_shows_it_no_more(console: ConsoleHarness) -> None:
    fields = {"name": "Report", "scope": "inference", "allowed": "mezzo", "expires": "never", "form_id": "f1"}
    session = console.auth.sign_in()
    made = console.post("/keys", fields, session)
    first = console.follow(made, session, {"Accept-Encoding": "gzip"})
    secret = only_match(KEY_PATTERN, first.text)
    [key] = console.auth.list_keys()
    assert "content-encoding" not in first.headers
    assert first.headers["cache-control"] == "no-store"
    # The page again with the cookie, which the first view removed, and the form again.
    for again in (console.follow(made, session), console.post("/keys", fields, session)):
        assert (again.status, again.headers["location"]) == (303, f"/keys/{key.key_id}")
        assert secret not in again.text
        assert any(cookie.startswith("legato-notice=shown-before.0") for cookie in again.cookies)
    assert console.auth.list_keys() == [key]


def test_a_form_with_mistakes_says_which_and_creates_nothing(console: ConsoleHarness) -> None:
    fields = {"name": "x" * 101, "expires": "7", "tokens_per_minute": "many"}
    answer = console.post("/keys", fields, console.auth.sign_in())
    assert answer.status == 400
    for problem in ("At most 100", "Choose what the key may do", "Choose when", "A whole number"):
        assert problem in answer.text
    assert console.auth.list_keys() == []


def test_revoking_says_how_long_it_took_until_every_edge_refuses(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    answer = console.post("/keys/key_0000000000000001/revoke", session=session)
    assert (answer.status, answer.headers["location"]) == (303, "/keys/key_0000000000000001")
    [notice] = [cookie for cookie in answer.cookies if cookie.startswith("legato-notice=")]
    shown = console.get("/keys/key_0000000000000001", headers={"Cookie": f"{COOKIE}={session}; {notice.split(';')[0]}"})
    assert re.search(r"Every edge refuses the key since \d+\.\d s after you clicked", shown.text)
    assert any(cookie.startswith('legato-notice=""; ') for cookie in shown.cookies)


def test_rotation_shows_old_and_new_side_by_side(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    sent = console.post("/keys/key_0000000000000003/rotate", {"expires": "90", "form_id": "f"}, session)
    made = console.follow(sent, session)
    assert KEY_PATTERN.search(made.text)
    assert console.auth.list_keys()[-1].replaces_key_id == "key_0000000000000003"
    page = console.get("/keys/key_0000000000000003", session)
    assert "Rotation under way" in page.text
    assert "has not been used for 119 days" in page.text
    assert console.auth.list_keys()[-1].key_id in page.text


def test_viewers_open_the_page_of_a_key_and_change_nothing(console: ConsoleHarness) -> None:
    console.auth.set_role(AccountRole.VIEWER)
    console.backends.fill()
    session = console.auth.sign_in()
    page = console.get("/keys/key_0000000000000001", session)
    assert page.status == 200
    assert "Revoke this key" not in page.text
    assert console.post("/keys/key_0000000000000001/revoke", session=session).status == 403


def test_an_internal_program_is_among_the_keys_as_what_it_is_and_cannot_be_changed(console: ConsoleHarness) -> None:
    caller = console.auth.add_key("billing-bot", caller_name="billing-bot", pepper_version=0, created_by="")
    console.backends.metering.add_charges([caller.key_id])
    session = console.auth.sign_in()
    listed = console.get("/keys", session).text
    assert names_on(listed) == ["billing-bot"]
    assert "Internal program" in listed
    assert "Operator" in listed
    page = console.get(f"/keys/{caller.key_id}", session).text
    assert "About this program" in page
    assert f"/keys/{caller.key_id}/spend-limits" in page
    assert "Change it" not in page
    assert console.post(f"/keys/{caller.key_id}/revoke", {}, session).status == 403
    assert console.auth.key(caller.key_id).revoked_at_us is None
    by_key = console.get("/usage?by=key", session).text
    assert "billing-bot" in by_key
