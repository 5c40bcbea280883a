"""The client that programs install, against the whole service."""

import asyncio
import functools
from collections.abc import Iterator

import pytest

from legato_protos.chat.v1.chat_pb2 import (
    REQUEST_END_CLIENT_GONE,
    REQUEST_STATE_RUNNING,
    REQUEST_STATE_SETTLED,
    REQUEST_STATE_VOID,
    GetRequestResponse,
)
from legato_protos.client import (
    AsyncLegatoClient,
    DeadlineError,
    LegatoClient,
    LegatoError,
    Reason,
    RepeatedRequestError,
)
from tests.support.rpc_chats import socket_of
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import WAIT_TIMEOUT_S, wait_until


@pytest.fixture
def client(service: Service, upstream: Upstream, api_key: str) -> Iterator[LegatoClient]:
    with LegatoClient(socket_of(service.data), api_key=api_key) as client:
        yield client


def test_a_chat_that_is_sent_twice_is_served_and_charged_once(
    client: LegatoClient, service: Service, account: str
) -> None:
    before_nanos = service.settled_balance_nanos(account)
    stream = client.stream("Say hello.", model="mezzo", idempotency_key="order-17")
    answer = stream.response()
    with pytest.raises(RepeatedRequestError) as refused:
        client.stream("Say hello.", model="mezzo", idempotency_key="order-17").response()
    assert refused.value.original_request_id == answer.request_id
    assert refused.value.request_id != answer.request_id
    assert before_nanos - service.settled_balance_nanos(account) == answer.usage.cost_nanos > 0
    first = client.get_request(answer.request_id)
    assert (first.state, first.usage) == (REQUEST_STATE_SETTLED, answer.usage)


def test_a_chat_whose_model_fails_is_repeated_and_charged_once(
    client: LegatoClient, service: Service, upstream: Upstream, account: str
) -> None:
    before_nanos = service.settled_balance_nanos(account)
    # The router has asked its only model twice.
    upstream.replies += [Reply(status=500, body='{"error":"out of order"}')] * 2
    answer = client.complete("Say hello.", model="mezzo")
    assert answer.message.text == "Hello, world!"
    assert len(upstream.requests) == 3
    assert before_nanos - service.settled_balance_nanos(account) == answer.usage.cost_nanos > 0


def test_a_chat_that_took_too_long_can_be_looked_up(
    client: LegatoClient, service: Service, upstream: Upstream, api_key: str
) -> None:
    async def ask_async() -> None:
        async with AsyncLegatoClient(socket_of(service.data), api_key=api_key) as async_client:
            await async_client.complete("Say hello.", model="mezzo", timeout_s=0.5)

    def receipt_once_settled(request_id: str | None) -> GetRequestResponse | None:
        assert request_id
        receipt = client.get_request(request_id)
        return None if receipt.state == REQUEST_STATE_RUNNING else receipt

    for ask in (
        lambda: client.complete("Say hello.", model="mezzo", timeout_s=0.5),
        lambda: client.stream("Say hello.", model="mezzo", timeout_s=0.5).response(),
        lambda: asyncio.run(ask_async()),
    ):
        upstream.replies.append(Reply(delay_s=WAIT_TIMEOUT_S))
        with pytest.raises(DeadlineError) as raised:
            ask()
        receipt = wait_until(functools.partial(receipt_once_settled, raised.value.request_id))
        assert receipt is not None
        assert (receipt.state, receipt.end) == (REQUEST_STATE_VOID, REQUEST_END_CLIENT_GONE)


def test_prompt_is_counted_as_it_is_charged_and_for_nothing(
    client: LegatoClient, service: Service, upstream: Upstream, account: str
) -> None:
    question = "How is the weather in Paris? " * 20
    counted = client.count_tokens(question, model="mezzo")
    assert service.settled_balance_nanos(account) == 5 * 10**9
    assert upstream.requests == []
    upstream.replies.append(Reply(usage=None))
    assert client.complete(question, model="mezzo").usage.prompt_tokens == counted
    with pytest.raises(LegatoError) as refused:
        client.count_tokens(question, model="piano")
    assert refused.value.reason is Reason.MODEL_UNKNOWN


def test_models_and_usage_are_those_of_the_account(client: LegatoClient, service: Service, account: str) -> None:
    assert "mezzo" in [model.model_id for model in client.list_models()]
    cost_nanos = client.complete("Say hello.", model="mezzo").usage.cost_nanos
    service.settled_balance_nanos(account)
    rows = [row for bucket in client.get_usage(group_by=("model",)).buckets for row in bucket.rows]
    assert [(row.model, row.usage.cost_nanos) for row in rows] == [("mezzo", cost_nanos)]
    with pytest.raises(LegatoError) as refused:
        client.get_request("0" * 32)
    assert refused.value.reason is Reason.NOT_FOUND
