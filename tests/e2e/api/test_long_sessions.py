"""Sessions as agents have them: every turn sends all that was said, until the window is full and it is made shorter."""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import pytest

from tests.e2e.raw_http import CHAT, Answer, ask
from tests.edge.responses.typed_events import read_events
from tests.support.service import Service
from tests.support.upstreams.openai import TOO_LONG, Reply, Upstream

SYSTEM: Final = "You keep notes. " * 500
# What each turn adds; about 400 KB in all.
TURNS: Final = 20
RESULT: Final = "note 雨 " * 2_000
SUMMARY: Final = "So far: notes were read."
SUB_AGENTS: Final = 3
SCHEMA: Final = {"type": "object", "properties": {"path": {"type": "string"}}}
MOST_TOKENS: Final = 1_100_000


class Session(NamedTuple):
    """What was said: a question, and so many turns with a call and its result."""

    question: str
    turns: int

    @property
    def call_ids(self) -> list[str]:
        return [f"call_{number}" for number in range(self.turns)]


def as_chat(session: Session) -> dict[str, Any]:
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": session.question}]
    for call_id in session.call_ids:
        call = {"id": call_id, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call_id, "content": RESULT})
    tool = {"type": "function", "function": {"name": "read", "parameters": SCHEMA}}
    return {"messages": messages, "tools": [tool], "max_tokens": 100}


def as_message(session: Session) -> dict[str, Any]:
    messages: list[Any] = [{"role": "user", "content": session.question}]
    for call_id in session.call_ids:
        call = {"type": "tool_use", "id": call_id, "name": "read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": call_id, "content": RESULT}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    tools = [{"name": "read", "input_schema": SCHEMA}]
    return {"system": SYSTEM, "messages": messages, "tools": tools, "max_tokens": 100}


def as_response(session: Session) -> dict[str, Any]:
    items: list[Any] = [{"role": "user", "content": session.question}]
    for call_id in session.call_ids:
        items.append({"type": "function_call", "call_id": call_id, "name": "read", "arguments": "{}"})
        items.append({"type": "function_call_output", "call_id": call_id, "output": RESULT})
    tools = [{"type": "function", "name": "read", "parameters": SCHEMA}]
    return {"instructions": SYSTEM, "input": items, "tools": tools, "max_output_tokens": 100}


class Api(NamedTuple):
    path: str
    render: Callable[[Session], dict[str, Any]]
    # The error of a window that is full, which is the end of a stream if it has no status of its own.
    full: Mapping[str, Any]
    full_status: int = 400


APIS: Final = {
    "chat": Api(CHAT, as_chat, {"code": "context_length_exceeded", "param": "messages"}),
    "messages": Api(
        "/v1/messages",
        as_message,
        {
            "type": "invalid_request_error",
            "message": f"prompt is too long: {MOST_TOKENS + 1} tokens > {MOST_TOKENS} maximum",
        },
    ),
    "responses": Api("/v1/responses", as_response, {"code": "context_length_exceeded"}, 200),
}


@pytest.mark.parametrize("name", APIS)
def test_session_that_grows_past_the_window_goes_on_when_it_was_made_shorter(
    service: Service, upstream: Upstream, name: str
) -> None:
    api, account = APIS[name], service.new_account("50.00")
    api_key = service.new_key(account)
    upstream.default_reply = Reply(usage=None)

    def send(session: Session) -> Answer:
        body = {"model": "forte", "stream": True, **api.render(session)}
        return ask(service, "POST", api.path, api_key, json.dumps(body, ensure_ascii=False).encode())

    with ThreadPoolExecutor(SUB_AGENTS + 1) as threads:
        for turns in range(1, TURNS + 1):
            # Sub-agents share the system prompt and the tools.
            sub_agents = [Session(f"Read part {number}.", 1) for number in range(SUB_AGENTS) if not turns % 10]
            for answer in threads.map(send, [Session("Read all notes.", turns), *sub_agents]):
                assert answer.status == 200, answer.body
    largest = max(len(request.body) for request in upstream.requests)
    assert largest > 300_000
    served = len(upstream.requests)
    upstream.replies.append(Reply(status=400, body=TOO_LONG))
    refused = send(Session("Read all notes.", TURNS + 1))
    assert refused.status == api.full_status
    error = refused.json["error"] if api.full_status == 400 else read_events(refused.body)[-1]["response"]["error"]
    assert api.full.items() <= error.items()
    # The summary stands for all that was before.
    for turns in (0, 1):
        assert send(Session(SUMMARY, turns)).status == 200
    service.settled_balance_nanos(account)
    charged = [hold.usage.prompt_tokens for hold in service.holds(account) if hold.state == "settled"]
    assert len(charged) == served + 2
    assert max(charged) > 10 * charged[-1]
    assert service.audit() == []
