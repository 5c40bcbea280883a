"""The bundled model, really run: its process, and the provider that talks to it."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from cli.supervision.health import HealthProbe
from services.router.local_model import WORK_PATH
from services.router.prompts.answer_prefix import PrefixStyle, add_prefix
from services.router.providers.base import Failure, Piece, ProviderCall, ProviderError, Timeouts
from services.router.providers.local.provider import LocalProvider
from tests.services.router.providers.asking import changed, make_call, opened

COMMAND = [sys.executable, "-m", "services.router.local_model"]
CALL = make_call(
    model_name="SmolLM2-135M-Instruct",
    messages_json=b'[{"role":"system","content":"Be brief."},{"role":"user","content":"Name a colour."}]',
    tools_json=b"",
    tool_choice_json=b"",
    parameters_json=b'{"temperature":0,"seed":1}',
    max_tokens=8,
    stream=True,
)
WEATHER = msgspec.json.encode(
    [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"enum": ["Paris", "Rome"]}},
                    "required": ["city"],
                    "additionalProperties": False,
                },
            },
        }
    ]
)
FORCED = b'{"type":"function","function":{"name":"get_weather"}}'


@pytest.fixture(scope="module")
def model_socket() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="lg-", dir="/tmp"))
    socket = folder / "model.sock"
    environment = {**os.environ, "LEGATO_LOCAL_MODEL_SOCKET": str(socket)}
    process = subprocess.Popen(COMMAND, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    # It says one line, when it serves.
    assert "model.serving" in process.stderr.readline()
    yield socket
    process.send_signal(signal.SIGTERM)
    said = process.stderr.read()
    assert process.wait(10) == 0
    assert said == ""
    process.stderr.close()
    shutil.rmtree(folder)


@pytest.fixture
async def provider(model_socket: Path) -> AsyncIterator[LocalProvider]:
    provider = opened(LocalProvider, timeouts=Timeouts(), socket=model_socket)
    yield provider
    await provider.aclose()


async def ask(provider: LocalProvider, call: ProviderCall) -> list[Piece]:
    async with aclosing(provider.answer(call)) as pieces:
        return [piece async for piece in pieces]


def test_model_tells_by_the_thread_that_works_that_it_does(model_socket: Path) -> None:
    health = HealthProbe("http", str(model_socket), WORK_PATH)
    assert health.is_serving()
    # Not with 404 or 501, which any thread would say.
    assert health.work_path == "/metrics"
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(model_socket))
        asking.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert asking.recv(100).startswith(b"HTTP/1.1 200")
    assert health.answers(60)


async def test_model_answers_in_one_piece(provider: LocalProvider) -> None:
    [piece] = await ask(provider, replace(CALL, stream=False))
    assert piece.contents[0].strip()
    assert piece.usage is not None
    assert piece.usage.prompt_tokens is not None
    assert piece.usage.prompt_tokens > 5
    assert 1 <= (piece.usage.completion_tokens or 0) <= 8


async def test_model_answers_as_a_stream(provider: LocalProvider) -> None:
    pieces = await ask(provider, CALL)
    assert sum(len(piece.contents) for piece in pieces) > 1
    assert pieces[-1].last
    assert pieces[-1].usage is not None


async def test_model_goes_on_with_the_beginning_of_its_answer(provider: LocalProvider) -> None:
    call = replace(CALL, max_tokens=24)

    def said(pieces: list[Piece]) -> str:
        return "".join(content for piece in pieces for content in piece.contents)

    whole = said(await ask(provider, call))
    words = whole.split(" ")
    begun = " ".join(words[: len(words) // 2])
    messages, parameters = add_prefix(call.messages, call.parameters, begun, PrefixStyle.LAST_MESSAGE)
    rest = said(await ask(provider, replace(call, messages=messages, parameters=parameters)))
    assert (begun + rest).startswith(whole)


@pytest.mark.parametrize("stream", [True, False])
async def test_model_calls_the_function_it_must_call(stream: bool, provider: LocalProvider) -> None:
    call = changed(CALL, tools_json=WEATHER, tool_choice_json=FORCED, max_tokens=60, stream=stream)
    [piece] = await ask(provider, call)
    [fragment] = piece.tool_calls
    assert fragment.name == "get_weather"
    assert msgspec.json.decode(fragment.arguments or "")["city"] in ("Paris", "Rome")
    assert not piece.contents


async def test_model_answers_without_what_it_does_not_take_and_says_so(provider: LocalProvider) -> None:
    parameters = {"temperature": 0, "reasoning_effort": "low", "verbosity": "low", "logit_bias": {"7": -100}}
    call = changed(CALL, parameters_json=msgspec.json.encode(parameters))
    assert any(piece.contents for piece in await ask(provider, call))
    assert call.ignored == ["reasoning_effort", "verbosity"]


async def test_form_of_the_answer_is_ignored_beside_tools_and_that_is_said(provider: LocalProvider) -> None:
    parameters_json = b'{"response_format":{"type":"json_object"},"parallel_tool_calls":true}'
    call = changed(CALL, tools_json=WEATHER, tool_choice_json=FORCED, max_tokens=60, parameters_json=parameters_json)
    [piece] = await ask(provider, call)
    assert piece.tool_calls
    assert call.ignored == ["response_format"]


async def test_model_calls_a_function_whose_schema_it_cannot_follow(provider: LocalProvider) -> None:
    tools = WEATHER.replace(b'"enum":["Paris","Rome"]', b'"$ref":"#/$defs/nowhere"')
    call = changed(CALL, tools_json=tools, tool_choice_json=FORCED)
    [piece] = await ask(provider, call)
    # Without a schema a small model may talk until it is cut.
    assert piece.tool_calls or piece.finish_reason == "length"


@pytest.mark.parametrize(
    "schema",
    [
        b'{"type":"string","pattern":"what was said"}',
        b'{"type":"object","properties":{"what was said":{"type":"string","minLength":100000}}}',
    ],
)
async def test_schema_that_it_cannot_follow_is_not_told(schema: bytes, provider: LocalProvider) -> None:
    """The process has said nothing of it: that is seen when it ends."""
    wanted = b'{"type":"json_schema","json_schema":{"name":"answer","schema":' + schema + b"}}"
    with contextlib.suppress(ProviderError):
        await ask(provider, changed(CALL, parameters_json=b'{"response_format":' + wanted + b"}"))


async def test_model_hears_the_result_of_a_call(provider: LocalProvider) -> None:
    messages = (
        b'[{"role":"user","content":"Weather?"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_1",'
        b'"type":"function","function":{"name":"get_weather","arguments":"{}"}}]},'
        b'{"role":"tool","tool_call_id":"call_1","content":"12 degrees"}]'
    )
    pieces = await ask(provider, changed(CALL, messages_json=messages, tools_json=WEATHER, tool_choice_json=b'"none"'))
    assert any(piece.contents for piece in pieces)


async def test_model_understands_content_in_parts(provider: LocalProvider) -> None:
    parts = b'[{"role":"user","content":[{"type":"text","text":"Name a"},{"type":"text","text":" colour."}]}]'
    [piece] = await ask(provider, changed(CALL, messages_json=parts, stream=False))
    assert piece.contents


async def test_prompt_longer_than_the_window_is_told_apart(provider: LocalProvider) -> None:
    messages = msgspec.json.encode([{"role": "user", "content": "word " * 9000}])
    with pytest.raises(ProviderError) as failure:
        await ask(provider, changed(CALL, messages_json=messages))
    assert failure.value.failure is Failure.CONTEXT


async def test_model_stops_when_its_client_is_gone(provider: LocalProvider) -> None:
    """Both of its places are taken by answers that are not read; the next question would wait for minutes."""
    endless = changed(CALL, parameters_json=b'{"ignore_eos":true}', max_tokens=8000)
    for _ in range(2):
        async with aclosing(provider.answer(endless)) as pieces:
            await anext(pieces)
    async with asyncio.timeout(60):
        await ask(provider, replace(CALL, max_tokens=2))


def test_missing_weights_are_told_in_one_line(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "LEGATO_LOCAL_MODEL_SOCKET": str(tmp_path / "model.sock"),
        "LEGATO_LOCAL_MODEL_FILE": str(tmp_path / "weights.gguf"),
    }
    ended = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "weights.gguf is missing" in ended.stderr
