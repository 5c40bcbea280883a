"""Nothing that people and models say to each other is written: not on success, not on failure, not at debug level."""

import json
import secrets
from collections.abc import Mapping
from typing import Any

import pytest

from tests.e2e.chats import QUESTION
from tests.e2e.operations import PROCESSES, look_at
from tests.e2e.raw_http import CHAT, Answer, OpenChat, ask, post_chat, send_bytes
from tests.support.servers.collector import Collector
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until


class Canaries:
    """Words that stand nowhere else."""

    def __init__(self) -> None:
        self.words: dict[str, str] = {}

    def __call__(self, place: str) -> str:
        word = f"canary{secrets.token_hex(8)}"
        assert place not in self.words, "each place has a word of its own"
        self.words[place] = word
        return word


@pytest.fixture
def canary() -> Canaries:
    return Canaries()


def _conversation(canary: Canaries, path: str, **fields: Any) -> dict[str, Any]:
    call = {"id": f"call_{canary(path + ' call id')}", "type": "function"}
    arguments = json.dumps({"city": canary(f"{path} arguments")})
    parameters = {"type": "object", "properties": {canary(f"{path} parameter"): {"type": "string"}}}
    return {
        "model": "mezzo",
        "messages": [
            {"role": "system", "content": canary(f"{path} system")},
            {"role": "user", "content": canary(f"{path} user"), "name": canary(f"{path} name")},
            {
                "role": "assistant",
                "reasoning_content": canary(f"{path} past reasoning"),
                "reasoning_details": [{"type": "reasoning.text", "text": canary(f"{path} past detail")}],
                "tool_calls": [{**call, "function": {"name": "f", "arguments": arguments}}],
            },
            {"role": "tool", "tool_call_id": call["id"], "content": canary(f"{path} result")},
            {"role": "user", "content": [{"type": "text", "text": canary(f"{path} part")}]},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": canary(f"{path} function"),
                    "description": canary(f"{path} description"),
                    "parameters": parameters,
                },
            }
        ],
        "stop": [canary(f"{path} stop")],
        "user": canary(f"{path} user field"),
        "metadata": {canary(f"{path} metadata"): "1"},
        **fields,
    }


def _answers(canary: Canaries, path: str) -> Reply:
    """The same answer, streamed and not streamed."""
    function = {"name": canary(f"{path} called"), "arguments": json.dumps({"a": canary(f"{path} called with")})}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    answer = Reply(contents=[canary(f"{path} answer")], tool_calls=[call], message_tool_calls=[call])
    answer.reasoning = [canary(f"{path} reasoning")]
    return answer


def _succeed(service: Service, upstream: Upstream, api_key: str, canary: Canaries) -> None:
    ways: dict[str, dict[str, Any]] = {
        "whole": {},
        "folded": {"model": "fortissimo"},
        "streamed": {"stream": True},
        "large": {"stream": True},
        "shown": {"include_reasoning": True},
        "shown in a stream": {"include_reasoning": True, "stream": True},
    }
    for path, fields in ways.items():
        upstream.replies.append(_answers(canary, path))
        conversation = _conversation(canary, path, **fields)
        if path == "large":
            # Large prompts take a way of their own to the router.
            conversation["messages"].append({"role": "user", "content": "x" * 300_000})
        answer = post_chat(service, api_key, conversation)
        assert answer.status == 200
        assert canary.words[f"{path} answer"].encode() in answer.body
        is_shown = canary.words[f"{path} reasoning"].encode() in answer.body
        assert is_shown is path.startswith("shown")


def _think_aloud(service: Service, upstream: Upstream, api_key: str, canary: Canaries) -> None:
    """Asks in the forms of other vendors, whose answers tell what the model thinks."""
    for stream in (False, True):
        path = f"message {stream}"
        thoughts: list[dict[str, str]] = [
            {"type": "thinking", "thinking": canary(f"{path} thought"), "signature": f"1_{canary(f'{path} seal')}"},
            {"type": "redacted_thinking", "data": f"1_{canary(f'{path} redacted')}"},
        ]
        said = {"type": "text", "text": canary(f"{path} said")}
        message = {
            "model": "mezzo",
            "stream": stream,
            "thinking": {"type": "adaptive"},
            "messages": [
                {"role": "user", "content": canary(f"{path} user")},
                {"role": "assistant", "content": [*thoughts, said]},
                {"role": "user", "content": canary(f"{path} asks again")},
            ],
        }
        upstream.replies.append(_answers(canary, path))
        answer = ask(service, "POST", "/v1/messages", api_key, json.dumps(message).encode())
        assert answer.status == 200
        assert canary.words[f"{path} reasoning"].encode() in answer.body

        path = f"response {stream}"
        summary = [{"type": "summary_text", "text": canary(f"{path} summary")}]
        thought = {"type": "reasoning", "summary": summary, "encrypted_content": f"1_{canary(f'{path} seal')}"}
        response = {
            "model": "mezzo",
            "stream": stream,
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"summary": "auto"},
            "input": [
                {"role": "user", "content": canary(f"{path} user")},
                thought,
                {"role": "assistant", "content": canary(f"{path} said")},
                {"role": "user", "content": canary(f"{path} asks again")},
            ],
        }
        upstream.replies.append(_answers(canary, path))
        answer = ask(service, "POST", "/v1/responses", api_key, json.dumps(response).encode())
        assert answer.status == 200
        assert canary.words[f"{path} reasoning"].encode() in answer.body


def _fail_upstream(service: Service, upstream: Upstream, api_key: str, canary: Canaries) -> None:
    said = canary("upstream's error")
    error = json.dumps({"error": {"message": said, "code": said, "type": said}})
    completion = {"choices": [{"message": {"role": said, "content": 7}, "finish_reason": said}], said: said}
    failures = {
        "error": Reply(status=500, body=error),
        "refusal": Reply(status=400, body=error),
        "error header": Reply(status=503, body=error, headers={"X-Error": said, "Location": said}),
        "garbage": Reply(body=said, content_type="text/html"),
        "not a completion": Reply(body=json.dumps(completion)),
        "error event": Reply(events=[error]),
        "garbled event": Reply(events=[said]),
        "cut": Reply(contents=[canary("cut answer"), "more"], cut_after=2),
        "mid-stream error": Reply(events=['{"choices":[{"delta":{"content":"' + said + '"}}]}', error]),
    }
    for path, reply in failures.items():
        for stream in (False, True):
            upstream.default_reply = reply
            body = _conversation(canary, f"{path} {stream}", model="fortissimo", stream=stream)
            answer = post_chat(service, api_key, body)
            assert answer.status == 502 or b'{"error"' in answer.body
            assert answer.status == 200 or said.encode() not in answer.body
    upstream.default_reply = Reply()


def _send_nonsense(service: Service, api_key: str, canary: Canaries) -> None:
    bodies: Mapping[str, str] = {
        "no JSON": "{}",
        "role": '{{"messages":[{{"role":"{}","content":"x"}}]}}',
        "field": '{{"messages":[{{"{}":"user"}}]}}',
        "cut off": '{{"messages":[{{"role":"user","content":"{}',
        "content type": '{{"messages":[{{"role":"user","content":[{{"type":"{}"}}]}}]}}',
        "model": '{{"messages":[{{"role":"user","content":"x"}}],"model":"{}"}}',
        "tool": '{{"messages":[{{"role":"user","content":"x"}}],"tools":[{{"type":"{}"}}]}}',
        "tool name": '{{"messages":[{{"role":"user","content":"x"}}],"tools":[{{"type":"function","function":'
        '{{"name":"{} "}}}}]}}',
        "choice": '{{"messages":[{{"role":"user","content":"x"}}],"tool_choice":"{}"}}',
        "temperature": '{{"messages":[{{"role":"user","content":"x"}}],"temperature":"{}"}}',
    }
    answers: list[Answer] = []
    for place, body in bodies.items():
        answers.append(post_chat(service, api_key, body.format(canary(f"wrong {place}")).encode()))
        assert answers[-1].status == 400
    answers += [
        ask(service, "GET", f"/v1/models/{canary('model in the path')}", api_key),
        ask(service, "GET", f"/{canary('path')}", api_key),
        ask(service, "GET", f"/v1/usage?{canary('parameter')}={canary('value')}", api_key),
        ask(service, "GET", f"/v1/usage?start_time={canary('time')}", api_key),
        ask(service, "POST", CHAT, api_key, canary("compressed").encode(), {"Content-Encoding": "gzip"}),
        ask(service, "GET", "/v1/models", f"sk-legato-{canary('wrong key')}", headers={"X-Note": canary("header")}),
        send_bytes(service, f"{canary('not HTTP')}\r\n\r\n".encode()),
    ]
    for answer in answers:
        assert 400 <= answer.status < 500
        assert b"canary" not in answer.body


def _send_oddities(service: Service, upstream: Upstream, api_key: str, canary: Canaries) -> None:
    """Sends what stands beside a body, and a model's own word for an answer's end."""
    names = (
        "X-Request-Id",
        "User-Agent",
        "Cookie",
        "Referer",
        "traceparent",
        "tracestate",
        "baggage",
    )
    headers = {name: canary(f"header {name}") for name in (*names, "X-Forwarded-For", "OpenAI-Organization")}
    headers["Origin"] = f"https://{canary('origin')}.test"
    for stream in (False, True):
        upstream.replies.append(Reply(finish_reason=canary(f"finish reason {stream}")))
        chat = {"model": "mezzo", "messages": QUESTION, "stream": stream}
        named = {**headers, "Idempotency-Key": canary(f"name of the request {stream}")}
        path = f"{CHAT}?{canary(f'query {stream}')}"
        answer = ask(service, "POST", path, api_key, json.dumps(chat).encode(), named)
        assert answer.status == 200


def _leave(service: Service, upstream: Upstream, api_key: str, canary: Canaries) -> None:
    said = canary("answer to someone who left")
    upstream.replies.append(Reply(contents=[said, "more"], stall_after=2))
    upstream.requests.clear()
    chat = OpenChat(service, api_key, _conversation(canary, "left", stream=True))
    chat.read_until(said.encode())
    chat.leave()
    wait_until(lambda: upstream.requests[0].aborted)


def test_no_word_is_written_anywhere(
    service: Service, upstream: Upstream, collector: Collector, account: str, canary: Canaries
) -> None:
    made = service.make_key(account)
    _succeed(service, upstream, made.api_key, canary)
    _think_aloud(service, upstream, made.api_key, canary)
    _fail_upstream(service, upstream, made.api_key, canary)
    _send_nonsense(service, made.api_key, canary)
    _send_oddities(service, upstream, made.api_key, canary)
    _leave(service, upstream, made.api_key, canary)
    service.settled_balance_nanos(account)

    written = {path: path.read_bytes() for path in service.files()}
    names = {path.name for path in written}
    assert {"auth.db", "auth.db-wal", "metering.db", "metering.db-wal", "router.log", "edge-1.log"} <= names
    # What was on its way to the collector when the chats had ended is there when a later one is.
    trace_id = secrets.token_hex(16)
    later = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}
    post_chat(service, made.api_key, {"model": "mezzo", "messages": QUESTION}, headers=later)
    wait_until(lambda: {"chat mezzo", "chat upstream-model"} <= {span.name for span in collector.trace(trace_id)})
    metrics = [look_at(service, process, "/metrics").text.encode() for process in PROCESSES]
    everything = b"\n".join([*written.values(), *collector.bodies, *metrics])
    # The search finds what is there: who asked is recorded, and that they did.
    assert account.encode() in everything
    assert made.key.key_id.encode() in everything

    found = [place for place, word in canary.words.items() if word.encode() in everything]
    assert found == []
    secret = made.api_key.removeprefix("sk-legato-").removeprefix(made.key.key_id.removeprefix("key_"))
    assert len(secret) > 30
    assert secret.encode() not in everything
