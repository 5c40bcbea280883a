"""The basics with OpenAI's JavaScript client, on a Node that comes from a wheel."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.service import Service
from tests.support.toolchains.node import NODE, npm_ci
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import WAIT_TIMEOUT_S

SOURCES = Path(__file__).parent / "node"

CALL = {"id": "call_abc", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}

Converse = Callable[[str], Any]


@pytest.fixture(scope="session")
def client_folder() -> Path:
    return npm_ci(SOURCES, "node-e2e")


@pytest.fixture
def converse(client_folder: Path, service: Service, upstream: Upstream, api_key: str) -> Converse:
    def run(case: str) -> Any:
        environ = {**os.environ, "BASE_URL": service.base_url, "API_KEY": api_key}
        done = subprocess.run(
            [str(NODE), "client.js", case],
            cwd=client_folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=WAIT_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_chat(converse: Converse, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=["It", " rains."]))
    completion = converse("chat")
    assert completion["model"] == "mezzo"
    assert completion["choices"][0]["message"]["content"] == "It rains."
    assert completion["choices"][0]["finish_reason"] == "stop"
    assert completion["usage"]["total_tokens"] == 18


def test_stream(converse: Converse, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=["It", " rains."]))
    *spoken, counted = converse("stream")
    assert [chunk["choices"][0]["delta"].get("content") for chunk in spoken] == ["", "It", " rains.", None]
    assert spoken[-1]["choices"][0]["finish_reason"] == "stop"
    assert counted["choices"] == []
    assert counted["usage"]["total_tokens"] == 18


def test_stream_helper_puts_the_answer_together(converse: Converse, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=["It", " rains."]))
    completion = converse("streamHelper")
    assert completion["choices"][0]["message"]["content"] == "It rains."
    assert completion["usage"]["total_tokens"] == 18


def test_tool_calls(converse: Converse, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=[], message_tool_calls=[CALL], finish_reason="tool_calls"))
    [choice] = converse("tools")["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"] == [CALL]


def test_streamed_tool_calls(converse: Converse, upstream: Upstream) -> None:
    pieces = [
        {"index": 0, "id": "call_abc", "type": "function", "function": {"name": "get_weather", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"city":'}},
        {"index": 0, "function": {"arguments": '"Paris"}'}},
    ]
    upstream.replies.append(Reply(contents=[], tool_calls=pieces, finish_reason="tool_calls"))
    [choice] = converse("streamedTools")["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    [call] = choice["message"]["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("call_abc", "get_weather")
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}


def test_models(converse: Converse) -> None:
    models = converse("models")
    assert [model["id"] for model in models] == ["auto", "mezzo", "forte", "fortissimo"]
    assert {model["object"] for model in models} == {"model"}


def test_error(converse: Converse) -> None:
    error = converse("error")
    request_id = error.pop("requestId")
    assert len(request_id) == 32
    assert error == {
        "kind": "BadRequestError",
        "status": 400,
        "type": "invalid_request_error",
        "code": "model_not_found",
        "param": "model",
    }


def test_failure_in_mid_stream_is_raised(converse: Converse, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=["It", " rains", "."], cut_after=3))
    error = converse("brokenStream")
    told = (error["chunks"], error["kind"], error["type"], error["code"])
    assert told == (3, "APIError", "api_error", "upstream_error")
