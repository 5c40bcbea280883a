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
# Of all results together, when the window is full.
RESULTS_BYTES: Final = 400_000
NOTE: Final = "note 雨 "
SUMMARY: Final = "So far: notes were read."
# How often sub-agents are asked beside it.
ROUNDS: Final = 4
SUB_AGENTS: Final = 3
SCHEMA: Final = {"type": "object", "properties": {"path": {"type": "string"}}}
MOST_TOKENS: Final = 1_100_000


class Session(NamedTuple):
    """What was said: a question, and so many turns with a call and its result."""

    question: str
    turns: int
    result: str = NOTE

    @property
    def call_ids(self) -> list[str]:
        return [f"call_{number}" for number in range(self.turns)]


def as_chat(session: Session) -> dict[str, Any]:
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": session.question}]
    for call_id in session.call_ids:
        call = {"id": call_id, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call_id, "content": session.result})
    tool = {"type": "function", "function": {"name": "read", "parameters": SCHEMA}}
    return {"messages": messages, "tools": [tool], "max_tokens": 100}


def as_message(session: Session) -> dict[str, Any]:
    messages: list[Any] = [{"role": "user", "content": session.question}]
    for call_id in session.call_ids:
        call = {"type": "tool_use", "id": call_id, "name": "read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": call_id, "content": session.result}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    tools = [{"name": "read", "input_schema": SCHEMA}]
    return {"system": SYSTEM, "messages": messages, "tools": tools, "max_tokens": 100}


def as_response(session: Session) -> dict[str, Any]:
    items: list[Any] = [{"role": "user", "content": session.question}]
    for call_id in session.call_ids:
        items.append({"type": "function_call", "call_id": call_id, "name": "read", "arguments": "{}"})
        items.append({"type": "function_call_output", "call_id": call_id, "output": session.result})
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


@pytest.mark.parametrize("turns", [20, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", APIS)
def test_session_that_grows_past_the_window_goes_on_when_it_was_made_shorter(
    service: Service, upstream: Upstream, name: str, turns: int
) -> None:
    """The window is full in the middle."""
    api, account = APIS[name], service.new_account("200.00")
    api_key = service.new_key(account)
    upstream.default_reply = Reply(usage=None)
    result = NOTE * (RESULTS_BYTES // turns // len(NOTE.encode()))

    def send(session: Session) -> Answer:
        body = {"model": "forte", "stream": True, **api.render(session)}
        return ask(service, "POST", api.path, api_key, json.dumps(body, ensure_ascii=False).encode())

    def grow(question: str, most: int) -> None:
        # Sub-agents share the system prompt and the tools.
        sub_agents = [Session(f"Read part {number}.", 1, result) for number in range(SUB_AGENTS)]
        for turn in range(1, most + 1):
            others = [] if turn % (most // ROUNDS) else sub_agents
            for answer in threads.map(send, [Session(question, turn, result), *others]):
                assert answer.status == 200, answer.body

    with ThreadPoolExecutor(SUB_AGENTS + 1) as threads:
        grow("Read all notes.", turns)
        assert max(len(request.body) for request in upstream.requests) > RESULTS_BYTES
        upstream.replies.append(Reply(status=400, body=TOO_LONG))
        refused = send(Session("Read all notes.", turns + 1, result))
        assert refused.status == api.full_status
        error = refused.json["error"] if api.full_status == 400 else read_events(refused.body)[-1]["response"]["error"]
        assert api.full.items() <= error.items()
        # The summary stands for all that was before.
        grow(SUMMARY, turns // 2)
    service.settled_balance_nanos(account)
    charged = [hold.usage.prompt_tokens for hold in service.holds(account) if hold.state == "settled"]
    assert len(charged) == len(upstream.requests) - 1
    assert max(charged) > 10 * min(charged)
    assert service.audit() == []
