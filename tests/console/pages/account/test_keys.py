"""Keys of an account that has very many: pages, search, and reports of them."""

import csv
import io
import re

from protos.auth.v1 import users_pb2 as pb
from protos.metering.v1 import metering_pb2
from tests.console.harness import ConsoleHarness


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
    assert list(asked.key_ids) == [each.key.key_id for each in console.fakes.keys[:50]]


def test_keys_are_searched_and_the_search_stays_on_the_next_page(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.add_many_keys(120)
    session = console.fakes.sign_in()
    found = console.get("/keys?q=service+01&show=active", session).text
    assert names_on(found) == [f"Service {number:04d}" for number in range(100, 120)]
    assert 'value="service 01"' in found
    page = console.get("/keys?q=service&show=active", session).text
    assert path_of(page, "Older keys").startswith("/keys?q=service&show=active&page=")
    [*_, asked] = [each for each in console.fakes.requests if isinstance(each, pb.AccountServiceListKeysRequest)]
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


def test_usage_by_key_has_the_most_expensive_ones_and_one_row_for_all_others(console: ConsoleHarness) -> None:
    console.fakes.add_many_keys(150)
    text = console.get("/usage?by=key", console.fakes.sign_in()).text
    table = text[text.index("Usage by key") :]
    table = table[: table.index("</table>")]
    # The cost of each is higher than that of the one before.
    listed = re.findall(r'<th scope="row">([^<]+)</th>', table)
    assert listed == [*(f"Service {number:04d}" for number in reversed(range(100, 150))), "100 other keys", "Total"]
    assert "The keys with the highest costs are listed" in text
    legend = re.findall(r"</span>([^<]+) <strong>", text)
    assert legend == [*(f"Service {number:04d}" for number in (149, 148, 147, 146)), "Others"]
    [total] = re.findall(r"Exactly \$([0-9.]+)", text)
    assert total == f"{sum(row.cost_nanos for row in console.fakes.rows) / 1e9:.9f}".rstrip("0")


def test_usage_by_member_tells_whose_the_most_expensive_keys_are(console: ConsoleHarness) -> None:
    console.fakes.add_many_keys(250)
    text = console.get("/usage?by=member", console.fakes.sign_in()).text
    assert "150 other keys" in text
    assert "it is told whose they are" in text
    assert re.findall(r"</span>([^<]+) <strong>", text) == ["All keys"]


def test_keys_of_the_same_name_are_told_apart(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.keys[1].key.name = "Nightly report"
    text = console.get("/usage?by=key", console.fakes.sign_in()).text
    assert "Nightly report · 0001" in text
    assert "Nightly report · 0002" in text


def test_a_file_names_every_key_however_many_there_are(console: ConsoleHarness) -> None:
    console.fakes.add_many_keys(1_200)
    answer = console.get("/usage.csv", console.fakes.sign_in())
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["key_name"] for row in rows] == [f"Service {number:04d}" for number in range(1_200)]
    assert {row["created_by"] for row in rows} == {"Ada Lovelace"}


def test_classes_are_listed_by_their_costs(console: ConsoleHarness) -> None:
    console.fakes.fill()
    text = console.get("/usage", console.fakes.sign_in()).text
    table = text[text.index("Usage by class") :]
    listed = re.findall(r'<th scope="row">([^<]+)</th>', table[: table.index("</table>")])
    assert listed == ["mezzo", "forte", "fortissimo", "Total"]
