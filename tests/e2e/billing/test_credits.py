"""The cost of a chat, and what happens when credit ends."""

import json
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from cli.connection import call_service
from edge.billing.prompt_estimate import guess_prompt_tokens
from legato_protos.auth.v1.auth_pb2 import RotateKeyRequest
from services.chassis.money import format_usd, parse_usd
from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import OpenChat, post_chat
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream

DOLLAR_NANOS = 10**9

# Nano-dollars a token, by the documented prices: input, cached input, output. Where no price is given for cached
# input, it costs what input costs.
PRICES = {"mezzo": (100, 20, 210), "forte": (1_070, 1_070, 3_450), "fortissimo": (3_450, 3_450, 17_250)}

USAGE = {
    "prompt_tokens": 1_201,
    "completion_tokens": 333,
    "total_tokens": 1_534,
    "prompt_tokens_details": {"cached_tokens": 401},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", PRICES)
def test_charge_is_exact(
    service: Service, upstream: Upstream, account: str, api_key: str, model: str, stream: bool
) -> None:
    upstream.replies.append(Reply(usage=USAGE))
    assert post_chat(service, api_key, {"model": model, "messages": QUESTION, "stream": stream}).status == 200
    input_nanos, cached_nanos, output_nanos = PRICES[model]
    cost_nanos = 800 * input_nanos + 401 * cached_nanos + 333 * output_nanos
    assert service.settled_balance_nanos(account) == 5 * DOLLAR_NANOS - cost_nanos
    [row] = service.usage(account, ["class"])
    assert (row.class_id, row.requests, row.cost_nanos) == (model, 1, cost_nanos)
    assert (row.usage.prompt_tokens, row.usage.cached_tokens, row.usage.completion_tokens) == (1_201, 401, 333)


def test_usage_that_the_upstream_does_not_tell_is_counted(
    service: Service, upstream: Upstream, account: str, api_key: str
) -> None:
    upstream.replies.append(Reply(contents=["It", " rains"], usage=None))
    told = post_chat(service, api_key, {"model": "mezzo", "messages": QUESTION}).json["usage"]
    assert told["prompt_tokens"] > 10
    assert told["completion_tokens"] == 2
    cost_nanos = 100 * told["prompt_tokens"] + 210 * told["completion_tokens"]
    assert service.settled_balance_nanos(account) == 5 * DOLLAR_NANOS - cost_nanos


@pytest.mark.parametrize("words", [500, 100_000])
def test_prompt_with_more_tokens_than_its_size_suggests_is_charged_whole(
    service: Service, upstream: Upstream, account: str, api_key: str, words: int
) -> None:
    # Two bytes a token: the hold must grow before the model is asked.
    messages = [{"role": "user", "content": "a b " * (words // 2)}]
    upstream.replies.append(Reply(contents=["It", " rains"], usage=None))
    answer = post_chat(service, api_key, {"model": "fortissimo", "messages": messages, "stream": True})
    told = answer.events[-2]["usage"]
    assert told["prompt_tokens"] > words
    assert told["completion_tokens"] == 2
    cost_nanos = 3_450 * told["prompt_tokens"] + 17_250 * told["completion_tokens"]
    assert service.settled_balance_nanos(account) == 5 * DOLLAR_NANOS - cost_nanos


def test_balance_is_the_credit_less_all_charges_litellm_30460(
    service: Service, client: openai.OpenAI, upstream: Upstream, account: str
) -> None:
    """There, the counter that admitted requests said 50 where the database said 14."""
    service.legato("credits", "grant", account, "0.000000001")
    service.legato("credits", "adjust", account, "-1.25", "--reason", "a test")
    for model in PRICES:
        client.chat.completions.create(model=model, messages=QUESTION)
    balance_nanos = service.settled_balance_nanos(account)
    rows = service.usage(account, ["key", "class"])
    assert {row.class_id for row in rows} == set(PRICES)
    assert len({row.key_id for row in rows}) == 1
    assert balance_nanos == 3_750_000_001 - sum(row.cost_nanos for row in rows)
    told = service.legato("credits", "balance", account)
    assert (told["balance_nanos"], told["held_nanos"]) == (balance_nanos, 0)
    assert service.audit() == []


@pytest.mark.parametrize("stream", [False, True])
def test_answer_ends_with_length_where_the_credit_ends(service: Service, upstream: Upstream, stream: bool) -> None:
    account = service.new_account(credits="0.0001")
    api_key = service.new_key(account)
    upstream.replies.append(Reply(contents=[" rain"], repeat=2_000, usage=None, event_delay_s=0.001))
    answer = post_chat(service, api_key, {"model": "mezzo", "messages": QUESTION, "stream": stream})
    assert answer.status == 200
    if stream:
        *chunks, counted, done = answer.events
        assert done == "[DONE]"
        usage = counted["usage"]
        finish_reason = chunks[-1]["choices"][0]["finish_reason"]
        content = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    else:
        usage = answer.json["usage"]
        finish_reason = answer.json["choices"][0]["finish_reason"]
        content = answer.json["choices"][0]["message"]["content"]
    assert finish_reason == "length"
    assert usage["x-legato-end"] == "credit"
    assert content == " rain" * usage["completion_tokens"]
    assert 100 < usage["completion_tokens"] < 500
    balance_nanos = service.settled_balance_nanos(account)
    assert balance_nanos == 100_000 - 100 * usage["prompt_tokens"] - 210 * usage["completion_tokens"]
    assert balance_nanos >= 0
    # What is left is too little for another question.
    refused = post_chat(service, api_key, {"model": "mezzo", "messages": QUESTION})
    assert refused.status == 402
    assert refused.error["type"] == "insufficient_quota"
    assert len(upstream.requests) == 1
    assert service.settled_balance_nanos(account) == balance_nanos
    assert service.audit() == []


def test_of_40_whole_answers_at_once_nothing_is_given_beyond_the_credit(service: Service, upstream: Upstream) -> None:
    """Each alone could be paid for, and so might be asked for in one piece. Together they cannot."""
    upstream.default_reply = Reply(contents=[" rain" * 100], repeat=200, delay_s=1, usage=None)
    account = service.new_account(credits="0.15")
    api_key = service.new_key(account)
    with ThreadPoolExecutor(40) as threads:
        chat = {"model": "mezzo", "messages": QUESTION}
        asking = [threads.submit(post_chat, service, api_key, chat) for _ in range(40)]
        answers = [each.result() for each in asking]
    assert {answer.status for answer in answers} <= {200, 429}
    ends = Counter(answer.json["choices"][0]["finish_reason"] for answer in answers if answer.status == 200)
    assert ends["stop"]
    assert ends["length"]
    # Each was streamed to us, so that it could be stopped.
    assert all(request.json.get("stream") for request in upstream.requests)
    assert 0 <= service.settled_balance_nanos(account) < 0.15 * DOLLAR_NANOS
    assert {entry.loss_nanos for entry in service.entries(account)} == {0}
    assert service.audit() == []


def test_of_500_at_once_as_many_are_served_as_the_credit_affords_litellm_26672(
    service: Service, upstream: Upstream
) -> None:
    """There, 99 dollars were spent of a budget of 30: the balance was looked at first and charged later, so that
    requests at once all found it sufficient."""
    afforded, max_tokens = 37, 50
    body = {"model": "mezzo", "messages": QUESTION, "stream": True, "max_tokens": max_tokens}
    # What the edge holds for this: its guess of the prompt, and all that was asked for. The provider counts the same.
    prompt_tokens = guess_prompt_tokens(json.dumps(QUESTION).encode(), b"")
    upstream.default_reply = Reply(usage={"prompt_tokens": prompt_tokens, "completion_tokens": max_tokens})
    cost_nanos = 100 * prompt_tokens + 210 * max_tokens
    account = service.new_account(credits=f"{afforded * cost_nanos / DOLLAR_NANOS:.9f}")
    service.legato("accounts", "set", account, "--requests-per-minute", "15000")
    api_key = service.new_key(account)
    chats = [OpenChat(service, api_key, body) for _ in range(500)]
    for chat in chats:
        chat.read_until(b"\r\n")
    statuses = Counter(chat.received.split()[1] for chat in chats)
    for chat in chats:
        if chat.received.startswith(b"HTTP/1.1 200"):
            chat.read_until(b"[DONE]")
        chat.leave()
    assert statuses.keys() <= {b"200", b"402", b"429"}
    assert statuses[b"200"] == len(upstream.requests) == afforded
    assert service.settled_balance_nanos(account) == 0
    assert [entry.loss_nanos for entry in service.entries(account)] == [0] * afforded
    assert {hold.amount_nanos for hold in service.holds(account) if hold.state == "settled"} == {cost_nanos}
    assert service.audit() == []


WORDS = 300_000
MANY_WORDS = "a b " * (WORDS // 2)
CALLED = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOLS = [{"type": "function", "function": {"name": "look"}}]
# Wherever a client may put them so that they are sent to a model.
PLACES: dict[str, dict[str, Any]] = {
    "response_format": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"title": MANY_WORDS}}}
    },
    "stop": {"stop": [MANY_WORDS]},
    "tools": {"tools": [{"type": "function", "function": {"name": "look", "description": MANY_WORDS}}]},
    "tool_choice": {
        "tools": TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "look", "x": MANY_WORDS}},
    },
    "name": {"messages": [{"role": "user", "content": "Hi", "name": MANY_WORDS}]},
    "reasoning_content": {
        "messages": [*QUESTION, {"role": "assistant", "content": "", "reasoning_content": MANY_WORDS}]
    },
    "ids": {
        "messages": [
            *QUESTION,
            {"role": "assistant", "content": None, "tool_calls": [{**CALLED, "id": MANY_WORDS}]},
            {"role": "tool", "tool_call_id": "call_1", "content": ""},
        ]
    },
}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_sent_is_charged_to_a_client_that_leaves_early(
    service: Service, upstream: Upstream, account: str, api_key: str, place: str
) -> None:
    upstream.replies.append(Reply(contents=["It", " rains"], stall_after=3))
    chat = OpenChat(service, api_key, {"model": "mezzo", "messages": QUESTION, "stream": True, **PLACES[place]})
    chat.read_until(b'" rains"')
    chat.leave()
    assert MANY_WORDS.encode() in upstream.requests[0].body
    charged_nanos = 5 * DOLLAR_NANOS - service.settled_balance_nanos(account)
    assert charged_nanos >= WORDS * PRICES["mezzo"][0]


@pytest.mark.parametrize("place", PLACES)
def test_what_the_credit_does_not_cover_is_not_sent(service: Service, upstream: Upstream, place: str) -> None:
    account = service.new_account(credits="0.01")
    api_key = service.new_key(account)
    refused = post_chat(service, api_key, {"model": "mezzo", "messages": QUESTION, "stream": True, **PLACES[place]})
    assert (refused.status, refused.error["type"]) == (402, "insufficient_quota")
    assert upstream.requests == []
    assert service.settled_balance_nanos(account) == 0.01 * DOLLAR_NANOS


def test_what_was_not_counted_is_not_sent(service: Service, upstream: Upstream, api_key: str) -> None:
    messages = [{**QUESTION[0], "x": "canary", "audio": {"data": "canary"}}]
    assert post_chat(service, api_key, {"model": "mezzo", "messages": messages, "x": "canary"}).status == 200
    assert b"canary" not in upstream.requests[0].body


def test_list_of_credits_ends_with_the_balance(
    service: Service, upstream: Upstream, account: str, api_key: str
) -> None:
    service.legato("credits", "adjust", account, "-1.25", "--reason", "charged twice")
    upstream.replies.append(Reply(usage=USAGE))
    assert post_chat(service, api_key, {"model": "mezzo", "messages": QUESTION}).status == 200
    balance_nanos = service.settled_balance_nanos(account)
    listed = service.legato("credits", "list", account)["entries"]
    assert [entry["kind"] for entry in listed] == ["grant", "adjustment", "charges"]
    assert [entry["balance_nanos"] for entry in listed] == [5 * DOLLAR_NANOS, 375 * 10**7, balance_nanos]
    first = service.legato("credits", "list", account, "--limit", "2")
    rest = service.legato("credits", "list", account, "--page", first["next_page"])
    assert [*first["entries"], *rest["entries"]] == listed
    statement = service.legato("credits", "statement", account)
    assert [entry["balance_nanos"] for entry in statement] == [entry["balance_nanos"] for entry in listed]
    [receipt] = service.legato("requests", "list", account)
    assert (receipt["id"], receipt["state"]) == (statement[-1]["id"], "settled")
    assert receipt["charged_nanos"] == -statement[-1]["amount_nanos"]


def test_a_key_that_has_spent_its_limits_is_told_when_to_come_back(
    service: Service, upstream: Upstream, account: str
) -> None:
    made = service.make_key(account)
    key_id, api_key = made.key.key_id, made.api_key
    chat = {"model": "forte", "messages": QUESTION, "stream": True}
    upstream.replies.append(Reply(usage=USAGE))
    assert post_chat(service, api_key, chat).status == 200
    first_nanos = 5 * DOLLAR_NANOS - service.settled_balance_nanos(account)
    service.legato("limits", "set", account, "--key", key_id, "--day", f"{first_nanos / DOLLAR_NANOS:.9f}")
    refused = post_chat(service, api_key, chat)
    assert (refused.status, refused.json["error"]["type"], refused.json["error"]["code"]) == (
        429, "rate_limit_error", "spend_limit_exceeded",
    )  # fmt: skip
    assert 0 < int(refused.headers["retry-after"]) <= 86_400
    assert refused.headers["x-should-retry"] == "false"
    service.legato("limits", "set", account, "--key", key_id, "--day", "none", "--total", "0")
    refused = post_chat(service, api_key, chat)
    assert (refused.status, refused.json["error"]["code"]) == (402, "spend_limit_exceeded")
    service.legato("limits", "set", account, "--key", key_id, "--total", "1")
    upstream.replies.append(Reply(usage=USAGE))
    assert post_chat(service, api_key, chat).status == 200
    cost_nanos = 5 * DOLLAR_NANOS - service.settled_balance_nanos(account)
    [spent] = [row for row in service.legato("limits", "show", account) if row["period"] == "total"]
    assert (spent["spent_nanos"], spent["held_nanos"]) == (cost_nanos, 0)


def test_a_key_is_limited_from_its_first_chat_on_and_one_that_replaces_it_has_what_is_left(
    service: Service, upstream: Upstream, account: str
) -> None:
    input_nanos, cached_nanos, output_nanos = PRICES["forte"]
    cost_nanos = 800 * input_nanos + 401 * cached_nanos + 333 * output_nanos
    limit_usd = format_usd(2 * cost_nanos)
    made = service.legato("keys", "create", "--account", account, "--day", limit_usd)
    assert made["spend_day_usd"] == limit_usd
    chat = {"model": "forte", "messages": QUESTION, "stream": True}
    upstream.replies += [Reply(usage=USAGE)] * 2
    assert post_chat(service, made["api_key"], chat).status == 200
    assert service.settled_balance_nanos(account) == 5 * DOLLAR_NANOS - cost_nanos
    request = RotateKeyRequest(account_id=account, key_id=made["key_id"])
    rotated = call_service(service.services.keys.RotateKey, request)
    assert rotated.spend_limits.day_nanos == 2 * cost_nanos
    assert post_chat(service, rotated.api_key, chat).status == 200
    # Neither has anything left, at once or after the other.
    with ThreadPoolExecutor(6) as pool:
        asked = [made["api_key"], rotated.api_key] * 3
        assert list(pool.map(lambda key: post_chat(service, key, chat).status, asked)) == [429] * 6
    assert service.settled_balance_nanos(account) == 5 * DOLLAR_NANOS - 2 * cost_nanos
    shown = [row for row in service.legato("limits", "show", account) if row["period"] == "day"]
    assert {(row["key_id"], row["spent_nanos"]) for row in shown} == {
        (key_id, 2 * cost_nanos) for key_id in (made["key_id"], rotated.key.key_id)
    }


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_ends_where_its_spend_limit_does_and_says_so(
    service: Service, upstream: Upstream, account: str, stream: bool
) -> None:
    made = service.make_key(account)
    key_id, api_key = made.key.key_id, made.api_key
    limit_nanos = 3_450 * 60 + 1_070 * 40
    service.legato("limits", "set", account, "--key", key_id, "--day", f"0.{limit_nanos:09}")
    upstream.replies.append(Reply(contents=[" rain"] * 500, usage=None))
    answer = post_chat(service, api_key, {"model": "forte", "messages": QUESTION, "stream": stream})
    *_, finish, counted, _ = answer.events if stream else [answer.json, answer.json, None]
    assert (finish["choices"][0]["finish_reason"], counted["usage"]["x-legato-end"]) == ("length", "spend_limit")
    assert 5 * DOLLAR_NANOS - limit_nanos <= service.settled_balance_nanos(account) < 5 * DOLLAR_NANOS
    assert post_chat(service, api_key, {"model": "forte", "messages": QUESTION}).status == 429


def test_clients_parse_an_answer_that_says_what_ended_it(service: Service, upstream: Upstream) -> None:
    client = openai.OpenAI(
        base_url=service.base_url, api_key=service.new_key(service.new_account(credits="0.0001")), max_retries=0
    )
    upstream.replies.append(Reply(contents=[" rain"], repeat=2_000, usage=None, event_delay_s=0.001))
    chunks = list(client.chat.completions.create(model="mezzo", messages=QUESTION, stream=True))
    usage = chunks[-1].usage
    assert usage is not None
    assert (usage.total_tokens, usage.to_dict()["x-legato-end"]) == (
        usage.prompt_tokens + usage.completion_tokens,
        "credit",
    )


def test_usage_tells_the_limits_of_the_key_and_of_the_account_and_what_is_left(
    service: Service, upstream: Upstream, account: str
) -> None:
    made = service.make_key(account)
    key_id, api_key = made.key.key_id, made.api_key
    asked = f"/v1/usage?start_time={int(time.time()) - 60}"
    assert get(service, api_key, asked)["spend_limits"] == []
    service.legato("limits", "set", account, "--month", "10", "--total", "20")
    service.legato("limits", "set", account, "--key", key_id, "--day", "0.50")
    upstream.replies.append(Reply(usage=USAGE))
    assert post_chat(service, api_key, {"model": "mezzo", "messages": QUESTION}).status == 200
    spent_nanos = 5 * DOLLAR_NANOS - service.settled_balance_nanos(account)
    told = get(service, api_key, asked)
    assert told["owed_usd"] == "0.00"
    assert [(each["key_id"], each["period"], each["limit_usd"]) for each in told["spend_limits"]] == [
        (None, "month", "10.00"),
        (None, "total", "20.00"),
        (key_id, "day", "0.50"),
    ]
    for each in told["spend_limits"]:
        assert each["spent_usd"] == format_usd(spent_nanos)
        assert each["left_usd"] == format_usd(parse_usd(each["limit_usd"]) - spent_nanos)
        assert (each["resets_at"] is None) == (each["period"] == "total")
    # A key sees no limits of others.
    assert {each["key_id"] for each in get(service, service.new_key(account), asked)["spend_limits"]} == {None}


def get(service: Service, api_key: str, path: str) -> Any:
    asked = urllib.request.Request(
        service.base_url.removesuffix("/v1") + path, headers={"Authorization": f"Bearer {api_key}"}
    )
    with urllib.request.urlopen(asked) as response:
        return json.load(response)
