"""One conversation by each API: the same requests to the model, and the same charge to the nano-dollar."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import grpc
import pytest

from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.chat.v1.chat_pb2_grpc import ChatServiceStub
from tests.e2e.raw_http import CHAT, ask
from tests.support.rpc_chats import socket_of, to_chat
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import WAIT_TIMEOUT_S

SCHEMA: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Final = {"name": "get_weather", "description": "The weather of a city", "parameters": SCHEMA}
CITIES: Final = ("Paris", "Rome")
CALLS: Final[list[dict[str, Any]]] = [
    {"id": f"call_{city}", "type": "function", "function": {"name": "get_weather", "arguments": f'{{"city":"{city}"}}'}}
    for city in CITIES
]
TURNS: Final = (
    Reply(contents=["Let me ", "see."], usage=None),
    Reply(
        contents=["I", " ask."],
        tool_calls=[{"index": index, **call} for index, call in enumerate(CALLS)],
        message_tool_calls=CALLS,
        finish_reason="tool_calls",
        usage=None,
    ),
    # Some of its prompt was cached.
    Reply(
        contents=["It", " rains", " – 雨."],  # noqa: RUF001
        usage={"prompt_tokens": 97, "completion_tokens": 13, "prompt_tokens_details": {"cached_tokens": 64}},
    ),
    Reply(contents=["Goodbye", "."], usage=None),
)
Fields = dict[str, Any]


def chat(turn: int) -> Fields:
    messages: list[Fields] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How is the weather in Paris and Rome?"},
        {"role": "assistant", "content": "I ask.", "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": "call_Paris", "content": "rain"},
        {"role": "tool", "tool_call_id": "call_Rome", "content": "Error: no such city"},
        {"role": "assistant", "content": "It rains."},
        {"role": "user", "content": "Thanks 🌧"},
    ]
    return {"messages": messages[: (2, 2, 5, 7)[turn]], "tools": [{"type": "function", "function": WEATHER}]}


def message(turn: int) -> Fields:
    calls = [
        {"type": "tool_use", "id": f"call_{city}", "name": "get_weather", "input": {"city": city}} for city in CITIES
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "call_Paris", "content": "rain"},
        {"type": "tool_result", "tool_use_id": "call_Rome", "content": "no such city", "is_error": True},
    ]
    messages: list[Fields] = [
        {"role": "user", "content": "How is the weather in Paris and Rome?"},
        {"role": "assistant", "content": [{"type": "text", "text": "I ask."}, *calls]},
        {"role": "user", "content": results},
        {"role": "assistant", "content": "It rains."},
        {"role": "user", "content": "Thanks 🌧"},
    ]
    tool = {"name": "get_weather", "description": WEATHER["description"], "input_schema": SCHEMA}
    return {"system": "Be brief.", "messages": messages[: (1, 1, 3, 5)[turn]], "tools": [tool]}


def response(turn: int) -> Fields:
    calls = [{"type": "function_call", "call_id": call["id"], **call["function"]} for call in CALLS]
    items: list[Fields] = [
        {"role": "user", "content": [{"type": "input_text", "text": "How is the weather in Paris and Rome?"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I ask."}]},
        *calls,
        {"type": "function_call_output", "call_id": "call_Paris", "output": "rain"},
        {"type": "function_call_output", "call_id": "call_Rome", "output": "Error: no such city"},
        {"role": "assistant", "content": "It rains."},
        {"role": "user", "content": "Thanks 🌧"},
    ]
    asked = {"instructions": "Be brief.", "input": items[: (1, 1, 6, 8)[turn]]}
    return {**asked, "tools": [{"type": "function", **WEATHER}]}


def over_http(path: str, limit: str, form: Callable[[int], Fields]) -> Callable[[Service, str, int, bool], None]:
    def send(service: Service, api_key: str, turn: int, stream: bool) -> None:
        body = {"model": "forte", limit: 500, "stream": stream, **form(turn)}
        # Without spaces, since those of tools are counted too.
        answer = ask(service, "POST", path, api_key, json.dumps(body, separators=(",", ":")).encode())
        assert answer.status == 200, answer.body

    return send


def over_rpc(service: Service, api_key: str, turn: int, stream: bool) -> None:
    asked = to_chat({"model": "forte", "max_tokens": 500, **chat(turn)})
    asked.tools[0].function.parameters_json = json.dumps(SCHEMA, separators=(",", ":"))
    metadata = (("authorization", f"Bearer {api_key}"),)
    with grpc.insecure_channel(socket_of(service.data)) as channel:
        stub = ChatServiceStub(channel)
        if stream:
            assert [*stub.Stream(pb.StreamRequest(chat=asked), metadata=metadata, timeout=WAIT_TIMEOUT_S)]
        else:
            stub.Complete(pb.CompleteRequest(chat=asked), metadata=metadata, timeout=WAIT_TIMEOUT_S)


SENDERS: Final[Mapping[str, Callable[[Service, str, int, bool], None]]] = {
    "chat": over_http(CHAT, "max_tokens", chat),
    "messages": over_http("/v1/messages", "max_tokens", message),
    "responses": over_http("/v1/responses", "max_output_tokens", response),
    "grpc": over_rpc,
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_conversation_costs_the_same_by_each_api(service: Service, upstream: Upstream, stream: bool) -> None:
    charged, sent = {}, {}
    for api, send in SENDERS.items():
        account = service.new_account()
        api_key = service.new_key(account)
        upstream.requests.clear()
        for turn, reply in enumerate(TURNS):
            upstream.replies.append(reply)
            send(service, api_key, turn, stream)
        service.settled_balance_nanos(account)
        holds = service.holds(account)
        assert {hold.api for hold in holds} == {api}
        charged[api] = [(hold.charged_nanos, hold.usage, hold.basis, hold.end) for hold in holds]
        sent[api] = [_said(request.json) for request in upstream.requests]
        for hold in holds:
            path = f"/v1/usage/requests/{hold.request_id}"
            told = ask(service, "GET", path, api_key).json
            assert (told["api"], told["cost_nanos"]) == (api, hold.charged_nanos)
    assert len(charged["chat"]) == len(TURNS)
    assert all(nanos > 0 for nanos, *_ in charged["chat"])
    for api in SENDERS:
        assert sent[api] == sent["chat"], api
        assert charged[api] == charged["chat"], api
    assert service.audit() == []


def _said(request: Fields) -> Fields:
    """Returns a request to the model, without how it is asked for an answer: a short one may be asked for whole."""
    aside = ("prompt_cache_key", "stream", "stream_options")
    return {name: value for name, value in request.items() if name not in aside}
