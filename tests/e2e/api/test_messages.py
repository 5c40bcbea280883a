"""The same chats by Anthropic's Messages, with its own client, and with its own types as the judge of every answer.

Its client is imported where it is used: that takes seconds, which only the process that runs these tests should pay.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.chats import QUESTION, RAIN, USAGE, WEATHER
from tests.e2e.raw_http import CHAT as CHAT_PATH
from tests.e2e.raw_http import Answer, OpenChat, ask
from tests.support.message_events import kinds_of, read_events, read_message, split_events
from tests.support.service import Service, wait_for_requests
from tests.support.upstreams.openai import TOO_LONG, Reply, Upstream
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import anthropic

PATH: Final = "/v1/messages"
BODY: Final[dict[str, Any]] = {"model": "mezzo", "max_tokens": 100, "messages": QUESTION}
TOOL: Final[Any] = {
    "name": "get_weather",
    "description": WEATHER["function"]["description"],
    "input_schema": WEATHER["function"]["parameters"],
    "strict": True,
}
CALLS: Final[list[dict[str, Any]]] = [
    {"index": 0, "id": "call_a", "type": "function", "function": {"name": "get_weather", "arguments": ""}},
    {"index": 0, "function": {"arguments": '{"city":'}},
    {"index": 0, "function": {"arguments": '"Paris"}'}},
    {"index": 1, "id": "call_b", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
]
WHOLE_CALLS: Final[list[dict[str, Any]]] = [
    {"id": "call_a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}},
    {"id": "call_b", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
]
CALLING: Final = Reply(
    contents=["Let me see."], tool_calls=CALLS, message_tool_calls=WHOLE_CALLS, finish_reason="tool_calls"
)


@pytest.fixture
def claude(service: Service, upstream: Upstream, api_key: str) -> Iterator[anthropic.Anthropic]:
    """Anthropic's client, which adds `/v1` itself."""
    with client_of(service, api_key) as client:
        yield client


def client_of(service: Service, api_key: str, **given: Any) -> anthropic.Anthropic:
    import anthropic

    http = anthropic.DefaultHttpxClient(verify=False)
    base_url = service.base_url.removesuffix("/v1")
    return anthropic.Anthropic(base_url=base_url, api_key=api_key, max_retries=0, http_client=http, **given)


def post(service: Service, api_key: str, **fields: Any) -> Answer:
    return post_to(service, PATH, api_key, {**BODY, **fields})


def post_to(service: Service, path: str, api_key: str, body: Any, headers: dict[str, str] | None = None) -> Answer:

    return ask(service, "POST", path, api_key, json.dumps(body, separators=(",", ":")).encode(), headers)


def error_of(answer: Answer) -> dict[str, Any]:
    body = answer.json
    assert body.keys() == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert answer.headers["request-id"] == answer.headers["x-request-id"] == body["request_id"]
    error: dict[str, Any] = body["error"]
    assert error.keys() == {"type", "message", "param", "code"}
    return error


def test_whole_message_is_of_anthropics_types(service: Service, upstream: Upstream, api_key: str) -> None:
    cached = {"prompt_tokens": 11, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}
    upstream.replies.append(Reply(contents=RAIN, usage=cached))
    answer = post(service, api_key)
    message = read_message(answer.body)
    assert (message.model, message.stop_reason) == ("mezzo", "end_turn")
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "It rains.", "citations": None}]
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (7, 4, 7)
    assert message.id == f"msg_{answer.headers['x-request-id']}"
    assert answer.headers["request-id"] == answer.headers["x-request-id"]
    assert "x-ratelimit-remaining-requests" in answer.headers


def test_events_are_of_anthropics_types_and_in_its_order(service: Service, upstream: Upstream, api_key: str) -> None:
    upstream.replies.append(Reply(contents=RAIN, usage=USAGE))
    answer = post(service, api_key, stream=True)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    kinds = kinds_of(answer.body)
    assert kinds[:3] == ["message_start", "content_block_start", "ping"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[3:-3]) == {"content_block_delta"}
    events = read_events(answer.body)
    texts = [event.delta.text for event in events if event.type == "content_block_delta"]
    assert "".join(texts) == "It rains."
    assert (events[-2].usage.input_tokens, events[-2].usage.output_tokens) == (11, 7)


def test_client_reads_whole_and_streamed_answers(claude: anthropic.Anthropic, upstream: Upstream) -> None:
    upstream.replies.extend([Reply(contents=RAIN)] * 2)
    whole = claude.messages.create(model="mezzo", max_tokens=100, messages=[{"role": "user", "content": "Rain?"}])
    with claude.messages.stream(
        model="mezzo", max_tokens=100, messages=[{"role": "user", "content": "Rain?"}]
    ) as stream:
        assert "".join(stream.text_stream) == "It rains."
        streamed = stream.get_final_message()
    assert (streamed.content[0].text, streamed.stop_reason) == ("It rains.", "end_turn")
    assert streamed.content[0].text == whole.content[0].text
    assert streamed.usage.output_tokens == whole.usage.output_tokens == 7


def test_client_goes_through_a_loop_of_tools(claude: anthropic.Anthropic, upstream: Upstream) -> None:
    upstream.replies.extend([CALLING, Reply(contents=RAIN)])
    messages: list[Any] = [{"role": "user", "content": "How is Paris?"}]
    with claude.messages.stream(
        model="forte", max_tokens=100, system="Be brief.", tools=[TOOL], messages=messages
    ) as stream:
        called = stream.get_final_message()
    assert called.stop_reason == "tool_use"
    said, *calls = called.content
    assert said.text == "Let me see."
    assert [(call.id, call.name, call.input) for call in calls] == [
        ("call_a", "get_weather", {"city": "Paris"}),
        ("call_b", "get_weather", {}),
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "call_a", "content": "rain"},
        {"type": "tool_result", "tool_use_id": "call_b", "content": "which city?", "is_error": True},
    ]
    messages += [{"role": "assistant", "content": called.content}, {"role": "user", "content": results}]
    answer = claude.messages.create(model="forte", max_tokens=100, tools=[TOOL], messages=messages)
    assert answer.content[0].text == "It rains."
    *_, asked, first, second = upstream.requests[1].json["messages"]
    assert (asked["content"], [call["id"] for call in asked["tool_calls"]]) == ("Let me see.", ["call_a", "call_b"])
    assert (first["tool_call_id"], first["content"]) == ("call_a", "rain")
    assert (second["tool_call_id"], second["content"]) == ("call_b", "Error: which city?")


def test_whole_answer_with_calls_is_the_same_as_a_streamed_one(
    service: Service, upstream: Upstream, api_key: str
) -> None:
    upstream.replies.append(CALLING)
    message = read_message(post(service, api_key, model="forte", tools=[TOOL]).body)
    assert message.stop_reason == "tool_use"
    assert [block.type for block in message.content] == ["text", "tool_use", "tool_use"]
    assert [block.input for block in message.content[1:]] == [{"city": "Paris"}, {}]


SAME: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "a question": ({"max_tokens": 100}, {}),
    "instructions": (
        {"max_tokens": 100, "messages": [{"role": "system", "content": "Be brief."}, *QUESTION]},
        {"system": "Be brief."},
    ),
    "tools": (
        {
            "max_tokens": 100,
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "get_weather",
                        "description": TOOL["description"],
                        "parameters": TOOL["input_schema"],
                        "strict": True,
                    },
                }
            ],
            "tool_choice": "required",
            "parallel_tool_calls": False,
        },
        {"tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
    ),
    "parameters": (
        {"max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "stop": ["END"], "reasoning_effort": "high"},
        {"temperature": 0.5, "top_p": 0.9, "stop_sequences": ["END"], "output_config": {"effort": "high"}},
    ),
    "a loop of tools": (
        {
            "max_tokens": 100,
            "messages": [
                *QUESTION,
                {"role": "assistant", "content": None, "tool_calls": WHOLE_CALLS[:1]},
                {"role": "tool", "content": "rain", "tool_call_id": "call_a"},
            ],
        },
        {
            "messages": [
                *QUESTION,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                        {"type": "tool_use", "id": "call_a", "name": "get_weather", "input": {"city": "Paris"}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_a", "content": "rain"}]},
            ]
        },
    ),
}


@pytest.mark.parametrize("usage", [USAGE, None], ids=["told", "counted"])
def test_the_same_conversation_is_the_same_request_and_costs_the_same(
    service: Service, upstream: Upstream, usage: dict[str, Any] | None
) -> None:
    for name, (chat, message) in SAME.items():
        spent, asked = [], []
        for path, body in ((CHAT_PATH, {"messages": QUESTION, **chat}), (PATH, {**BODY, **message})):
            account = service.new_account()
            api_key = service.new_key(account)
            upstream.requests.clear()
            upstream.replies.append(Reply(contents=RAIN, usage=usage))
            sent = {**body, "model": "forte", "stream": True}
            answer = post_to(service, path, api_key, sent)
            assert answer.status == 200, (name, answer.body)
            spent.append(service.settled_balance_nanos(account))
            asked.append(_comparable(upstream.requests[0].json))
        assert spent[0] == spent[1] < 5 * 10**9, name
        assert asked[0] == asked[1], name


def _comparable(request: dict[str, Any]) -> dict[str, Any]:
    """A request to a model, with the arguments of calls as what they say."""

    for message in request["messages"]:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return {name: value for name, value in request.items() if name not in ("prompt_cache_key", "user")}


def test_tokens_are_counted_as_they_are_charged_and_for_nothing(
    service: Service, claude: anthropic.Anthropic, upstream: Upstream, account: str
) -> None:
    given: dict[str, Any] = {
        "model": "mezzo",
        "system": "Be brief.",
        "tools": [TOOL],
        "messages": [{"role": "user", "content": "How is the weather in Paris? " * 20}],
    }
    counted = claude.messages.count_tokens(**given).input_tokens
    assert service.settled_balance_nanos(account) == 5 * 10**9
    assert upstream.requests == []
    upstream.replies.append(Reply(contents=RAIN, usage=None))
    assert claude.messages.create(max_tokens=100, **given).usage.input_tokens == counted


def test_what_cannot_be_counted_is_refused(service: Service, upstream: Upstream, api_key: str) -> None:
    counting = f"{PATH}/count_tokens"
    answer = post_to(service, counting, api_key, {"model": "mezzo", "messages": []})
    assert (answer.status, error_of(answer)["type"]) == (400, "invalid_request_error")
    answer = post_to(service, counting, api_key, {"model": "claude-opus", "messages": QUESTION})
    assert (answer.status, error_of(answer)["code"]) == (400, "model_not_found")
    assert post_to(service, counting, "", {}).status == 401


def test_errors_have_anthropics_types(
    service: Service, claude: anthropic.Anthropic, upstream: Upstream, account: str
) -> None:
    import anthropic

    def refused(client: anthropic.Anthropic, kind: type[anthropic.APIStatusError], **fields: Any) -> Any:
        with pytest.raises(kind) as raised:
            client.messages.create(**{**BODY, **fields})
        assert type(raised.value) is kind
        assert raised.value.request_id
        return raised.value.body

    with client_of(service, "sk-wrong") as stranger:
        assert refused(stranger, anthropic.AuthenticationError)["error"] == {
            "type": "authentication_error",
            "message": "The API key is not valid.",
            "param": None,
            "code": "invalid_api_key",
        }
    assert refused(claude, anthropic.BadRequestError, model="claude-opus-5")["error"]["code"] == "model_not_found"
    picture = {"type": "image", "source": {"type": "url", "url": "https://a.test/"}}
    body = refused(claude, anthropic.BadRequestError, messages=[{"role": "user", "content": [picture]}])
    assert (body["error"]["type"], body["error"]["param"]) == ("invalid_request_error", "messages[0].content[0]")
    upstream.replies.append(Reply(status=400, body=TOO_LONG))
    body = refused(claude, anthropic.BadRequestError)
    assert body["error"]["message"].startswith("prompt is too long: ")
    upstream.replies.extend([Reply(status=500, body="{}")] * 4)
    assert refused(claude, anthropic.InternalServerError)["error"]["type"] == "api_error"
    upstream.replies.clear()
    with client_of(service, service.new_key(account, ["models"])) as reader:
        assert refused(reader, anthropic.PermissionDeniedError)["error"]["type"] == "permission_error"
    limited = service.make_key(account)
    service.legato("keys", "set", limited.key.key_id, "--requests-per-minute", "1")
    with client_of(service, limited.api_key) as one:
        one.messages.create(**BODY)
        assert refused(one, anthropic.RateLimitError)["error"]["type"] == "rate_limit_error"


def test_errors_before_a_chat_begins_have_anthropics_shape(service: Service, upstream: Upstream, api_key: str) -> None:
    answer = post(service, service.new_key(service.new_account(credits="0")))
    assert (answer.status, error_of(answer)["type"], error_of(answer)["code"]) == (
        402,
        "billing_error",
        "insufficient_quota",
    )
    answer = ask(service, "POST", f"{PATH}/batches", api_key, b"{}")
    assert (answer.status, error_of(answer)["type"]) == (404, "not_found_error")
    answer = ask(service, "GET", PATH, api_key)
    assert (answer.status, error_of(answer)["code"]) == (405, "method_not_allowed")
    answer = ask(service, "POST", PATH, api_key, None, {"Content-Length": str(17 * 1024 * 1024)})
    assert (answer.status, error_of(answer)["type"]) == (413, "request_too_large")
    assert ask(service, "POST", "/v1/messages-of-others", api_key, b"{}").json.keys() == {"error"}


def test_models_have_anthropics_form_for_its_clients(service: Service, claude: anthropic.Anthropic) -> None:
    import anthropic

    models = [*claude.beta.models.list()]
    assert [model.id for model in models] == ["auto", "mezzo", "forte", "fortissimo"]
    assert [model.model_extra for model in models] == [{}] * 4
    mezzo = claude.beta.models.retrieve("mezzo")
    assert (mezzo.display_name, mezzo.max_input_tokens, mezzo.max_tokens) == ("Mezzo", 1_100_000, 131_072)
    with pytest.raises(anthropic.NotFoundError) as raised:
        claude.models.retrieve("piano")
    assert raised.value.type == "not_found_error"


def test_key_that_is_revoked_ends_its_stream_with_an_error(service: Service, upstream: Upstream, account: str) -> None:
    made = service.make_key(account)
    upstream.replies.append(Reply(contents=[" rain"], repeat=100_000, event_delay_s=0.01))
    chat = OpenChat(service, made.api_key, {**BODY, "stream": True}, {"Connection": "close"}, path=PATH)
    chat.read_until(b"content_block_delta")
    service.legato("keys", "revoke", made.key.key_id)
    chat.read_to_end()
    assert b'"type":"authentication_error"' in chat.received
    assert b"event: error\n" in chat.received
    assert b"message_stop" not in chat.received
    chat.leave()
    service.settled_balance_nanos(account)
    assert [hold.end for hold in service.holds(account)] == ["key_refused"]


def test_client_that_leaves_is_charged_what_it_was_sent(service: Service, upstream: Upstream, account: str) -> None:
    upstream.replies.append(Reply(contents=["It", " rains"], stall_after=3))
    chat = OpenChat(service, service.new_key(account), {**BODY, "stream": True}, path=PATH)
    chat.read_until(b'" rains"')
    chat.leave()
    request = wait_for_requests(upstream)
    wait_until(lambda: request.aborted)
    service.settled_balance_nanos(account)
    [hold] = service.holds(account)
    assert (hold.end, hold.completion_tokens) == ("client_gone", 2)


def test_answer_whose_credit_is_used_up_ends_as_if_it_were_too_long(service: Service, upstream: Upstream) -> None:
    api_key = service.new_key(service.new_account(credits="0.0001"))
    upstream.replies.append(Reply(contents=[" rain"], repeat=2_000, usage=None, event_delay_s=0.001))
    answer = post(service, api_key, stream=True, max_tokens=10_000)
    delta = read_events(answer.body)[-2]
    assert delta.delta.stop_reason == "max_tokens"
    assert dict(split_events(answer.body))["message_delta"]["usage"]["x-legato-end"] == "credit"


def test_upstream_that_breaks_off_is_an_error_event(service: Service, upstream: Upstream, api_key: str) -> None:
    upstream.replies.extend([Reply(contents=RAIN, cut_after=3)] * 2)
    *_, (kind, data) = split_events(post(service, api_key, stream=True, tools=[TOOL]).body)
    assert (kind, data["error"]["type"], data["error"]["code"]) == ("error", "api_error", "upstream_error")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_stop_that_ended_an_answer_is_told_where_the_model_tells_it(
    service: Service, upstream: Upstream, api_key: str, stream: bool
) -> None:
    """As vLLM does."""
    ending = {"index": 0, "finish_reason": "stop", "stop_reason": "END"}
    events = [{"choices": [{"index": 0, "delta": {"content": "It rains"}}]}, {"choices": [{**ending, "delta": {}}]}]
    message = {"role": "assistant", "content": "It rains"}
    whole = {"object": "chat.completion", "choices": [{**ending, "message": message}], "usage": USAGE}
    told = Reply(events=[json.dumps(event) for event in events]) if stream else Reply(body=json.dumps(whole))
    upstream.replies.append(told)
    answer = post(service, api_key, stream=stream, stop_sequences=["STOP", "END"])
    assert answer.status == 200
    ended: Any = read_events(answer.body)[-2].delta if stream else read_message(answer.body)
    assert (ended.stop_reason, ended.stop_sequence) == ("stop_sequence", "END")


def test_what_is_ignored_is_named(service: Service, upstream: Upstream, api_key: str) -> None:
    betas = {"anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219,context-1m-2025-08-07"}
    answer = post_to(service, f"{PATH}?beta=true", api_key, {**BODY, "speed": "fast"}, betas)
    assert (answer.status, answer.headers["x-legato-ignored"]) == (200, "context-1m-2025-08-07, speed")


def test_key_may_come_in_either_header(service: Service, upstream: Upstream, api_key: str) -> None:
    assert post_to(service, PATH, "", BODY, {"x-api-key": api_key}).status == 200
    assert post_to(service, PATH, api_key, BODY).status == 200
