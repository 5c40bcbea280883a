"""Model discovery, and reading usage."""

import openai
import pytest

from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import ask
from tests.service import Service
from tests.upstream import Upstream

CLASSES = ["auto", "mezzo", "forte", "fortissimo"]


def test_models_are_the_classes(client: openai.OpenAI) -> None:
    page = client.models.list()
    assert page.object == "list"
    assert [model.id for model in page.data] == CLASSES
    for model in page.data:
        assert model.object == "model"
        assert model.created > 0
        assert model.owned_by
        assert client.models.retrieve(model.id) == model


async def test_async_client_lists_models(async_client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in async_client.models.list()] == CLASSES


@pytest.mark.parametrize("model", ["piano", "gpt-4", "Forte", "forte "])
def test_unknown_model_is_not_found(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve(model)
    assert (raised.value.type, raised.value.code, raised.value.param) == (
        "invalid_request_error",
        "model_not_found",
        "model",
    )
    assert raised.value.request_id


def test_usage_adds_up_what_the_account_used(
    service: Service, client: openai.OpenAI, account: str, api_key: str
) -> None:
    for model in ("mezzo", "forte", "forte"):
        client.chat.completions.create(model=model, messages=QUESTION)
    balance_nanos = service.settled_balance_nanos(account)
    page = ask(service, "GET", "/v1/usage", api_key).json
    assert page["object"] == "page"
    assert page["has_more"] is False
    assert page["next_page"] is None
    results = [result for bucket in page["data"] for result in bucket["results"]]
    assert {bucket["object"] for bucket in page["data"]} == {"bucket"}
    assert all(bucket["end_time"] - bucket["start_time"] == 3600 for bucket in page["data"])
    # The chats may stand on both sides of an hour's end.
    assert sum(result["requests"] for result in results) == 3
    assert sum(result["prompt_tokens"] for result in results) == 33
    assert sum(result["completion_tokens"] for result in results) == 21
    assert 5 * 10**9 - sum(result["cost_nanos"] for result in results) == balance_nanos
    assert page["balance_usd"] == service.legato("credits", "balance", account)["balance_usd"]


def test_usage_is_told_by_class_and_key_there_and_on_the_command_line(
    service: Service, upstream: Upstream, account: str
) -> None:
    used = [("mezzo", service.make_key(account)), ("forte", service.make_key(account))]
    for model, made in used:
        with openai.OpenAI(base_url=service.base_url, api_key=made.api_key) as client:
            client.chat.completions.create(model=model, messages=QUESTION)
    service.settled_balance_nanos(account)
    expected = {("mezzo", used[0][1].key.key_id, 11, 0, 7), ("forte", used[1][1].key.key_id, 11, 0, 7)}
    counts = ("prompt_tokens", "cached_tokens", "completion_tokens")
    page = ask(service, "GET", "/v1/usage?group_by=model,key&bucket_width=1d", used[0][1].api_key).json
    results = [result for bucket in page["data"] for result in bucket["results"]]
    assert {(row["model"], row["key_id"], *(row[name] for name in counts)) for row in results} == expected
    rows = service.legato("usage", "--account", account, "--group", "key,class")
    assert {(row["class"], row["key_id"], *(row[name] for name in counts)) for row in rows} == expected


def test_usage_parameters_are_checked(service: Service, api_key: str) -> None:
    answer = ask(service, "GET", "/v1/usage?bucket_width=5m", api_key)
    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"
    assert answer.error["param"] == "bucket_width"
