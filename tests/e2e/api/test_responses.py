"""POST /v1/responses with the official client, against the whole service."""

import json
import threading
from typing import Any

import openai
import pytest
from openai.types.responses import ResponseInputParam
from pydantic import BaseModel, TypeAdapter

from services.router.prompts.tokens import count
from tests.e2e.chats import RAIN, WEATHER
from tests.e2e.raw_http import Answer, ask, post_chat
from tests.edge.responses.typed_events import check_response, kinds, read_events
from tests.support.service import Service, wait_for_requests
from tests.support.upstreams.openai import TOO_LONG, Reply, Upstream
from tests.support.waiting import wait_until

FORECAST: Any = {"type": "function", **WEATHER["function"]}
PATCH: Any = {"type": "custom", "name": "apply_patch", "description": "Changes files."}
AGENTS: Any = {"type": "namespace", "name": "agents", "description": "Others.", "tools": [{**FORECAST, "name": "ask"}]}


def post(service: Service, api_key: str, body: bytes | dict[str, Any]) -> Answer:
    given = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ask(service, "POST", "/v1/responses", api_key, given, {"Content-Type": "application/json"})


# With its fields in the order in which functions are rendered, whose tokens are counted.
TOOL: Any = {name: FORECAST[name] for name in ("name", "description", "parameters", "strict")}


def calling(*calls: tuple[str, str, str]) -> Reply:
    """Calls functions: the id, the name and the arguments of each."""
    made = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in calls
    ]
    return Reply(contents=[], message_tool_calls=made, finish_reason="tool_calls")


def test_a_question_is_answered_whole(client: openai.OpenAI, upstream: Upstream) -> None:
    response = client.responses.create(
        model="mezzo", input="Will it rain?", instructions="Be brief.", metadata={"a": "b"}
    )
    assert (response.output_text, response.status, response.model) == ("Hello, world!", "completed", "mezzo")
    assert response.metadata == {"a": "b"}
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (11, 7, 18)
    roles = [message["role"] for message in upstream.requests[0].json["messages"]]
    assert roles == ["system", "system", "user"]


def test_a_stream_helper_puts_the_answer_together(client: openai.OpenAI) -> None:
    with client.responses.stream(model="forte", input="Will it rain?") as stream:
        texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(texts) == final.output_text == "Hello, world!"


@pytest.mark.parametrize("stream", [False, True])
def test_every_answer_is_valid_by_openais_types(
    service: Service, upstream: Upstream, api_key: str, stream: bool
) -> None:
    replies = {
        "text": Reply(contents=RAIN),
        "nothing": Reply(contents=[]),
        "our own count": Reply(contents=["é", "雨", "🌧", '"\\\n\0'], usage=None),
        "calls": calling(("call_a", "get_weather", '{"city":"Paris"}'), ("7f", "agents__ask", "{}")),
        "a custom call": calling(("call_a", "apply_patch", '{"input":"*** é"}')),
        "cut": Reply(finish_reason="length"),
        "filtered": Reply(finish_reason="content_filter"),
        "refused": Reply(contents=[], refusals=["I", " will", " not."]),
    }
    for name, reply in replies.items():
        upstream.replies.append(reply)
        body = {"model": "forte", "input": "Hi", "tools": [FORECAST, PATCH, AGENTS], "stream": stream}
        answer = post(service, api_key, body)
        assert answer.status == 200, name
        if stream:
            events = read_events(answer.body)
            assert kinds(events)[-1] in ("completed", "incomplete"), name
            told = events[-1]["response"]
        else:
            told = answer.json
            check_response(told)
        assert told["status"] == ("incomplete" if name in ("cut", "filtered") else "completed"), name
        assert told["id"] == f"resp_{answer.headers['x-request-id']}"
        receipt = ask(service, "GET", f"/v1/usage/requests/{told['id']}", api_key)
        assert receipt.json["completion_tokens"] == told["usage"]["output_tokens"], name


def test_a_tool_loop_of_several_turns_sends_all_items_back(client: openai.OpenAI, upstream: Upstream) -> None:
    conversation: ResponseInputParam = [{"role": "user", "content": "Will it rain?"}]
    turns = [
        calling(("call_a", "get_weather", '{"city":"Paris"}'), ("call_b", "agents__ask", '{"city":"Rome"}')),
        calling(("call_c", "apply_patch", '{"input":"*** é\\n"}')),
        Reply(contents=RAIN),
    ]
    said = ""
    for turn, reply in enumerate(turns):
        upstream.replies.append(reply)
        with client.responses.stream(
            model="forte", input=conversation, tools=[FORECAST, PATCH, AGENTS], store=False
        ) as stream:
            response = stream.get_final_response()
        said = response.output_text
        conversation += [item.to_dict() for item in response.output]
        for item in response.output:
            if item.type in ("function_call", "custom_tool_call"):
                output: Any = {"type": f"{item.type}_output", "call_id": item.call_id, "output": f"done {turn}"}
                conversation.append(output)
    assert said == "It rains."
    ask_item = next(item for item in conversation if item.get("call_id") == "call_b")
    assert (ask_item.get("namespace"), ask_item.get("name")) == ("agents", "ask")
    patched = next(item for item in conversation if item.get("call_id") == "call_c")
    assert patched.get("input") == "*** é\n"
    told = upstream.requests[2].json["messages"]
    assert [message["role"] for message in told[1:]] == ["user", "assistant", "tool", "tool", "assistant", "tool"]
    called = [call["function"]["name"] for message in told for call in message.get("tool_calls", ())]
    assert called == ["get_weather", "agents__ask", "apply_patch"]


class Forecast(BaseModel):
    degrees: int
    wet: bool


def test_a_structured_answer_is_parsed(client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=['{"degrees":', '12,"wet":true}']))
    response = client.responses.parse(model="mezzo", input="How is it?", text_format=Forecast)
    assert response.output_parsed == Forecast(degrees=12, wet=True)
    wanted = upstream.requests[0].json["response_format"]
    assert (wanted["type"], wanted["json_schema"]["strict"]) == ("json_schema", True)
    assert wanted["json_schema"]["schema"]["required"] == ["degrees", "wet"]


def test_the_same_conversation_costs_the_same_as_chat_completions(service: Service, upstream: Upstream) -> None:
    turns = [
        Reply(contents=RAIN, usage=None),
        calling(("call_a", "get_weather", '{"city":"Paris"}')),
        Reply(usage=None),
    ]
    spent, sent = [], []
    for is_response in (False, True):
        account = service.new_account()
        api_key = service.new_key(account)
        upstream.requests.clear()
        for stream in (False, True):
            upstream.replies.extend(turns)
            for turn in range(len(turns)):
                body = _response_turn(turn) if is_response else _chat_turn(turn)
                body |= {"model": "forte", "stream": stream, "temperature": 0.5}
                # Without spaces, since white space in tools is counted too.
                given = json.dumps(body, separators=(",", ":")).encode()
                answer = (post if is_response else post_chat)(service, api_key, given)
                assert answer.status == 200
        spent.append(service.settled_balance_nanos(account))
        sent.append([{**request.json, "prompt_cache_key": None} for request in upstream.requests])
    assert sent[0] == sent[1]
    assert spent[0] == spent[1]


def _chat_turn(turn: int) -> dict[str, Any]:
    call = {"id": "call_a", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Paris?"},
        {"role": "assistant", "content": "See.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_a", "content": "rain"},
    ]
    return {"messages": messages[: (1, 1, 3)[turn]], "tools": [{"type": "function", "function": TOOL}]}


def _response_turn(turn: int) -> dict[str, Any]:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Paris?"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "See.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "call_a", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_a", "output": "rain"},
    ]
    return {"input": items[: (1, 1, 4)[turn]], "tools": [{"type": "function", **TOOL}]}


def test_errors_are_the_ones_of_the_table(service: Service, client: openai.OpenAI, upstream: Upstream) -> None:
    asking: dict[str, Any] = {"model": "mezzo", "input": "Hi"}
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(**asking, previous_response_id="resp_1")
    assert refused.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="gpt-4o", input="Hi")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    upstream.replies.append(Reply(status=400, body=TOO_LONG))
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(**asking)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input")
    poor = client.with_options(api_key=service.new_key(service.new_account(credits="0")))
    with pytest.raises(openai.APIStatusError) as unpaid:
        poor.responses.create(**asking)
    assert (unpaid.value.status_code, unpaid.value.code) == (402, "insufficient_quota")
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="sk-unknown").responses.create(**asking)
    limited = service.new_account()
    service.legato("accounts", "set", limited, "--requests-per-minute", "1")
    slow = client.with_options(api_key=service.new_key(limited))
    slow.responses.create(**asking)
    with pytest.raises(openai.RateLimitError) as busy:
        slow.responses.create(**asking)
    assert int(busy.value.response.headers["retry-after"]) >= 1


def test_a_full_window_is_told_within_the_stream_as_openai_does(
    service: Service, client: openai.OpenAI, upstream: Upstream, account: str
) -> None:
    """Codex makes its conversation shorter after this event alone, whatever a status says."""
    asking: dict[str, Any] = {"model": "mezzo", "input": "Hi", "stream": True}
    upstream.replies.append(Reply(status=400, body=TOO_LONG))
    answer = post(service, service.new_key(account), asking)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert "x-ratelimit-remaining-requests" in answer.headers
    *begun, error, failed = read_events(answer.body)
    assert kinds(begun) == ["created", "in_progress"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
    assert (failed["type"], failed["response"]["error"]["code"]) == ("response.failed", "context_length_exceeded")
    upstream.replies.append(Reply(status=400, body=TOO_LONG))
    with pytest.raises(openai.APIError) as raised:
        list(client.responses.create(**asking))
    assert raised.value.code == "context_length_exceeded"
    assert service.settled_balance_nanos(account) == 5 * 10**9
    assert {hold.end for hold in service.holds(account)} == {"refused"}


def test_what_is_left_out_is_named(service: Service, client: openai.OpenAI, account: str) -> None:
    service.legato("accounts", "set", account, "--search", "off")
    answer = client.responses.with_raw_response.create(
        model="mezzo", input="Hi", truncation="auto", tools=[{"type": "web_search"}]
    )
    assert answer.headers["x-legato-ignored"] == "truncation, web_search"
    assert answer.parse().truncation == "disabled"


def test_a_stream_that_breaks_off_is_raised_and_charged_as_delivered(
    service: Service, client: openai.OpenAI, upstream: Upstream, account: str
) -> None:
    upstream.replies.append(Reply(contents=RAIN, cut_after=3))
    stream = client.responses.create(model="mezzo", input="Hi", stream=True)
    next(event for event in stream if event.type == "response.output_text.delta")
    with pytest.raises(openai.APIError) as broken:
        list(stream)
    assert broken.value.code == "server_error"
    service.settled_balance_nanos(account)
    [entry] = service.entries(account)
    assert entry.end == "upstream_cut"
    assert entry.completion_tokens > 0


def test_a_key_that_is_revoked_in_the_middle_ends_the_answer(service: Service, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=[" rain"], repeat=100_000, event_delay_s=0.02))
    account = service.new_account()
    made = service.make_key(account)
    answers: list[Answer] = []
    body = {"model": "mezzo", "input": "Hi", "stream": True}
    asking = threading.Thread(target=lambda: answers.append(post(service, made.api_key, body)))
    asking.start()
    request = wait_for_requests(upstream)
    wait_until(lambda: request.writes >= 5)
    service.legato("keys", "revoke", made.key.key_id)
    asking.join()
    *deltas, error, failed = read_events(answers[0].body)
    assert (error["code"], failed["response"]["error"]["code"]) == ("invalid_api_key", "invalid_api_key")
    text = "".join(event["delta"] for event in deltas if event["type"] == "response.output_text.delta")
    assert failed["response"]["output"][0]["content"][0]["text"] == text
    service.settled_balance_nanos(account)
    [entry] = service.entries(account)
    assert (entry.completion_tokens, entry.end) == (count(text), "key_refused")


def test_a_client_that_leaves_stops_the_model_and_pays_for_what_it_got(
    service: Service, client: openai.OpenAI, upstream: Upstream, account: str
) -> None:
    upstream.replies.append(Reply(contents=[" rain"], repeat=100_000, event_delay_s=0.02, usage=None))
    with client.responses.create(model="mezzo", input="Hi", stream=True) as stream:
        next(event for event in stream if event.type == "response.output_text.delta")
    wait_until(lambda: upstream.requests[0].aborted)
    service.settled_balance_nanos(account)
    [entry] = service.entries(account)
    assert entry.end == "client_gone"
    assert entry.completion_tokens >= 1


@pytest.mark.parametrize("option", ["credit", "spend_limit"])
def test_an_answer_ends_incomplete_where_the_credit_does(service: Service, upstream: Upstream, option: str) -> None:
    account = service.new_account("0.0001" if option == "credit" else "5.00")
    if option == "spend_limit":
        service.legato("limits", "set", account, "--day", "0.0001")
    upstream.replies.append(Reply(contents=[" rain"], repeat=2_000, usage=None))
    body = {"model": "mezzo", "input": "Hi", "stream": True}
    last = read_events(post(service, service.new_key(account), body).body)[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["usage"]["x-legato-end"] == option


def test_a_model_that_thinks_long_is_waited_for(upstream: Upstream) -> None:
    upstream.default_reply = Reply(contents=RAIN, first_event_delay_s=1.5)
    with Service(upstream, {"LEGATO_KEEPALIVE_S": "0.2"}) as service:
        api_key = service.new_key(service.new_account())
        answer = post(service, api_key, {"model": "forte", "input": "Hi", "stream": True})
    assert answer.body.startswith(b": still working on it\n\n")
    assert read_events(answer.body)[-1]["response"]["output"][0]["content"][0]["text"] == "It rains."


def test_events_are_read_by_the_type_of_the_library() -> None:
    """What strict validation refuses, so that the tests above can fail."""
    with pytest.raises(ValueError, match="validation error"):
        read_events(b'event: response.created\ndata: {"type":"response.created","sequence_number":0}\n\n')
    assert TypeAdapter(int).validate_python(1, strict=True) == 1
