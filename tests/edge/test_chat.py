"""One chat between a router that says what the test wants and a real metering."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import grpc.aio
import pytest

from edge.chat import Chat, Surroundings
from edge.entrance import Visit
from edge.hold import FIRST_SLICE_TOKENS
from edge.journal import OPEN, SEAL
from edge.laps import Laps
from edge.metrics import ChatMetrics
from edge.rates import Admission
from edge.replies import StreamedReply, WholeReply
from edge.requests import ChatBody
from edge.saturation import Saturation
from edge.services import SHARED_STREAM_BYTES, RouterReplica
from edge.sse import COMMENT
from edge.standing import Standings
from protos.metering.v1.metering_pb2 import (
    AdmitRequest,
    AdmitResponse,
    Balance,
    CorrectRequest,
    ExtendRequest,
    ExtendResponse,
    IdempotencyClaim,
)
from protos.router.v1 import router_pb2 as pb
from protos.router.v1 import router_pb2_grpc
from protos.type.v1.usage_pb2 import Usage
from services.chassis.clock import SystemClock
from services.chassis.errors import LegatoError, Reason
from services.chassis.exchange import Conversation, ExchangeServer, StreamMethod, serve_stream
from services.chassis.log import Log
from services.chassis.metrics import Registry
from services.chassis.replicas import Replicas
from services.chassis.server import Server
from tests.edge.metering_house import ANN, JOURNAL_SLOTS, MeteringHouse, cost

PROMPT_TOKENS = 20

Conversing = Conversation[pb.ChatRequest, Any]
Script = Callable[[Conversing], Awaitable[None]]


async def nobody_is_refused(key_ids: Sequence[str]) -> list[str]:
    return []


class ScriptedRouter(router_pb2_grpc.RouterServiceServicer):
    def __init__(self, script: Script, log: Log) -> None:
        self.openings: list[pb.ChatOpen] = []
        self._script = script
        self._chat = StreamMethod(pb.ChatRequest, self._serve)
        self._exchange = ExchangeServer(
            "legato.router.v1.RouterService", {"Chat": self._chat}, pb.ExchangeResponse, log
        )

    async def _serve(self, conversation: Conversing) -> None:
        self.openings.append((await conversation.receive()).open)
        await self._script(conversation)

    def Exchange(self, request_iterator: Any, context: Any) -> AsyncIterator[pb.ExchangeResponse]:
        return self._exchange.serve(request_iterator, context)

    def Chat(self, request_iterator: Any, context: Any) -> AsyncIterator[pb.ChatResponse]:
        return serve_stream(self._chat, request_iterator, context)

    async def ListModels(self, request: Any, context: Any) -> pb.ListModelsResponse:
        return pb.ListModelsResponse()

    def register(self, server: grpc.aio.Server) -> str:
        router_pb2_grpc.add_RouterServiceServicer_to_server(self, server)
        return "legato.router.v1.RouterService"


class Room:
    """Everything that a chat needs, and what its client has received."""

    def __init__(self, socket_folder: Path, metering: MeteringHouse, log: Log) -> None:
        self.metering = metering
        self.received = b""
        self.status = 0
        # What the journal said whenever something was handed to the client: kind, mark, and tokens of output.
        self.journaled: list[tuple[int, bool, int]] = []
        self.standings = Standings(nobody_is_refused)
        self.corrections: list[CorrectRequest] = []
        self.admitted_tokens = 10
        self.admission = Admission(
            AdmitRequest(tokens=self.admitted_tokens), AdmitResponse(limit_tokens=1000), self.corrections.append
        )
        self._folder = socket_folder
        self._log = log
        self._servers: list[Server] = []
        self._routers: Replicas[RouterReplica] | None = None

    async def add_routers(self, *scripts: Script) -> list[ScriptedRouter]:
        clock = SystemClock()
        addresses, routers = [], []
        for number, script in enumerate(scripts):
            routers.append(ScriptedRouter(script, self._log))
            addresses.append(f"unix:{self._folder}/router-{number}.sock")
            self._servers.append(Server(addresses[-1], [routers[-1].register], self._log))
            await self._servers[-1].start()
        self._routers = Replicas(
            "router", ",".join(addresses), lambda address: RouterReplica(address, clock, self._log), self._log
        )
        await self._routers.start()
        async with asyncio.timeout(5):
            while not all(replica.usable for replica in self._routers._replicas.values()):
                await asyncio.sleep(0.01)
        return routers

    def chat(
        self,
        *,
        stream: bool = True,
        life_s: float = 3600,
        keepalive_s: float = 10,
        messages_json: bytes = b"[]",
        key: bytes = b"",
    ) -> Chat:
        clock = SystemClock()
        routers = cast(Replicas[RouterReplica], self._routers)
        surroundings = Surroundings(
            self.metering.metering,
            self.metering.journal,
            routers,
            Saturation(clock),
            life_s,
            keepalive_s,
            clock,
            self._log,
            ChatMetrics(Registry()),
        )
        visit = Visit(ANN, self.standings.enter(ANN.key_id), self.admission, Laps(clock))
        body = ChatBody("forte", stream, None, messages_json, b"", b"", b"")
        reply_type = StreamedReply if stream else WholeReply
        reply = reply_type(self._send, "chatcmpl-7", 1, "forte", [])
        claim = IdempotencyClaim(key_digest=key, body_digest=key) if key else None
        return Chat(surroundings, visit, body, "forte", f"{7:032x}", reply, claim)

    async def stop_router(self, number: int) -> None:
        await self._servers[number].stop(0)

    @property
    def events(self) -> list[Any]:
        lines = [line for line in self.received.decode().split("\n\n")[:-1] if not line.startswith(":")]
        return [line.removeprefix("data: ") if "[DONE]" in line else json.loads(line[6:]) for line in lines]

    @property
    def text(self) -> str:
        choices = [event["choices"][0] for event in self.events if isinstance(event, dict) and event.get("choices")]
        return "".join(choice["delta"].get("content") or "" for choice in choices)

    async def close(self) -> None:
        if self._routers is not None:
            await self._routers.close()
        for server in self._servers:
            await server.stop(0)

    async def _send(self, message: dict[str, Any]) -> None:
        self.status = message.get("status", self.status)
        if message.get("body"):
            self.received += message["body"]
            self.journaled += [
                (slot.kind, slot.marked, slot.completion_tokens) for slot in self.metering.journal.taken.values()
            ]


@pytest.fixture
async def room(socket_folder: Path, metering_house: MeteringHouse, log: Log) -> AsyncIterator[Room]:
    await metering_house.give(10**9)
    room = Room(socket_folder, metering_house, log)
    yield room
    await room.close()


def piece(text: str, output_tokens: int) -> pb.ChatResponse:
    return pb.ChatResponse(contents=[text], prompt_tokens=PROMPT_TOKENS, output_tokens=output_tokens)


def end(output_tokens: int, finish_reason: str = "stop") -> pb.ChatResponse:
    usage = Usage(prompt_tokens=PROMPT_TOKENS, completion_tokens=output_tokens)
    finished = pb.Finished(finish_reason=finish_reason, usage=usage, usage_source=pb.USAGE_SOURCE_PROVIDER)
    return pb.ChatResponse(finished=finished, prompt_tokens=PROMPT_TOKENS, output_tokens=output_tokens)


def saying(*responses: Any) -> Script:
    async def script(conversation: Conversing) -> None:
        for response in responses:
            await conversation.send(response)

    return script


async def silence(conversation: Conversing) -> None:
    await asyncio.Event().wait()


async def charged(room: Room) -> int:
    balance_nanos, held_nanos = await room.metering.balance()
    assert held_nanos == 0
    return 10**9 - balance_nanos


async def test_answer_is_relayed_and_charged_by_the_providers_count(room: Room) -> None:
    await room.add_routers(saying(piece("Hel", 1), piece("lo", 2), end(2)))
    await room.chat().run()
    assert room.text == "Hello"
    assert room.events[-1] == "[DONE]"
    assert await charged(room) == cost(PROMPT_TOKENS, 2)


async def test_what_is_relayed_is_counted_before_and_the_end_is_sealed_before_it_is_told(room: Room) -> None:
    await room.add_routers(saying(piece("Hel", 1), piece("lo", 2), end(3)))
    await room.chat().run()
    assert room.journaled == [(OPEN, False, 1), (OPEN, True, 2), (SEAL, True, 3)]
    assert await charged(room) == cost(PROMPT_TOKENS, 3)
    assert room.metering.journal.taken == {}


async def test_pieces_that_come_at_once_are_each_counted_before_they_are_relayed(room: Room) -> None:
    both = pb.ChatResponse(contents=["Hel", "lo"], prompt_tokens=PROMPT_TOKENS, output_tokens=2)
    both.MergeFrom(end(2))
    await room.add_routers(saying(both))
    await room.chat().run()
    assert room.journaled == [(OPEN, False, 2), (SEAL, True, 2)]


async def test_whole_answer_is_sealed_only_after_it_was_relayed(room: Room) -> None:
    """It is its own first piece: an edge that dies before it has left must not charge it."""
    await room.add_routers(saying(piece("Hel", 1), piece("lo", 2), end(2)))
    await room.chat(stream=False).run()
    assert room.journaled == [(OPEN, False, 2)]
    assert await charged(room) == cost(PROMPT_TOKENS, 2)
    assert room.metering.journal.taken == {}


@pytest.mark.parametrize("stream", [True, False])
async def test_answer_with_nothing_in_it_is_told_and_not_charged(room: Room, stream: bool) -> None:
    await room.add_routers(saying(end(0)))
    await room.chat(stream=stream).run()
    assert room.status == 200
    assert await charged(room) == 0
    assert room.metering.journal.taken == {}


@pytest.mark.parametrize("stream", [True, False])
async def test_answer_that_was_all_thought_is_charged_by_the_providers_count(room: Room, stream: bool) -> None:
    await room.add_routers(saying(end(9, "length")))
    await room.chat(stream=stream).run()
    assert room.status == 200
    assert await charged(room) == cost(PROMPT_TOKENS, 9)


async def test_chat_for_which_the_journal_has_no_room_is_refused_before_anything_is_held(room: Room) -> None:
    journal = room.metering.journal
    slots = [journal.claim(f"{number:032x}", ANN.account_id) for number in range(100, 100 + JOURNAL_SLOTS)]
    [router] = await room.add_routers(saying(piece("Hello", 1), end(1)))
    with pytest.raises(LegatoError) as refused:
        await room.chat().run()
    assert (refused.value.reason, refused.value.wire.http_status) == (Reason.UNAVAILABLE, 503)
    assert router.openings == []
    assert await charged(room) == 0
    slots[0].free()
    await room.chat().run()
    assert room.text == "Hello"


async def test_key_of_a_request_that_failed_is_free_before_the_failure_is_told(room: Room) -> None:
    """A client asks again at once, perhaps at another edge."""
    await room.add_routers(saying(Balance(account_id="no such response")))
    with pytest.raises(LegatoError):
        await room.chat(key=bytes(32)).run()
    assert (await room.metering.read_hold(7)).state == "void"


def saying_after_refusal(room: Room, before: Sequence[pb.ChatResponse], after: pb.ChatResponse) -> Script:
    """The key is refused while the answer runs, and then there is another piece."""

    async def script(conversation: Conversing) -> None:
        for response in before:
            await conversation.send(response)
        while len(room.journaled) < len(before):
            await asyncio.sleep(0.01)
        room.standings.refuse([ANN.key_id])
        await conversation.send(after)
        await asyncio.Event().wait()

    return script


async def test_answer_of_a_refused_key_ends_at_its_next_piece_and_what_was_delivered_is_charged(room: Room) -> None:
    await room.add_routers(saying_after_refusal(room, [piece("Hel", 1)], piece("lo", 2)))
    await room.chat().run()
    assert b"lo" not in room.received
    assert room.events[-1]["error"]["type"] == "authentication_error"
    assert await charged(room) == cost(PROMPT_TOKENS, 1)
    hold = await room.metering.read_hold(7)
    assert (hold.end, hold.basis) == ("key_refused", "counted")


@pytest.mark.parametrize("stream", [True, False])
async def test_answer_of_a_refused_key_that_has_not_begun_is_refused_and_free(room: Room, stream: bool) -> None:
    await room.add_routers(saying_after_refusal(room, [], end(2)))
    with pytest.raises(LegatoError) as refused:
        await room.chat(stream=stream).run()
    assert refused.value.reason is Reason.KEY_INVALID
    assert await charged(room) == 0


def saying_after_a_while(room: Room, *responses: Any) -> Script:
    """Once its client has got two signs of life."""

    async def script(conversation: Conversing) -> None:
        while room.received.count(COMMENT) < 2:
            await asyncio.sleep(0.01)
        await saying(*responses)(conversation)

    return script


async def test_stream_whose_first_token_takes_long_is_kept_alive_until_then(room: Room) -> None:
    await room.add_routers(saying_after_a_while(room, piece("Hel", 1), piece("lo", 2), end(2)))
    await room.chat(keepalive_s=0.02).run()
    assert room.text == "Hello"
    assert room.events[-1] == "[DONE]"
    assert COMMENT not in room.received[room.received.index(b"Hel") :]
    assert await charged(room) == cost(PROMPT_TOKENS, 2)


async def test_what_fails_after_a_sign_of_life_is_told_by_an_event_and_free(room: Room) -> None:
    async def fail(conversation: Conversing) -> None:
        await saying_after_a_while(room)(conversation)
        raise LegatoError(Reason.UPSTREAM_FAILED, "The model is not available right now.")

    await room.add_routers(fail)
    await room.chat(keepalive_s=0.02).run()
    assert (room.status, [list(event) for event in room.events]) == (200, [["error"]])
    assert await charged(room) == 0
    assert (await room.metering.read_hold(7)).end == "refused"


async def test_whole_answer_is_not_kept_alive(room: Room) -> None:
    async def slowly(conversation: Conversing) -> None:
        await asyncio.sleep(0.1)
        await saying(piece("Hello", 1), end(1))(conversation)

    await room.add_routers(slowly)
    await room.chat(stream=False, keepalive_s=0.01).run()
    assert room.received.startswith(b"{")


async def test_rate_of_tokens_is_corrected_to_what_was_used(room: Room) -> None:
    await room.add_routers(saying(piece("Hello", 2), end(2)))
    await room.chat().run()
    assert [correction.tokens for correction in room.corrections] == [PROMPT_TOKENS + 2 - room.admitted_tokens]


class FirstOneFails:
    """Whichever router is asked first says these, and no more; whoever is asked after that answers."""

    def __init__(self, *responses: pb.ChatResponse) -> None:
        self._responses = responses
        self.asked = 0

    async def __call__(self, conversation: Conversing) -> None:
        self.asked += 1
        if self.asked > 1:
            await saying(piece("Hello", 1), end(1))(conversation)
            return
        await saying(*self._responses)(conversation)
        await silence(conversation)


async def lose_the_router_that_was_asked(room: Room, routers: list[ScriptedRouter]) -> None:
    while not any(router.openings for router in routers):
        await asyncio.sleep(0.01)
    await room.stop_router(next(number for number, router in enumerate(routers) if router.openings))


# A large prompt takes a way of its own to the router.
@pytest.mark.parametrize("prompt_bytes", [10, SHARED_STREAM_BYTES + 1])
async def test_router_lost_before_its_first_word_is_replaced_by_another(room: Room, prompt_bytes: int) -> None:
    script = FirstOneFails()
    routers = await room.add_routers(script, script)
    chatting = asyncio.create_task(room.chat(messages_json=bytes(prompt_bytes)).run())
    async with asyncio.timeout(10):
        await lose_the_router_that_was_asked(room, routers)
        await chatting
    assert room.text == "Hello"
    assert [opening.request_id for router in routers for opening in router.openings] == [f"{7:032x}"] * 2
    assert await charged(room) == cost(PROMPT_TOKENS, 1)


async def test_router_lost_after_its_first_word_ends_in_one_error_event(room: Room) -> None:
    script = FirstOneFails(piece("Hel", 1))
    routers = await room.add_routers(script, script)
    chatting = asyncio.create_task(room.chat().run())
    async with asyncio.timeout(10):
        while not room.received:
            await asyncio.sleep(0.01)
        await lose_the_router_that_was_asked(room, routers)
        await chatting
    assert room.text == "Hel"
    assert room.events[-1]["error"]["type"] == "api_error"
    assert script.asked == 1
    assert await charged(room) == cost(PROMPT_TOKENS, 1)


async def test_mistake_of_ours_in_mid_stream_is_told_and_what_was_delivered_is_charged(room: Room) -> None:
    unreadable = Balance(account_id="no such response")
    await room.add_routers(saying(piece("Hel", 1), unreadable))
    await room.chat().run()
    assert room.text == "Hel"
    assert room.events[-1]["error"]["code"] == "internal_error"
    assert b"[DONE]" not in room.received
    assert await charged(room) == cost(PROMPT_TOKENS, 1)


@pytest.mark.parametrize("stream", [True, False])
async def test_mistake_of_ours_before_the_first_word_is_a_real_status_and_free(room: Room, stream: bool) -> None:
    await room.add_routers(saying(Balance(account_id="no such response")))
    with pytest.raises(LegatoError) as failure:
        await room.chat(stream=stream).run()
    assert failure.value.reason is Reason.INTERNAL
    assert not room.received
    assert await charged(room) == 0


async def test_stream_that_the_process_cannot_wait_for_ends_with_an_error_event(room: Room) -> None:
    async def begin(conversation: Conversing) -> None:
        await conversation.send(piece("Hel", 1))
        await silence(conversation)

    await room.add_routers(begin)
    chatting = asyncio.create_task(room.chat().run())
    async with asyncio.timeout(10):
        while not room.received:
            await asyncio.sleep(0.01)
        chatting.cancel()
        await asyncio.gather(chatting, return_exceptions=True)
    assert chatting.cancelled()
    assert room.events[-1]["error"]["code"] == "service_unavailable"
    assert await charged(room) == cost(PROMPT_TOKENS, 1)


@pytest.mark.parametrize("stream", [True, False])
async def test_router_that_sends_more_than_the_credit_covers_is_cut_with_length(room: Room, stream: bool) -> None:
    tokens_of_a_million_dollars = 10**9
    await room.add_routers(saying(piece("Hel", 1), piece("lo", tokens_of_a_million_dollars)))
    await room.chat(stream=stream).run()
    if stream:
        assert room.text == "Hel"
        assert room.events[-3]["choices"][0]["finish_reason"] == "length"
    else:
        choice = json.loads(room.received)["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("Hel", "length")
    assert await charged(room) == cost(PROMPT_TOKENS, 1)


async def test_router_that_sends_ever_more_than_is_held_has_the_hold_doubled(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend = room.metering.metering.extend
    extended: list[ExtendRequest] = []

    async def noted(request: ExtendRequest) -> ExtendResponse:
        extended.append(request)
        return await extend(request)

    monkeypatch.setattr(room.metering.metering, "extend", noted)
    most_tokens = 3 * FIRST_SLICE_TOKENS
    await room.add_routers(saying(*(piece("x", tokens) for tokens in range(1, most_tokens, 100)), end(most_tokens)))
    await room.chat().run()
    # To twice the first slice and to twice that, though many pieces were beyond what was held.
    assert len(extended) == 2
    assert await charged(room) == cost(PROMPT_TOKENS, most_tokens)


async def test_answer_ends_with_its_time(room: Room) -> None:
    async def talk_on(conversation: Conversing) -> None:
        for number in range(1, 10_000):
            await conversation.send(piece("x", number))
            await asyncio.sleep(0.01)

    await room.add_routers(talk_on)
    async with asyncio.timeout(10):
        await room.chat(life_s=0.3).run()
    assert room.events[-3]["choices"][0]["finish_reason"] == "length"
    assert room.events[-1] == "[DONE]"
    assert await charged(room) == cost(PROMPT_TOKENS, len(room.text))


async def test_need_of_the_router_is_answered_with_a_larger_grant(room: Room) -> None:
    grants: list[pb.Grant] = []

    async def ask(conversation: Conversing) -> None:
        await conversation.send(pb.ChatResponse(need=pb.Need(prompt_tokens=500, output_tokens=9000)))
        grants.append((await conversation.receive()).grant)
        await conversation.send(piece("Hello", 1))
        await conversation.send(end(1))

    [router] = await room.add_routers(ask)
    await room.chat().run()
    assert router.openings[0].grant.output_tokens < 9000
    assert (grants[0].prompt_tokens, grants[0].output_tokens, grants[0].last) == (500, 9000, False)
    assert await charged(room) == cost(PROMPT_TOKENS, 1)
