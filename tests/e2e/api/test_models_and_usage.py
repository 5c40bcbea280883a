"""Model discovery, and reading usage."""

import json
import re
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import ask
from tests.support.service import Service
from tests.support.upstreams.openai import Upstream
from tests.support.waiting import wait_until

PAGE = Path(__file__).parents[3] / "docs" / "api.md"
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


@pytest.mark.parametrize(
    "model", ["piano", "gpt-4", "Forte", "forte ", "openai/gpt-4", "a/../forte", "../models/forte"]
)
def test_unknown_model_is_not_found(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve(model)
    assert (raised.value.type, raised.value.code, raised.value.param) == (
        "invalid_request_error",
        "model_not_found",
        "model",
    )
    assert raised.value.request_id


def test_a_narrowed_account_has_no_other_models(service: Service, client: openai.OpenAI, account: str) -> None:
    """Its key gets for another class exactly what it gets for one that does not exist, and `auto` is one of its own."""
    service.legato("accounts", "set", account, "--classes", "mezzo,fortissimo")
    assert [model.id for model in client.models.list()] == ["auto", "mezzo", "fortissimo"]
    refusals = []
    for model in ("forte", "gpt-4"):
        with pytest.raises(openai.NotFoundError) as looked_up:
            client.models.retrieve(model)
        with pytest.raises(openai.BadRequestError) as asked:
            client.chat.completions.create(model=model, messages=QUESTION)
        refusals.append((looked_up.value.body, asked.value.body))
    assert refusals[0] == refusals[1]
    assert "forte," not in str(refusals[0])
    assert client.chat.completions.create(messages=QUESTION, model="auto").model == "mezzo"
    service.legato("accounts", "set", account, "--class", "fortissimo")
    assert client.chat.completions.create(messages=QUESTION, model="auto").model == "fortissimo"
    service.legato("accounts", "set", account, "--classes", "all")
    assert client.chat.completions.create(messages=QUESTION, model="forte").model == "forte"


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


def test_one_request_says_what_it_cost_and_how_it_ended(service: Service, client: openai.OpenAI, api_key: str) -> None:
    answer = client.chat.completions.create(model="mezzo", messages=QUESTION)
    wait_until(lambda: ask(service, "GET", f"/v1/usage/requests/{answer.id}", api_key).json["ended"])

    receipt = ask(service, "GET", f"/v1/usage/requests/{answer._request_id}", api_key).json

    assert answer.usage is not None
    assert (receipt["prompt_tokens"], receipt["completion_tokens"]) == (
        answer.usage.prompt_tokens,
        answer.usage.completion_tokens,
    )
    assert (receipt["state"], receipt["end"], receipt["basis"]) == ("settled", "complete", "provider")
    assert (receipt["model"], receipt["held_nanos"]) == ("mezzo", 0)
    usage = ask(service, "GET", "/v1/usage", api_key).json
    assert receipt["cost_nanos"] == usage["data"][-1]["results"][0]["cost_nanos"]


def test_answer_that_was_received_is_in_the_books_when_they_are_read(
    service: Service, client: openai.OpenAI, api_key: str
) -> None:
    for number in range(1, 6):
        answer = client.chat.completions.create(model="mezzo", messages=QUESTION)
        receipt = ask(service, "GET", f"/v1/usage/requests/{answer.id}", api_key).json
        assert (receipt["state"], receipt["cost_nanos"]) == ("settled", 2_570)
        *_, last = client.chat.completions.create(model="mezzo", messages=QUESTION, stream=True)
        usage = ask(service, "GET", "/v1/usage", api_key).json
        assert sum(result["requests"] for bucket in usage["data"] for result in bucket["results"]) == 2 * number
        receipt = ask(service, "GET", f"/v1/usage/requests/{last.id}", api_key).json
        assert receipt["state"] == "settled"


def test_usage_and_a_request_are_told_as_the_page_of_the_api_shows_them(
    service: Service, upstream: Upstream, account: str
) -> None:
    made = service.make_key(account)
    api_key = made.api_key
    service.legato("limits", "set", account, "--key", made.key.key_id, "--day", "1")
    client = openai.OpenAI(base_url=service.base_url, api_key=api_key)
    examples = [
        json.loads(block)
        for block in re.findall(r"^(    \{\"object.*?\n)$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    ]
    answer = client.chat.completions.create(model="mezzo", messages=QUESTION)
    service.settled_balance_nanos(account)
    usage = ask(service, "GET", "/v1/usage?bucket_width=1d&group_by=model&limit=2", api_key).json
    usage["data"] = [bucket for bucket in usage["data"] if bucket["results"]]
    receipt = ask(service, "GET", f"/v1/usage/requests/{answer.id}", api_key).json
    assert [_shape(example) for example in examples] == [_shape(usage), _shape(receipt)]
    assert usage["data"][0]["results"] == examples[0]["data"][0]["results"]


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shape(part) for name, part in value.items()}
    return [_shape(part) for part in value] if isinstance(value, list) else type(value)


def test_request_that_was_never_made_or_is_another_accounts_is_not_found(
    service: Service, client: openai.OpenAI, api_key: str
) -> None:
    answer = client.chat.completions.create(model="mezzo", messages=QUESTION)
    stranger = service.new_key(service.new_account())

    for key, request_id in [(stranger, answer.id), (api_key, f"{7:032x}"), (api_key, "nonsense")]:
        refusal = ask(service, "GET", f"/v1/usage/requests/{request_id}", key)
        assert refusal.status == 404
        assert refusal.error["type"] == "invalid_request_error"


def test_page_in_a_browser_may_ask_and_read_the_answer(service: Service, api_key: str) -> None:
    page = {"Origin": "https://app.example"}
    asked = "authorization,content-type,x-stainless-os"
    question = {**page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked}

    preflight = ask(service, "OPTIONS", "/v1/chat/completions", headers=question)
    answers = [
        ask(service, "GET", "/v1/models", api_key, headers=page),
        ask(service, "GET", "/v1/models", "wrong", headers=page),
        ask(service, "GET", "/nowhere", headers=page),
    ]

    assert preflight.status == 204
    assert preflight.headers["access-control-allow-headers"] == asked
    assert [answer.status for answer in answers] == [200, 401, 404]
    for answer in [preflight, *answers]:
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "x-request-id" in answer.headers["access-control-expose-headers"]
