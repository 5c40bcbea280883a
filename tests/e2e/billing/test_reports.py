"""Reports of the operator, from the calls to models on: which provider answered, what it said, and what it costs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.connection import call_service
from legato_protos.auth.v1.auth_pb2 import UpdateAccountRequest
from tests.e2e.raw_http import OpenChat, post_chat
from tests.support.outside.searx import SearxThread, page
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.openai import Reply, Upstream

pytestmark = pytest.mark.sqlite_suffices

# A class costs 100 nanos a token of prompt, and 210 a token of output; the second provider charges more than that.
ROUTES = """
[providers.acme]
kind = "openai"
base_url = "{base_url}"
zero_retention = true
[providers.blau]
kind = "openai"
base_url = "SECOND"
zero_retention = true
[models.large]
provider = "acme"
name = "large"
context_tokens = 100000
max_output_tokens = 3000
cost = {{ input = "0.05", output = "0.10", cached_input = "0.01" }}
[models.dear]
provider = "blau"
name = "dear"
context_tokens = 100000
max_output_tokens = 3000
continues = "prefix"
cost = {{ input = "9", output = "9" }}
[models.free]
provider = "blau"
name = "free"
context_tokens = 100000
max_output_tokens = 3000
[classes]
mezzo = {{ models = ["large", "dear"] }}
forte = {{ models = ["free"] }}
fortissimo = {{ models = ["free"] }}
"""
USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 600}}


class Providers:
    def __init__(self, service: Service, first: Upstream, second: Upstream) -> None:
        self.service, self.first, self.second = service, first, second
        # Answers of the second account's chats may search, and are therefore not continued.
        self.account, self.searching = service.new_account(), service.new_account()
        off = UpdateAccountRequest(account_id=self.account, search=False)
        call_service(service.services.accounts.UpdateAccount, off)
        self._keys = {each: service.new_key(each) for each in (self.account, self.searching)}

    def chat(self, account: str = "", model: str = "mezzo") -> None:
        messages = [{"role": "user", "content": "Hello"}]
        body = {"model": model, "messages": messages, "stream": True}
        answer = post_chat(self.service, self._keys[account or self.account], body)
        assert answer.status == 200, answer.body

    def leave(self) -> None:
        """Reads the first piece of an answer, and no more."""
        body = {"model": "mezzo", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
        chat = OpenChat(self.service, self._keys[self.account], body)
        chat.read_until(b"Hello")
        chat.leave()

    def rows(self) -> dict[str, dict[str, Any]]:
        """The report by provider and model, once nothing is held."""
        for account in self._keys:
            self.service.settled_balance_nanos(account)
        told = self.service.legato("report", "--by", "provider,model")
        return {f"{row['provider']} {row['model']}": row for row in told["rows"]}

    def report(self) -> dict[str, Any]:
        told: dict[str, Any] = self.service.legato("report", "--by", "day,account")
        return told


@pytest.fixture
def providers(request: pytest.FixtureRequest, database_kind: str) -> Iterator[Providers]:
    with UpstreamThread() as first, UpstreamThread() as second, SearxThread() as searx:
        searx.results = [page(1)]
        environ = {"LEGATO_SEARCH_URL": searx.base_url}
        if database_kind == "postgresql":
            environ["LEGATO_DATABASE_URL"] = request.getfixturevalue("postgres_url")
        routes = ROUTES.replace("SECOND", second.base_url)
        with Service(first, environ, routes=routes) as service:
            yield Providers(service, first, second)


def test_each_call_is_of_its_provider_and_each_charge_of_the_one_that_answered(
    providers: Providers, tmp_path: Path
) -> None:
    first, second = providers.first, providers.second
    # Answered by the first; then by the second, since the first fails; then cut, and continued by the second.
    first.replies.append(Reply(usage=USAGE))
    providers.chat()
    first.replies.append(Reply(status=500, body="{}"))
    second.replies.append(Reply(usage=USAGE))
    providers.chat()
    rows = providers.rows()
    # 400 tokens for 50 nanos, 600 for 10 and 100 for 100; of the second 9,000 each.
    assert (rows["acme large"]["cost_nanos"], rows["blau dear"]["cost_nanos"]) == (36_000, 9_900_000)
    assert rows["acme large"]["told_cached_tokens"] == 600
    charged = {name: row["revenue_nanos"] for name, row in rows.items() if name != "None None"}
    assert charged["acme large"] == charged["blau dear"] > 0
    # Sold below what it costs.
    assert rows["acme large"]["margin_nanos"] > 0 > rows["blau dear"]["margin_nanos"]

    first.replies.append(Reply(contents=["The", " rain"], cut_after=3))
    second.replies.append(Reply(contents=[" falls."], usage={"prompt_tokens": 50, "completion_tokens": 4}))
    providers.chat()
    continued = providers.rows()
    assert continued["acme large"]["requests"] == 1
    assert (continued["acme large"]["calls"], continued["blau dear"]["calls"]) == (2, 2)
    assert continued["acme large"]["cost_nanos"] > 36_000
    assert continued["blau dear"]["cost_nanos"] == 9_900_000 + 54 * 9_000
    assert continued["blau dear"]["requests"] == 2

    # A search takes two calls. What nobody states a price for is unknown, and not free.
    call = {"index": 0, "id": "c1", "function": {"name": "search_web", "arguments": json.dumps({"query": "rain"})}}
    second.replies.append(
        Reply(contents=[], tool_calls=[call], message_tool_calls=[call], finish_reason="tool_calls", usage=USAGE)
    )
    second.replies.append(Reply(contents=["It rains."], usage=USAGE))
    providers.chat(providers.searching, "forte")
    searched = providers.rows()["blau free"]
    assert (searched["requests"], searched["calls"], searched["uncosted_calls"]) == (1, 2, 2)
    assert (searched["cost_nanos"], searched["margin_nanos"], searched["told_prompt_tokens"]) == (None, None, 2_000)
    assert searched["uncosted_nanos"] == searched["revenue_nanos"] > 0

    # Of an answer that did not finish, the cost is that of what was delivered.
    first.replies.append(Reply(contents=["Hello", " there"], stall_after=2))
    providers.leave()
    left = providers.rows()["acme large"]
    assert (left["requests"], left["calls"]) == (2, 3)
    assert left["cost_nanos"] > continued["acme large"]["cost_nanos"]

    # The whole report is what the ledger says.
    service, account = providers.service, providers.account
    service.legato("credits", "adjust", account, "-0.25", "--reason", "Refund")
    entries, total = service.entries(account) + service.entries(providers.searching), providers.report()["total"]
    assert total["revenue_nanos"] == -sum(entry.customer_nanos for entry in entries)
    assert total["adjusted_nanos"] == -250_000_000
    assert total["requests"] == len(entries) == 5
    assert service.audit() == []

    bill = tmp_path / "bill.csv"
    [day] = {row["day"] for row in providers.report()["rows"]}
    bill.write_text(f"date,model,input_tokens,output_tokens\n{day},dear,1050,104\n{day},gone,1,1\n")
    compared = service.legato("report", "bill", str(bill), "--provider", "blau")
    by_model = {row["model"]: row for row in compared}
    assert (by_model["dear"]["input_difference"], by_model["dear"]["output_difference"]) == (0, 0)
    assert (by_model["gone"]["only_in"], by_model["free"]["only_in"]) == ("bill", "ledger")
    assert by_model["free"]["our_input"] == 2_000
