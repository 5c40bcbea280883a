"""Signs of life in a stream whose first token takes long."""

import asyncio
from typing import Any

from edge.wire.completion_json import COMMENT
from services.chassis.errors import LegatoError, Reason
from tests.edge.chat_harness import PROMPT_TOKENS, Conversing, Room, Script, charged, end, piece, saying
from tests.edge.metering_harness import cost
from tests.support.waiting import until


def saying_after_a_while(room: Room, *responses: Any) -> Script:
    """Once its client has got two signs of life."""

    async def script(conversation: Conversing) -> None:
        await until(lambda: room.received.count(COMMENT) >= 2)
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
