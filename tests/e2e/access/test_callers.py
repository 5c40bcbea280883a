"""Programs that call for accounts without a key, on the whole service."""

import openai
import pytest

from legato_protos.client import LegatoClient, LimitError, PermissionDeniedError, Reason
from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import ask
from tests.support.rpc_chats import socket_of
from tests.support.service import Service, wait_for_requests
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until


def program(service: Service, name: str, account: str) -> LegatoClient:
    return LegatoClient(socket_of(service.data), account_id=account, caller=name)


def test_usage_of_a_program_is_told_beside_that_of_keys_and_all_of_it_was_charged(
    service: Service, upstream: Upstream, client: openai.OpenAI, account: str, api_key: str
) -> None:
    service.legato("callers", "grant", "reports", "--account", account)
    service.legato("callers", "grant", "gateway", "--all-accounts")
    for name in ("reports", "gateway", "gateway"):
        with program(service, name, account) as caller:
            caller.complete("How is the weather in Paris?", model="mezzo")
    client.chat.completions.create(model="mezzo", messages=QUESTION)
    spent_nanos = 5 * 10**9 - service.settled_balance_nanos(account)
    page = ask(service, "GET", "/v1/usage?group_by=caller&bucket_width=1d", api_key).json
    results = [result for bucket in page["data"] for result in bucket["results"]]
    by_caller = {None: 1, "reports": 1, "gateway": 2}
    assert {result["caller"]: result["requests"] for result in results} == by_caller
    assert sum(result["cost_nanos"] for result in results) == spent_nanos
    rows = service.legato("usage", "--account", account, "--by", "day", "--group", "caller")
    assert {row["caller"]: row["requests"] for row in rows} == by_caller
    assert sum(row["cost_nanos"] for row in rows) == spent_nanos
    assert {row["name"] for row in service.legato("keys", "list", "--account", account)} == {"test"}


def test_a_program_is_refused_when_its_revocation_returns_and_its_answer_ends_and_is_charged(
    service: Service, upstream: Upstream, account: str
) -> None:
    service.legato("callers", "grant", "reports", "--account", account)
    upstream.replies.append(Reply(contents=[" rain"], repeat=100_000, event_delay_s=0.02))
    with program(service, "reports", account) as caller, caller.stream("Rain?", model="mezzo") as answer:
        next(answer)
        request = wait_for_requests(upstream)
        wait_until(lambda: request.writes >= 5)
        service.legato("callers", "revoke", "reports")
        with pytest.raises(PermissionDeniedError) as refused:
            caller.complete("Rain?", model="mezzo")
        with pytest.raises(PermissionDeniedError) as ended:
            answer.response()
    assert [each.value.reason for each in (refused, ended)] == [Reason.CALLER_NOT_GRANTED] * 2
    assert service.settled_balance_nanos(account) < 5 * 10**9
    [entry] = service.entries(account)
    assert entry.end == "key_refused"
    assert entry.completion_tokens > 0


def test_limits_of_a_grant_are_counted_for_each_account(service: Service, upstream: Upstream, account: str) -> None:
    other = service.new_account()
    service.legato("callers", "grant", "slow", "--all-accounts", "--requests-per-minute", "1")
    for name in (account, other):
        with program(service, "slow", name) as caller:
            caller.complete("Rain?", model="mezzo")
            with pytest.raises(LimitError) as limited:
                caller.complete("Rain?", model="mezzo")
        assert limited.value.reason is Reason.RATE_LIMITED
