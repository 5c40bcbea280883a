"""Every dialect, from the provider's bytes to what OpenAI's own client makes of ours.

The judge is the official client's accumulator. What it puts together from our stream must be what an answer in one
piece says, wherever the network happened to cut what came from the provider.
"""

import itertools
import re
from collections.abc import AsyncIterator, Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat._completions import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion_message import Annotation
from pydantic import TypeAdapter

from edge.api.completions import ChunkedReply
from edge.http.replies import WholeHttpReply
from edge.wire.completion_json import Chunks, Completion
from legato_protos.router.v1.router_pb2 import USAGE_SOURCE_PROVIDER, ChatResponse, Started
from services.chassis.http_client.response import ResponseReader
from services.router.answers.grants import ChatConversation, TokenAllowance
from services.router.answers.relay import Relay
from services.router.providers.answer import ProviderAnswer
from services.router.providers.anthropic.answer import MessageAnswer
from services.router.providers.base import Piece
from services.router.providers.gemini.grounded_answer import GroundedAnswer
from services.router.providers.http.answer_buffer import AnswerBuffer, BufferBudget
from services.router.providers.http.answer_connection import AnswerConnection, BodyReader
from services.router.providers.http.stream import Stream
from services.router.providers.openai.answer import CompletionAnswer
from services.router.providers.responses.answer import ResponseAnswer
from tests.services.router.providers.recordings import RECORDINGS
from tests.services.router.providers.wires import CALLS, COMPLETION_TOKENS, PROMPT_TOKENS, Recording

PAGE = Path(__file__).parents[4] / "docs" / "providers.md"
PROVIDERS: dict[str, Callable[[], ProviderAnswer]] = {
    "openai": CompletionAnswer,
    "anthropic": MessageAnswer,
    "gemini": GroundedAnswer,
    "responses": ResponseAnswer,
}
# A form that the provider's wire does not have.
NOT_THERE = "-"
PLAYED = [(dialect, provider) for dialect, recorded in RECORDINGS.items() for provider in recorded]
every_provider = pytest.mark.parametrize("provider", PROVIDERS)


@dataclass
class Network:
    """The provider's end of a connection: gives what it was given, segment by segment."""

    segments: list[bytes]
    response: ResponseReader = field(default_factory=ResponseReader)

    async def read_by(self, reader: BodyReader) -> bytes:
        return self.segments.pop(0) if self.segments else b""

    def limit_silence(self, silence_s: float) -> None:
        """Is never silent."""

    def as_connection(self) -> AnswerConnection:
        return cast(AnswerConnection, self)


@dataclass
class Caller:
    """The edge's end of a chat."""

    responses: list[ChatResponse] = field(default_factory=list)

    has_room = True

    async def send(self, response: ChatResponse) -> None:
        self.responses.append(response)

    def send_soon(self, response: ChatResponse) -> None:
        self.responses.append(response)

    def as_conversation(self) -> ChatConversation:
        return cast(ChatConversation, self)


async def streamed_pieces(provider: str, segments: list[bytes]) -> AsyncIterator[Piece]:
    stream = Stream(Network(segments).as_connection(), 60, PROVIDERS[provider](), AnswerBuffer(BufferBudget()))
    while True:
        piece = await stream.next_piece()
        yield piece
        if piece.last:
            return


async def whole_pieces(provider: str, body: bytes) -> AsyncIterator[Piece]:
    answer = PROVIDERS[provider]()
    answer.begin_piece()
    answer.read_whole(body)
    answer.close()
    for piece in answer.pieces:
        yield piece


async def relayed(pieces: AsyncIterator[Piece]) -> list[ChatResponse]:
    caller = Caller()
    conversation = caller.as_conversation()
    relay = Relay(conversation)
    covering = TokenAllowance(conversation, None)
    relay.begin(Started(class_id="forte", max_tokens=100), PROMPT_TOKENS, covering, 200, is_covered_whole=True)
    async for piece in pieces:
        await relay.pass_on(piece)
    return caller.responses


@dataclass
class Writer:
    """The client's connection, which takes everything."""

    written: list[MutableMapping[str, Any]]
    write_paused: bool = False

    @property
    def flow(self) -> "Writer":
        return self

    async def drain(self) -> None: ...

    def write(self, body: bytes) -> None:
        self.written.append({"body": body})


async def replied(responses: list[ChatResponse], *, stream: bool) -> bytes:
    """Returns what the edge writes."""
    written: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        written.append(message)

    completion = "chatcmpl-1", 1_800_000_000, "forte"
    reply = (
        ChunkedReply(send, Chunks(*completion), (), cast(Any, Writer(written)), keepalive_s=10)
        if stream
        else WholeHttpReply(send, Completion(*completion), ())
    )
    for response in responses:
        if response.contents or response.tool_calls:
            await reply.prepare()
            reply.write(response)
    finished = responses[-1].finished
    if finished.citations:
        reply.cite(finished.citations)
    await reply.finish(finished.finish_reason, finished.usage)
    return b"".join(message.get("body", b"") for message in written)


def accumulated(stream: bytes) -> ChatCompletion:
    state = ChatCompletionStreamState()
    for event in stream.decode().split("\n\n")[:-2]:
        chunk = msgspec.json.decode(event.removeprefix("data: "))
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    return state.get_final_completion()


@dataclass(frozen=True)
class Said:
    """An answer as a client sees it."""

    content: str | None
    calls: list[tuple[str, Any]]
    finish_reason: str
    usage: Any
    citations: tuple[tuple[str, str, str], ...]
    ids: list[str] = field(compare=False)


def said_in(completion: ChatCompletion) -> Said:
    [choice] = completion.choices
    calls = [call for call in choice.message.tool_calls or () if call.type == "function"]
    text = choice.message.content or ""
    # A stream's are as they came.
    annotations = TypeAdapter(list[Annotation]).validate_python(choice.message.annotations or [], from_attributes=True)
    cited = [annotation.url_citation for annotation in annotations]
    return Said(
        choice.message.content or None,
        [(call.function.name, msgspec.json.decode(call.function.arguments)) for call in calls],
        choice.finish_reason,
        completion.usage.model_dump(exclude_none=True) if completion.usage else None,
        tuple((text[each.start_index : each.end_index], each.title, each.url) for each in cited),
        [call.id for call in calls],
    )


async def said_by_stream(provider: str, segments: list[bytes]) -> Said:
    responses = await relayed(streamed_pieces(provider, segments))
    streamed = accumulated(await replied(responses, stream=True))
    completion = ChatCompletion.model_validate_json(await replied(responses, stream=False))
    assert said_in(streamed) == said_in(completion)
    assert said_in(streamed).ids == said_in(completion).ids
    return said_in(streamed)


async def said_whole(provider: str, recording: Recording) -> Said:
    responses = await relayed(whole_pieces(provider, recording.whole))
    return said_in(ChatCompletion.model_validate_json(await replied(responses, stream=False)))


@every_provider
async def test_dialect_says_the_same_streamed_and_whole(provider: str) -> None:
    cache_write_tokens, reasoning_tokens = {"anthropic": (1, 0), "gemini": (0, 2)}.get(provider, (0, 0))
    for dialect, recording in recordings_of(provider):
        streamed = await said_by_stream(provider, [recording.stream])
        whole = await said_whole(provider, recording)
        assert (streamed.content or "") == recording.text, dialect
        called = CALLS[: recording.calls]
        calls = [(name, arguments if recording.has_arguments else {}) for name, arguments in called]
        assert streamed.calls == whole.calls == calls, dialect
        assert streamed.finish_reason == whole.finish_reason == "tool_calls", dialect
        assert streamed.content == whole.content, dialect
        assert streamed.citations == whole.citations == recording.citations, dialect
        assert len(set(streamed.ids)) == len(streamed.ids), dialect
        assert all(call_id.startswith("call_") for call_id in streamed.ids), dialect
        if recording.is_counted:
            usage = {
                "prompt_tokens": PROMPT_TOKENS,
                "completion_tokens": COMPLETION_TOKENS,
                "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
                "prompt_tokens_details": {
                    "cached_tokens": recording.cached_tokens,
                    "cache_write_tokens": cache_write_tokens,
                },
                "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
            }
            assert streamed.usage == whole.usage == usage, dialect


@every_provider
async def test_usage_is_the_providers_where_it_told_any(provider: str) -> None:
    for dialect, recording in recordings_of(provider):
        responses = await relayed(streamed_pieces(provider, [recording.stream]))
        assert (responses[-1].finished.usage_source == USAGE_SOURCE_PROVIDER) == recording.is_counted, dialect


@every_provider
async def test_every_byte_may_come_by_itself(provider: str) -> None:
    for dialect, recording in recordings_of(provider):
        stream = recording.stream
        by_bytes = await said_by_stream(provider, [stream[at : at + 1] for at in range(len(stream))])
        assert by_bytes == await said_by_stream(provider, [stream]), dialect


def recordings_of(provider: str) -> list[tuple[str, Recording]]:
    found = [(dialect, recorded[provider]) for dialect, recorded in RECORDINGS.items() if provider in recorded]
    assert found
    return found


@given(played=st.sampled_from(PLAYED), cuts=st.lists(st.floats(0, 1), max_size=30))
async def test_answer_is_the_same_wherever_the_network_cuts(played: tuple[str, str], cuts: list[float]) -> None:
    dialect, provider = played
    stream = RECORDINGS[dialect][provider].stream
    places = sorted({0, len(stream), *(int(cut * len(stream)) for cut in cuts)})
    segments = [stream[begin:end] for begin, end in itertools.pairwise(places)]
    assert await said_by_stream(provider, segments) == await said_by_stream(provider, [stream])


@every_provider
async def test_stream_that_is_cut_anywhere_before_its_end_is_never_taken_for_whole(provider: str) -> None:
    stream = RECORDINGS["as documented"][provider].stream
    # In the last event of all nothing is said, nor in the one before, where that has the usage alone.
    signs = (b'"tool_calls"}', b'"stop_reason"', b'"STOP"', b'{"type": "response.completed"')
    finish = max(stream.rfind(sign) for sign in signs)
    for end in range(0, finish, 7):
        with pytest.raises(Exception, match=r"ended its stream|is not"):
            await relayed(streamed_pieces(provider, [stream[:end]]))


def test_page_shows_every_dialect_that_was_played_with_every_provider() -> None:
    table = PAGE.read_text().split("## Dialects")[1]
    header, *cells = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", table, re.MULTILINE)
    assert header == ("dialect", *(f"`{provider}`" for provider in PROVIDERS))
    shown = {dialect: tuple(marks) for dialect, *marks in cells}
    assert shown == {
        dialect: tuple("passed" if provider in recorded else NOT_THERE for provider in PROVIDERS)
        for dialect, recorded in RECORDINGS.items()
    }
