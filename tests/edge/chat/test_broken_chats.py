"""Chats that do not come to their end: a key is refused, a router is lost, a mistake is ours, or the process ends."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from edge.backends.exchanges import SHARED_STREAM_BYTES
from edge.billing.hold import ChatHold
from edge.chat.chat import Chat
from edge.wire.body_reader import ClientGone
from edge.wire.chat_request import ChatBody
from legato_protos.metering.v1.metering_pb2 import Balance
from legato_protos.router.v1 import router_pb2 as pb
from services.chassis.errors import LegatoError, Reason, forget_origin
from services.chassis.exchange.calls import ClientCall
from services.chassis.exchange.rpc import RpcCall
from services.chassis.load.prompt_memory import UNCHARGED_BYTES
from tests.edge.chat_harness import (
    PROMPT_TOKENS,
    ChatHarness,
    Conversing,
    Script,
    ScriptedRouter,
    charged,
    end,
    piece,
    saying,
    silence,
)
from tests.edge.metering_harness import ANN, cost
from tests.support.leftovers import nothing_is_left
from tests.support.waiting import until


async def test_key_of_a_request_that_failed_is_free_before_the_failure_is_told(chat_harness: ChatHarness) -> None:
    """A client asks again at once, perhaps at another edge."""
    await chat_harness.add_routers(saying(Balance(account_id="no such response")))
    with pytest.raises(LegatoError):
        await chat_harness.chat(key=bytes(32)).run()
    assert (await chat_harness.metering.read_hold(7)).state == "void"


def saying_after_refusal(
    chat_harness: ChatHarness, before: Sequence[pb.ChatResponse], after: pb.ChatResponse
) -> Script:
    """The key is refused while the answer runs, and then there is another piece."""

    async def script(conversation: Conversing) -> None:
        for response in before:
            await conversation.send(response)
        await until(lambda: len(chat_harness.journaled) >= len(before))
        chat_harness.running_keys.refuse([ANN.key_id])
        await conversation.send(after)
        await asyncio.Event().wait()

    return script


async def test_answer_of_a_refused_key_ends_at_its_next_piece_and_what_was_delivered_is_charged(
    chat_harness: ChatHarness,
) -> None:
    await chat_harness.add_routers(saying_after_refusal(chat_harness, [piece("Hel", 1)], piece("lo", 2)))
    await chat_harness.chat().run()
    assert b"lo" not in chat_harness.received
    assert chat_harness.events[-1]["error"]["type"] == "authentication_error"
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 1)
    hold = await chat_harness.metering.read_hold(7)
    assert (hold.end, hold.basis) == ("key_refused", "counted")


@pytest.mark.parametrize("stream", [True, False])
async def test_answer_of_a_refused_key_that_has_not_begun_is_refused_and_free(
    chat_harness: ChatHarness, stream: bool
) -> None:
    await chat_harness.add_routers(saying_after_refusal(chat_harness, [], end(2)))
    with pytest.raises(LegatoError) as refused:
        await chat_harness.chat(stream=stream).run()
    assert refused.value.reason is Reason.KEY_INVALID
    assert await charged(chat_harness) == 0


class FirstOneFails:
    """Whichever router is asked first says these, and no more; the one that is asked after that answers."""

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


async def lose_the_router_that_was_asked(chat_harness: ChatHarness, routers: list[ScriptedRouter]) -> None:
    await until(lambda: any(router.openings for router in routers))
    await chat_harness.stop_router(next(number for number, router in enumerate(routers) if router.openings))


# A large prompt takes a way of its own to the router.
@pytest.mark.parametrize("prompt_bytes", [10, SHARED_STREAM_BYTES + 1])
async def test_router_lost_before_its_first_word_is_replaced_by_another(
    chat_harness: ChatHarness, prompt_bytes: int
) -> None:
    script = FirstOneFails()
    routers = await chat_harness.add_routers(script, script)
    chatting = asyncio.create_task(chat_harness.chat(messages_json=bytes(prompt_bytes)).run())
    async with asyncio.timeout(60):
        await lose_the_router_that_was_asked(chat_harness, routers)
        await chatting
    assert chat_harness.text == "Hello"
    assert [opening.request_id for router in routers for opening in router.openings] == [f"{7:032x}"] * 2
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 1)


async def test_memory_of_a_prompt_is_held_until_the_answer_begins(chat_harness: ChatHarness) -> None:
    speak = asyncio.Event()

    async def think_and_speak(conversation: Conversing) -> None:
        await speak.wait()
        await saying(piece("Hello", 1), end(1))(conversation)

    prompt_bytes = SHARED_STREAM_BYTES + UNCHARGED_BYTES
    [router] = await chat_harness.add_routers(think_and_speak)
    chat = chat_harness.chat(messages_json=b" " * prompt_bytes)
    chatting = asyncio.create_task(chat.run())
    await until(lambda: bool(router.openings))
    assert chat_harness.prompt_memory.used == SHARED_STREAM_BYTES
    # The message for the router is the only copy.
    assert chat._body.messages_json == b""
    speak.set()
    await chatting
    assert chat_harness.text == "Hello"
    assert chat_harness.prompt_memory.used == 0


async def test_router_lost_after_its_first_word_ends_in_one_error_event(chat_harness: ChatHarness) -> None:
    script = FirstOneFails(piece("Hel", 1))
    routers = await chat_harness.add_routers(script, script)
    chatting = asyncio.create_task(chat_harness.chat().run())
    async with asyncio.timeout(60):
        while not chat_harness.received:
            await asyncio.sleep(0.01)
        await lose_the_router_that_was_asked(chat_harness, routers)
        await chatting
    assert chat_harness.text == "Hel"
    assert chat_harness.events[-1]["error"]["type"] == "api_error"
    assert script.asked == 1
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 1)


async def test_answer_without_an_end_is_the_models_failure_and_what_was_delivered_is_charged(
    chat_harness: ChatHarness,
) -> None:
    await chat_harness.add_routers(saying(piece("Hel", 1)))
    await chat_harness.chat().run()
    assert chat_harness.text == "Hel"
    assert chat_harness.events[-1]["error"]["code"] == "upstream_error"
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 1)
    assert (await chat_harness.metering.read_hold(7)).end == "upstream_cut"
    assert chat_harness.failures == {("UPSTREAM_FAILED", "forte", True): 1}


@pytest.mark.parametrize(("said", "delivered_tokens"), [([], 0), ([piece("Hel", 1)], 1)])
async def test_client_who_leaves_is_charged_for_what_was_delivered(
    chat_harness: ChatHarness, said: list[pb.ChatResponse], delivered_tokens: int
) -> None:
    begun = asyncio.Event()

    async def speak_and_pause(conversation: Conversing) -> None:
        await saying(*said)(conversation)
        begun.set()
        await silence(conversation)

    await chat_harness.add_routers(speak_and_pause)
    leave: list[Callable[[], None]] = []
    chatting = asyncio.create_task(chat_harness.chat().run(leave.append))
    async with asyncio.timeout(60):
        await begun.wait()
        while len(chat_harness.text) < len("Hel") * delivered_tokens:
            await asyncio.sleep(0.01)
        leave[0]()
        with pytest.raises(ClientGone):
            await chatting
    assert await charged(chat_harness) == (cost(PROMPT_TOKENS, 1) if delivered_tokens else 0)
    assert (await chat_harness.metering.read_hold(7)).end == "client_gone"
    assert chat_harness.failures == {("CLIENT_GONE", "forte", bool(delivered_tokens)): 1}


async def test_mistake_of_ours_in_mid_stream_is_told_and_what_was_delivered_is_charged(
    chat_harness: ChatHarness,
) -> None:
    unreadable = Balance(account_id="no such response")
    await chat_harness.add_routers(saying(piece("Hel", 1), unreadable))
    await chat_harness.chat().run()
    assert chat_harness.text == "Hel"
    assert chat_harness.events[-1]["error"]["code"] == "internal_error"
    assert b"[DONE]" not in chat_harness.received
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 1)


@pytest.mark.parametrize("stream", [True, False])
async def test_mistake_of_ours_before_the_first_word_is_a_real_status_and_free(
    chat_harness: ChatHarness, stream: bool
) -> None:
    await chat_harness.add_routers(saying(Balance(account_id="no such response")))
    with pytest.raises(LegatoError) as failure:
        await chat_harness.chat(stream=stream).run()
    assert failure.value.reason is Reason.INTERNAL
    assert not chat_harness.received
    assert await charged(chat_harness) == 0


async def test_stream_that_the_process_cannot_wait_for_ends_with_an_error_event(chat_harness: ChatHarness) -> None:
    async def begin(conversation: Conversing) -> None:
        await conversation.send(piece("Hel", 1))
        await silence(conversation)

    await chat_harness.add_routers(begin)
    chatting = asyncio.create_task(chat_harness.chat().run())
    async with asyncio.timeout(60):
        while not chat_harness.received:
            await asyncio.sleep(0.01)
        chatting.cancel()
        await asyncio.gather(chatting, return_exceptions=True)
    assert chatting.cancelled()
    assert chat_harness.events[-1]["error"]["code"] == "service_unavailable"
    assert await charged(chat_harness) == cost(PROMPT_TOKENS, 1)


ENDS = {"refused before its first piece": saying(), "broken off after it": saying(piece("Hel", 1))}


@pytest.mark.parametrize("messages_json", [b"[]", b" " * SHARED_STREAM_BYTES + b"[]"], ids=["small", "big"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", ENDS.values(), ids=ENDS)
async def test_broken_chat_leaves_nothing_to_the_collector_of_garbage(
    script: Script, stream: bool, messages_json: bytes, chat_harness: ChatHarness
) -> None:
    async def ask_in_vain(number: int) -> None:
        try:
            await chat_harness.chat(number, stream=stream, messages_json=messages_json).run()
        except LegatoError as error:
            forget_origin(error)
        await chat_harness.metering.metering.acknowledged(f"{number:032x}")

    await chat_harness.add_routers(script)
    await ask_in_vain(1)
    async with nothing_is_left(Chat, ChatHold, ChatBody, ClientCall, RpcCall, LegatoError):
        for number in range(2, 7):
            await ask_in_vain(number)
