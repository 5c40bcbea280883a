"""Reads of nothing but texts, which are relayed without being parsed: the result is the same as if they were."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legato_protos.router.v1.router_pb2 import Grant
from services.chassis.http_client.connection import HttpConnection
from services.chassis.http_client.response import ResponseReader
from services.router import compiled
from services.router.answers import relay
from services.router.compiled import pack_no_read
from services.router.native import pack_read
from services.router.prompts import tokens
from services.router.providers.base import ProviderError, Timeouts
from services.router.providers.http.answer_connection import ChunkedResponse
from tests.services.router.providers.http.relayed_chat import DONE, a_chat, chunk, framed
from tests.support.python_calls import count_calls
from tests.support.waiting import until

MOST_CALLS_A_READ = 7


class Parsed:
    """Notes the reads of a connection that are parsed."""

    def __init__(self, connection: HttpConnection) -> None:
        self._feed = connection.response.feed
        self.reads: list[bytes] = []
        connection.response.feed = self.feed  # type: ignore[method-assign]

    def feed(self, data: bytes) -> None:
        self.reads.append(data)
        self._feed(data)


async def test_a_read_of_texts_is_relayed_without_being_parsed_and_wakes_no_task() -> None:
    async with a_chat(is_chunked=True) as (chat, _):
        parsed, waiter = Parsed(chat.connection), chat.connection._waiter
        chat.receive(framed(chunk("one ")))
        chat.receive(framed(chunk("two ") + chunk("three ")) + framed(chunk("four")))
        assert chat.contents == ["one ", "two ", "three ", "four"]
        assert parsed.reads == []
        assert chat.connection._waiter is waiter
        assert chat.relay.output_tokens == tokens.count("firstone two three four")
        assert chat.queued()[-1].output_tokens == chat.relay.output_tokens


async def test_reads_of_texts_and_all_others_keep_their_order() -> None:
    async with a_chat(is_chunked=True) as (chat, task):
        parsed = Parsed(chat.connection)
        for number in range(30):
            read = framed(chunk(f"{number} "))
            if number % 3 == 0:
                # A comment, which is not recognized.
                read = framed(b": ping\n\n" + chunk(f"{number} "))
            chat.receive(read)
        assert chat.contents == [f"{number} " for number in range(30)]
        assert len(parsed.reads) == 10
        chat.receive(framed(DONE) + b"0\r\n\r\n")
        await until(task.done)
        assert chat.queued()[-1].finished.usage.completion_tokens == chat.relay.output_tokens
        assert chat.connection.response.is_whole


# A word of more than 64 characters is split, and may count a token more: none of these makes one with its neighbours.
TEXTS = ["one", " two", " d\u00e9j\u00e0", " \U0001f3b5", 'say "three"\n', "4", " " + "5" * 40]


@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=8), st.data())
async def test_wherever_the_network_cuts_the_answer_is_the_same(texts: list[str], data: st.DataObject) -> None:
    stream = b"".join(framed(chunk(text)) for text in texts)
    async with a_chat(is_chunked=True) as (chat, _):
        while stream:
            size = data.draw(st.integers(1, len(stream)))
            chat.receive(stream[:size])
            stream = stream[size:]
        assert chat.contents == texts
        assert chat.relay.output_tokens == tokens.count("first" + "".join(texts))


@pytest.mark.parametrize("cut", range(1, len(framed(chunk("x"))) + 1))
async def test_a_read_that_begins_inside_a_chunk_is_parsed(cut: int) -> None:
    read = framed(chunk("x"))
    async with a_chat(is_chunked=True) as (chat, _):
        chat.receive(read + read[:cut])
        parsed = Parsed(chat.connection)
        chat.receive(read[cut:] + read)
        assert chat.contents == ["x"] * 3
        assert bool(parsed.reads) is (cut < len(read))
        # From then on, reads begin with a chunk again.
        parsed.reads.clear()
        chat.receive(read)
        assert chat.contents == ["x"] * 4
        assert parsed.reads == []


async def test_a_chunk_that_looks_like_an_event_inside_another_event_is_not_taken_for_one() -> None:
    async with a_chat(is_chunked=True) as (chat, _):
        begin, end = chunk("x")[:-2], b"\n\n"
        chat.receive(framed(begin[:-4]))
        chat.receive(framed(begin[-4:] + end))
        assert chat.contents == ["x"]
        chat.receive(framed(begin + b"\n"))
        # The same line again, before the event has ended: together they are no JSON.
        chat.receive(framed(chunk("y")))
        await until(lambda: chat.connection._transport is None or chat.transport.is_aborted)
        assert chat.contents == ["x"]


async def test_the_idle_timeout_restarts_with_every_read() -> None:
    async with a_chat(is_chunked=True) as (chat, _):
        before_s = chat.connection._deadline.at_s
        await until(lambda: asyncio.get_running_loop().time() > before_s - Timeouts().idle_s + 0.01)
        chat.receive(framed(chunk("more")))
        assert chat.connection._deadline.at_s > before_s


async def test_a_cancelled_chat_takes_nothing_more() -> None:
    async with a_chat(is_chunked=True) as (chat, task):
        chat.receive(framed(chunk("before")))
        task.cancel()
        chat.receive(framed(chunk("after")))
        await asyncio.gather(task, return_exceptions=True)
        assert chat.contents == ["before"]
        assert chat.transport.is_aborted


async def test_what_the_relay_fails_at_is_raised_in_the_task() -> None:
    async with a_chat(is_chunked=True) as (chat, task):

        def fail(_: object) -> int:
            raise ProviderError("broke")

        chat.relay.take = chat.relay.take_read = fail  # type: ignore[assignment,method-assign]
        chat.receive(framed(chunk("x")))
        with pytest.raises(ProviderError, match="broke"):
            await task


async def test_reads_are_covered_by_the_grant_up_to_where_more_is_requested() -> None:
    async with a_chat(Grant(prompt_tokens=10, output_tokens=100), is_chunked=True) as (chat, _):
        parsed = Parsed(chat.connection)
        # Each may be as many tokens as it has bytes.
        for _ in range(47):
            chat.receive(framed(chunk(" a")))
        assert parsed.reads == []
        chat.receive(framed(chunk(" a")))
        await until(lambda: chat.is_waiting)
        chat.receive(framed(chunk(" a")))
        await until(lambda: any(response.HasField("need") for response in chat.queued()))
        assert len(parsed.reads) == 2
        assert chat.relay.output_tokens == 50


async def test_a_read_of_texts_takes_few_function_calls() -> None:
    async with a_chat(is_chunked=True) as (chat, _):
        reads = [framed(chunk(text)) for text in ("one", " two", " three")]
        calls = [count_calls(lambda: chat.receive(read)) for read in reads]  # noqa: B023 - called at once
        assert max(calls) <= MOST_CALLS_A_READ


async def test_without_the_compiled_module_everything_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled.pack_read is pack_read
    monkeypatch.setattr(relay, "pack_read", pack_no_read)
    async with a_chat(is_chunked=True) as (chat, _):
        parsed = Parsed(chat.connection)
        chat.receive(framed(chunk("one ")) + framed(chunk("two")))
        assert chat.contents == ["one ", "two"]
        assert len(parsed.reads) == 1


HEADS = [
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
]


@given(st.sampled_from(HEADS), st.lists(st.binary(min_size=1, max_size=40), max_size=4), st.data())
def test_joined_chunks_are_those_of_the_response(head: bytes, chunks: list[bytes], data: st.DataObject) -> None:
    sent = head + b"".join(map(framed, chunks)) + b"0\r\n\r\n"
    joining, parsing = ChunkedResponse(), ResponseReader()
    for response in (joining, parsing):
        response.begin(is_asked=True)
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        for response in (joining, parsing):
            response.feed(sent[:size])
        sent = sent[size:]
        assert b"".join(joining.received) == b"".join(parsing.received)
    assert joining.take() == b"".join(chunks)
    assert joining.is_whole
    assert (joining.status, joining.body_bytes) == (parsing.status, parsing.body_bytes)
