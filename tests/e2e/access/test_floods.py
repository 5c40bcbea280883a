"""Floods of those who have no key: they cost little, and those who have one are served meanwhile. And of prompts that
are refused: nothing of them stays."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import openai
import pytest

from edge.wire.body_reader import LARGEST_BODY_BYTES
from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import ask, post_chat
from tests.support.service import Service
from tests.support.upstreams.openai import Upstream
from tests.support.waiting import WAIT_TIMEOUT_S

FLOODING = 24
SILENT = 1000
WRONG_KEYS = 5
# What thousands of connections need by themselves; a flood's bodies would be many times that.
BOUND_BYTES = 50 * 1024 * 1024

BIG_PROMPTS = 6
# More than any model's window, however it counts.
BIG_PROMPT = "and so on " * (7 * 1024 * 1024 // 10)
# As much as three of them. When all that were over stayed, the edge grew by more than twice this.
FEW_PROMPTS_BYTES = 42 * 1024 * 1024


@pytest.fixture(scope="module")
def flooded(shared_upstream: Upstream) -> Iterator[Service]:
    """A service of its own, whose memory no other test uses."""
    environ = {"LEGATO_TRUSTED_PROXIES": "127.0.0.1", "LEGATO_WRONG_KEYS_PER_MINUTE": str(WRONG_KEYS)}
    with Service(shared_upstream, environ) as service:
        yield service


@pytest.fixture
async def client(flooded: Service, upstream: Upstream) -> AsyncIterator[openai.AsyncOpenAI]:
    key = flooded.new_key(flooded.new_account())
    async with openai.AsyncOpenAI(base_url=flooded.base_url, api_key=key, max_retries=0) as client:
        # Whatever the first chat needs for good is not the flood's.
        await chat(client)
        yield client


async def chat(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="mezzo", messages=QUESTION)
    assert answer.choices[0].message.content


def resident_bytes(service: Service, peak: bool = False, process: str = "edge-1") -> int:
    status = Path(f"/proc/{service.process_id(process)}/status").read_text()
    found = re.search(rf"^{'VmHWM' if peak else 'VmRSS'}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


async def send_body_without_key(service: Service) -> bytes:
    """The first line of what comes back, once all is said."""
    reader, writer = await asyncio.open_connection(*service.address)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\ncontent-length: %d\r\n\r\n" % LARGEST_BODY_BYTES)
    piece = bytes(256 * 1024)
    for _ in range(LARGEST_BODY_BYTES // len(piece)):
        writer.write(piece)
        await writer.drain()
    line = await reader.readline()
    writer.close()
    # The last of it may still be on its way.
    await writer.wait_closed()
    return line


@pytest.mark.long
async def test_flood_of_bodies_without_a_key_takes_no_room(flooded: Service, client: openai.AsyncOpenAI) -> None:
    before_bytes = resident_bytes(flooded)
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        flood = asyncio.gather(*(send_body_without_key(flooded) for _ in range(FLOODING)))
        while not flood.done():
            await chat(client)
            # Within the key's own rate.
            await asyncio.sleep(0.05)
        assert {line[:13] for line in await flood} == {b"HTTP/1.1 401 "}

    assert resident_bytes(flooded, peak=True) - before_bytes < BOUND_BYTES


@pytest.mark.long
async def test_sockets_that_say_nothing_take_little_room_and_are_closed(
    flooded: Service, client: openai.AsyncOpenAI
) -> None:
    before_bytes = resident_bytes(flooded)
    async with asyncio.timeout(WAIT_TIMEOUT_S), contextlib.AsyncExitStack() as sockets:
        readers = []
        for _ in range(SILENT):
            reader, writer = await asyncio.open_connection(*flooded.address)
            sockets.callback(writer.close)
            readers.append(reader)
        await chat(client)
        assert resident_bytes(flooded) - before_bytes < BOUND_BYTES

        last_words = await asyncio.gather(*(reader.read() for reader in readers))
        assert {words[:13] for words in last_words} == {b"HTTP/1.1 408 "}
        await chat(client)


@pytest.mark.long
def test_big_prompts_that_are_refused_take_no_room_when_they_are_over(flooded: Service) -> None:
    """Neither where they were read nor where they were counted. What goes round in a circle with the error would stay
    until the collector of garbage comes, more than a hundred prompts later."""
    api_key = flooded.new_key(flooded.new_account("500.00"))

    def ask_in_vain() -> int:
        messages = [{"role": "user", "content": BIG_PROMPT}]
        return post_chat(flooded, api_key, {"model": "mezzo", "messages": messages}).status

    processes = ("edge-1", "router")
    ask_in_vain()
    before_bytes = [resident_bytes(flooded, process=process) for process in processes]
    assert [ask_in_vain() for _ in range(BIG_PROMPTS)] == [400] * BIG_PROMPTS
    for process, bytes_before in zip(processes, before_bytes, strict=True):
        assert resident_bytes(flooded, process=process) - bytes_before < FEW_PROMPTS_BYTES, process


def list_models(service: Service, api_key: str, address: str) -> int:
    return ask(service, "GET", "/v1/models", api_key, headers={"X-Forwarded-For": address}).status


def test_address_that_guesses_keys_is_held_off_and_good_keys_from_there_are_not(flooded: Service) -> None:
    guesser, neighbour = "203.0.113.7", "203.0.113.8"
    for _ in range(WRONG_KEYS):
        assert list_models(flooded, "sk-legato-guess", guesser) == 401

    answer = ask(flooded, "GET", "/v1/models", "sk-legato-guess", headers={"X-Forwarded-For": guesser})
    assert answer.status == 429
    assert answer.error["type"] == "rate_limit_error"
    assert int(answer.headers["retry-after"]) >= 1
    assert list_models(flooded, flooded.new_key(flooded.new_account()), guesser) == 200
    assert list_models(flooded, "sk-legato-guess", neighbour) == 401


def test_this_machine_may_guess_as_often_as_it_likes(flooded: Service) -> None:
    for _ in range(2 * WRONG_KEYS):
        assert ask(flooded, "GET", "/v1/models", "sk-legato-guess").status == 401
