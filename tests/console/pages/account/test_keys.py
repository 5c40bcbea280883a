"""Keys of an account that has very many: pages, search, and reports of them."""

import re
from decimal import Decimal

from legato_protos.metering.v1 import metering_pb2
from services.chassis.access_tokens import AccountRole
from tests.console.auth_rows import USER_ID
from tests.console.harness import ConsoleHarness


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


def test_the_costs_of_keys_have_the_same_number_of_decimals(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.backends.add_many_keys(2)
    page = console.get("/keys", console.auth.sign_in()).text
    costs = re.findall(r"<data[^>]*>\$([\d.]+)</data>", page)
    assert len(costs) > 5
    assert {len(cost.partition(".")[2]) for cost in costs} == {5}


def test_keys_are_searched_and_the_search_stays_on_the_next_page(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.backends.add_many_keys(120)
    session = console.auth.sign_in()
    found = console.get("/keys?q=service+01&show=active", session).text
    assert names_on(found) == [f"Service {number:04d}" for number in range(100, 120)]
    assert 'value="service 01"' in found
    page = console.get("/keys?q=service&show=active", session).text
    assert path_of(page, "Older keys").startswith("/keys?q=service&show=active&page=")
    assert "No key has this in its name, or at the beginning of its ID" in console.get("/keys?q=nonsense", session).text
    none_in_use = console.get("/keys?q=contractor", session).text
    assert "No key in use has this in its name, or at the beginning of its ID" in none_in_use
    assert names_on(none_in_use) == ["Contractor"]


def test_few_keys_need_no_search(console: ConsoleHarness) -> None:
    console.backends.fill()
    text = console.get("/keys", console.auth.sign_in()).text
    assert 'role="search"' not in text
    assert "Older keys" not in text
    console.backends.add_many_keys(5)
    assert 'role="search"' in console.get("/keys", console.auth.sign_in()).text


def test_unused_keys_are_found_beside_what_else_is_chosen(console: ConsoleHarness) -> None:
    console.backends.fill()
    # One of another member, that nothing has used yet.
    console.auth.add_key("Website chat")
    session = console.auth.sign_in()
    for query, names in (
        ("unused=0", ["Website chat", "Trial"]),
        ("unused=30", ["Old laptop", "Trial"]),
        ("unused=90&show=active", ["Old laptop"]),
        ("unused=0&q=site", ["Website chat"]),
        # What is no choice counts as not given.
        ("unused=7&show=active", ["Nightly report", "Website chat", "Website chat", "Old laptop"]),
    ):
        assert names_on(console.get(f"/keys?{query}", session).text) == names, query
    assert "No key fits what you chose" in console.get("/keys?unused=30&q=website", session).text
    console.backends.add_many_keys(60)
    console.auth.change_keys(last_used_hour_us=None)
    page = console.get("/keys?unused=0", session).text
    assert path_of(page, "Older keys").startswith("/keys?unused=0&page=")


def test_what_is_searched_for_is_text_whatever_it_looks_like(console: ConsoleHarness) -> None:
    text = console.get("/keys?q=%22%3E%3Cscript%3E", console.auth.sign_in()).text
    assert "<script>" not in text.split("<main")[1]
    assert "&#34;&gt;&lt;script&gt;" in text


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


def test_the_page_of_a_key_shows_everything_about_it(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.auth.change_key("key_0000000000000002", name="Website chat (2)", replaces_key_id="key_0000000000000004")
    session = console.auth.sign_in()
    page = console.get("/keys/key_0000000000000001", session).text
    for shown in (
        "key_0000000000000001", "Ada Lovelace", "Everything", "mezzo, forte and fortissimo",
        "Whatever the account may use",
        "60", "Set on this key", "200,000", "The account&#39;s limit", "Unlimited", "The service&#39;s default",
        "23 % spent", "$1.40 a day and $5.20 a month", "/requests?keys=key_0000000000000001",
    ):  # fmt: skip
        assert shown in page, shown
    assert "changed the spend limit of the key" in page.split("What was done with it", 1)[1]
    other = console.get("/keys/key_0000000000000002", session).text
    assert "3,000" in other
    assert "Replaces" in other
    assert "Contractor" in other
    assert "Replaced by" in console.get("/keys/key_0000000000000004", session).text
    assert "What was done with it" not in other


def test_usage_by_class_on_the_page_of_a_key_adds_up_to_its_cost_in_the_list(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    [listed] = re.findall(
        r'value="([\d.]+)">[^<]+</data>\s*<a class="second-line" href="/keys/key_0{15}1/',
        console.get("/keys", session).text,
    )
    page = console.get("/keys/key_0000000000000001", session).text
    figures = page[page.index("<tbody>") : page.index("</table>")]
    *classes, total = map(Decimal, re.findall(r'<data value="([\d.]+)">', figures))
    assert len(classes) > 1
    assert sum(classes) == total == Decimal(listed)


def test_the_page_of_a_playground_says_what_is_counted_there(console: ConsoleHarness) -> None:
    console.backends.fill()
    key = console.auth.add_key("Playground", playground_user_id=USER_ID, pepper_version=0)
    session = console.auth.sign_in()
    page = console.get(f"/keys/{key.key_id}", session).text
    assert "About this playground" in page
    assert "Change it" not in page
    assert "Change them" in page


def test_members_see_what_they_did_with_a_key_and_not_what_others_did(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    console.post("/keys/key_0000000000000003/name", {"name": "Older laptop"}, session)
    console.auth.set_role(AccountRole.MEMBER)
    assert "renamed the key" in console.get("/keys/key_0000000000000003", session).text
    assert "What was done with it" not in console.get("/keys/key_0000000000000002", session).text
