"""Chats through a real server, against model servers on real sockets."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato_protos.router.v1.router_pb2 import USAGE_SOURCE_PROVIDER, ChatRequest, Grant
from legato_protos.type.v1.class_allowance_pb2 import ClassAllowance
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason, forget_origin
from services.chassis.exchange.rpc import RpcCall
from services.chassis.telemetry.log import Log
from services.router.chat.class_choice import resolve_class
from services.router.prompts.prompt import load_character
from services.router.prompts.tokens import count
from tests.services.router.harness import WAYS, Router, as_json, refusal_of, running_router, target
from tests.support.leftovers import nothing_is_left
from tests.support.upstreams.openai import Reply, Upstream

CHARACTER = load_character()
TOOLS = b'[ {"type":"function", "function":{"name":"weather","parameters":{"type":"object"}}} ]'
PATHS = pytest.mark.parametrize("tools_json", [b"", TOOLS], ids=["plain", "tools"])


@WAYS
@pytest.mark.parametrize("stream", [True, False])
async def test_answer_comes_with_its_class_counts_and_usage(
    ordinary: bool, stream: bool, router: Router, upstream: Upstream
) -> None:
    upstream.replies.append(
        Reply(usage={"prompt_tokens": 20, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}})
    )
    answer = await router.ask(ordinary=ordinary, stream=stream, max_tokens=77)
    assert answer.text == "Hello, world!"
    assert answer.responses[0].started.class_id == "forte"
    assert answer.responses[0].started.max_tokens == 77 == upstream.requests[0].json["max_tokens"]
    assert sum(response.HasField("started") for response in answer.responses) == 1
    assert sum(response.HasField("finished") for response in answer.responses) == 1
    assert answer.finished.finish_reason == "stop"
    assert answer.finished.usage == Usage(prompt_tokens=20, cached_tokens=4, completion_tokens=9)
    assert answer.finished.usage_source == USAGE_SOURCE_PROVIDER
    # An answer in one piece that its provider has counted is not counted again.
    assert answer.responses[-1].output_tokens == (4 if stream else 9)
    assert answer.responses[-1].prompt_tokens > count(CHARACTER.text)
    assert upstream.requests[0].json["stream"]
    assert upstream.requests[0].json["model"] == "main-model"


@WAYS
@pytest.mark.parametrize("stream", [True, False])
async def test_answered_chat_leaves_nothing_to_the_collector_of_garbage(
    ordinary: bool, stream: bool, router: Router
) -> None:
    await router.ask(ordinary=ordinary, stream=stream)
    async with nothing_is_left():
        for _ in range(10):
            await router.ask(ordinary=ordinary, stream=stream)


@WAYS
async def test_chat_whose_caller_left_leaves_nothing_to_the_collector_of_garbage(
    ordinary: bool, router: Router, upstream: Upstream
) -> None:
    async def ask_and_leave() -> None:
        upstream.replies.append(Reply(repeat=1000, event_delay_s=0.01))
        call = router.open(ordinary=ordinary)
        await call.receive()
        call.cancel()
        await upstream.requests[-1].ended.wait()

    await ask_and_leave()
    async with nothing_is_left():
        for _ in range(5):
            await ask_and_leave()


# Of the provider, of the prompt, and of the provider in mid-stream.
FAILURES = {
    "refused": (Reply(status=500), {}),
    "not fitting": (Reply(), {"messages_json": as_json([{"role": "user", "content": "and on " * 100_000}])}),
    "broken": (Reply(cut_after=2, event_delay_s=0.01), {}),
}


@WAYS
@pytest.mark.parametrize(("reply", "fields"), FAILURES.values(), ids=FAILURES)
async def test_chat_that_fails_leaves_nothing_to_the_collector_of_garbage(
    reply: Reply, fields: dict[str, Any], ordinary: bool, router: Router, upstream: Upstream
) -> None:
    async def ask_in_vain() -> None:
        try:
            await router.ask(ordinary=ordinary, **fields)
        except LegatoError as error:
            forget_origin(error)
        else:
            pytest.fail("It was answered.")

    upstream.default_reply = reply
    await ask_in_vain()
    async with nothing_is_left():
        for _ in range(5):
            await ask_in_vain()


@PATHS
async def test_character_stands_before_the_clients_system_message(
    tools_json: bytes, router: Router, upstream: Upstream
) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "system", "content": "Rhyme."},
        {"role": "user", "content": "Hi"},
    ]
    await router.ask(as_json(messages), tools_json=tools_json)
    assert upstream.requests[0].json["messages"] == [
        {"role": "system", "content": CHARACTER.text},
        {"role": "system", "content": "Be brief."},
        *messages[1:],
    ]


async def test_tools_go_upstream_byte_for_byte(router: Router, upstream: Upstream) -> None:
    choice = b'{ "type":"function","function":{"name":"weather"} }'
    parameters = b'{"temperature":0.70,"parallel_tool_calls":false}'
    await router.ask(tools_json=TOOLS, tool_choice_json=choice, parameters_json=parameters)
    body = upstream.requests[0].body
    assert b'"tools":' + TOOLS + b"," in body
    assert b'"tool_choice":' + choice + b"," in body
    assert parameters[1:-1] in body


async def test_tool_calls_come_out_in_one_form_and_decide_the_finish_reason(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(
        Reply(
            contents=[],
            tool_calls=[
                {"id": "x1", "function": {"name": "weather", "arguments": {"city": "Paris"}}},
                {"index": 0, "id": "x2", "function": {"name": "weather", "arguments": '{"city":'}},
                {"index": 0, "function": {"arguments": '"Rome"}'}},
            ],
        )
    )
    answer = await router.ask(tools_json=TOOLS)
    assert [(call["id"], msgspec.json.decode(call["arguments"])) for call in answer.tool_calls] == [
        ("call_x1", {"city": "Paris"}),
        ("call_x2", {"city": "Rome"}),
    ]
    assert answer.finished.finish_reason == "tool_calls"
    assert answer.responses[-1].output_tokens >= count("weather") * 2


async def test_tool_messages_of_earlier_turns_go_upstream_as_the_client_sent_them(
    router: Router, upstream: Upstream
) -> None:
    messages = (
        b'[{"role":"user","content":"?"},{"role":"assistant","content":null,"tool_calls":[{"id":"mine_7","type":"function",'
        b'"function":{"name":"weather","arguments":"{\\"city\\":\\"Paris\\"}"}}]},{"role":"tool","tool_call_id":"mine_7",'
        b'"content":[{"type":"text","text":"12 degrees"}]}]'
    )
    await router.ask(messages, tools_json=TOOLS)
    assert msgspec.json.decode(upstream.requests[0].body)["messages"][1:] == msgspec.json.decode(messages)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("eos", "stop"),
        ("tool_calls", "stop"),
        ("model_length", "length"),
    ],
)
async def test_finish_reason_is_one_of_openais(said: str, told: str, router: Router, upstream: Upstream) -> None:
    upstream.replies.append(Reply(finish_reason=said))
    assert (await router.ask()).finished.finish_reason == told


async def test_length_wins_over_tool_calls(router: Router, upstream: Upstream) -> None:
    call = {"index": 0, "id": "call_1", "function": {"name": "weather", "arguments": '{"ci'}}
    upstream.replies.append(Reply(tool_calls=[call], finish_reason="length"))
    assert (await router.ask(tools_json=TOOLS)).finished.finish_reason == "length"


async def test_events_of_one_read_travel_as_one_response(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=["a", "b", "c"], at_once=True))
    [response] = (await router.ask()).responses
    assert list(response.contents) == ["a", "b", "c"]


@pytest.mark.parametrize("model", ["piano", "gpt-4", "Forte"])
async def test_unknown_class_is_refused_with_the_usable_ones_and_not_quoted(
    model: str, router: Router, upstream: Upstream
) -> None:
    refusal = await refusal_of(router, model=model)
    assert (refusal.reason, refusal.param) == (Reason.MODEL_UNKNOWN, "model")
    assert "auto, mezzo, forte, fortissimo" in refusal.message
    assert model not in refusal.message.split("Use one of")[0]
    assert not upstream.requests


@pytest.mark.parametrize(
    ("model", "preferred", "served"),
    [("auto", "", "forte"), ("", "", "forte"), ("auto", "mezzo", "mezzo"), ("fortissimo", "mezzo", "fortissimo")],
)
def test_auto_is_the_class_the_account_prefers(model: str, preferred: str, served: str) -> None:
    assert resolve_class(model, preferred) == served


async def test_parameters_that_cannot_be_read_are_refused_before_a_model_is_asked(
    router: Router, upstream: Upstream
) -> None:
    parameters = b'{"response_format":{"type":"json_schema","json_schema":"x"},"parallel_tool_calls":true}'
    assert (await refusal_of(router, tools_json=TOOLS, parameters_json=parameters)).reason is Reason.REQUEST_INVALID
    assert not upstream.requests


async def test_prompt_without_room_is_refused_with_the_numbers(socket_folder: Path, log: Log) -> None:
    async with (
        Upstream() as upstream,
        running_router(socket_folder, log, {target("small", context_tokens=20): upstream}) as router,
    ):
        refusal = await refusal_of(router)
        assert refusal.reason is Reason.CONTEXT_EXCEEDED
        assert " 20:" in refusal.message
        assert not upstream.requests


async def test_tool_definitions_take_their_room(router: Router, upstream: Upstream) -> None:
    await router.ask()
    big = as_json([{"type": "function", "function": {"name": "f", "description": "word " * 95_000}}])
    await router.ask(tools_json=big)
    small, fitted = (request.json.get("max_tokens") for request in upstream.requests)
    assert small is None
    assert 1 <= fitted < 5_000


async def test_prompt_the_provider_finds_too_long_is_the_clients_to_shorten(router: Router, upstream: Upstream) -> None:
    too_long = Reply(status=400, body='{"error":{"code":"context_length_exceeded","message":"canary"}}')
    upstream.replies += [too_long, too_long]
    refusal = await refusal_of(router)
    assert refusal.reason is Reason.CONTEXT_EXCEEDED
    assert "this model's maximum context length is" in refusal.message
    assert "canary" not in refusal.message


@WAYS
@pytest.mark.parametrize(
    ("reply", "stream"),
    [(Reply(delay_s=60), True), (Reply(delay_s=60), False), (Reply(repeat=1000, event_delay_s=0.01), True)],
    ids=["before the first byte", "one piece", "in the stream"],
)
async def test_upstream_is_closed_when_the_caller_leaves(
    reply: Reply, stream: bool, ordinary: bool, router: Router, upstream: Upstream
) -> None:
    upstream.replies.append(reply)
    call = router.open(ordinary=ordinary, stream=stream)
    request = await upstream.received()
    if not reply.delay_s:
        await call.receive()
    call.cancel()
    async with asyncio.timeout(60):
        await request.ended.wait()
    assert request.aborted


async def test_upstream_is_closed_when_the_caller_reads_no_further(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=["x" * 20_000], repeat=1000))
    call = router.open()
    request = await upstream.received()
    await asyncio.sleep(0.2)
    assert not request.ended.is_set()
    call.cancel()
    async with asyncio.timeout(60):
        await request.ended.wait()
    assert request.aborted


async def test_long_stream_passes_whole_and_in_order(router: Router, upstream: Upstream) -> None:
    contents = [f"{number} " for number in range(5_000)]
    upstream.replies.append(Reply(contents=contents))
    answer = await router.ask(max_tokens=10_000)
    assert answer.text == "".join(contents)
    counts = [response.output_tokens for response in answer.responses]
    assert counts == sorted(counts)


async def test_prompt_of_megabytes_is_counted_and_arrives_whole(socket_folder: Path, log: Log) -> None:
    messages = as_json([{"role": "user", "content": "All happy families are alike. " * 140_000}])
    async with (
        Upstream() as upstream,
        running_router(socket_folder, log, {target("vast", context_tokens=1_000_000): upstream}) as router,
    ):
        answer = await router.ask(messages, ordinary=True)
        assert answer.text == "Hello, world!"
        assert 840_000 <= answer.responses[-1].prompt_tokens <= 850_000
        assert messages[1:] in upstream.requests[0].body


async def test_first_message_must_open_the_chat(router: Router) -> None:
    call = RpcCall("Router", router.stub.Chat(), ChatRequest(grant=Grant()))
    with pytest.raises(LegatoError, match="opened first"):
        await call.receive()


@WAYS
async def test_chat_without_held_credit_is_refused_before_a_model_has_it(
    router: Router, upstream: Upstream, ordinary: bool
) -> None:
    assert "grant" in (await refusal_of(router, grant=None, ordinary=ordinary)).message
    assert not upstream.requests


async def test_one_line_is_logged_for_a_chat_and_nothing_of_what_was_said(
    router: Router, upstream: Upstream, log_text: Callable[[], str]
) -> None:
    canary = as_json([{"role": "user", "content": "canary"}])
    upstream.replies += [
        Reply(contents=["canary"]),
        # Each is repeated once.
        *[Reply(status=500, body="canary")] * 2,
        *[Reply(events=['{"error":"canary"}'])] * 2,
        Reply(events=['{"choices":[{"delta":{"content":"canary"}}]}', "canary"]),
    ]
    await router.ask(canary, tools_json=b'["canary"]')
    for _ in range(3):
        with pytest.raises(LegatoError):
            await router.ask(canary)
    assert "canary" not in log_text()
    lines = [msgspec.json.decode(line) for line in log_text().splitlines()]
    ended = [line for line in lines if line["level"] != "debug"]
    assert [line["end"] for line in ended] == ["complete", "refused", "refused", "upstream_cut"]
    first = ended[0]
    assert (first["request_id"], first["class_id"], first["model_name"]) == ("0" * 32, "forte", "main-model")


@pytest.mark.parametrize("model", ["fortissimo", "piano", "gpt-4"])
async def test_a_class_that_the_key_may_not_use_is_refused_like_an_unknown_one(
    model: str, router: Router, upstream: Upstream
) -> None:
    allowance = ClassAllowance(class_ids=["mezzo", "forte"])
    refusal = await refusal_of(router, model=model, allowed_classes=allowance)
    assert (refusal.reason, refusal.param) == (Reason.MODEL_UNKNOWN, "model")
    assert refusal.message == "There is no such model. Use one of auto, mezzo, forte."
    assert not upstream.requests


async def test_a_key_that_may_use_no_class_is_refused_whatever_it_asks_for(router: Router, upstream: Upstream) -> None:
    for model in ("auto", "forte"):
        refusal = await refusal_of(router, model=model, allowed_classes=ClassAllowance())
        assert (refusal.reason, refusal.message) == (Reason.MODEL_UNKNOWN, "There is no such model.")
    assert not upstream.requests


def test_auto_is_a_class_that_the_key_may_use() -> None:
    assert resolve_class("auto", "", ["mezzo", "fortissimo"]) == "mezzo"
    assert resolve_class("auto", "fortissimo", ["mezzo", "forte"]) == "forte"
