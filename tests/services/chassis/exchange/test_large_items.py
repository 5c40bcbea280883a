"""Items that no message could hold: nothing that one call says may break an exchange, and with it all other calls."""

import asyncio

import pytest

from legato_protos.metering.v1 import metering_pb2 as metering
from legato_protos.router.v1 import router_pb2 as router
from legato_protos.type.v1 import exchange_pb2 as pb
from legato_protos.type.v1.exchange_pb2 import Item
from services.chassis.errors import LegatoError, Reason
from services.chassis.exchange.calls import ClientCall
from services.chassis.exchange.client import ExchangeClient
from services.chassis.exchange.outbox import PART_BYTES
from services.chassis.rpc.channel import LARGEST_MESSAGE_BYTES
from tests.services.chassis.exchange.talker import Talker, ask, opening
from tests.services.chassis.exchange.test_outbox import an_outbox, say, taken

LARGE_BYTES = LARGEST_MESSAGE_BYTES + PART_BYTES // 2


@pytest.fixture
def other(client: ExchangeClient) -> ClientCall[router.ChatResponse]:
    """A call of another client, which must not notice anything."""
    return client.open("Chat", opening("wait", pieces=1), router.ChatResponse)


async def _runs_on(other: ClientCall[router.ChatResponse], client: ExchangeClient, talker: Talker) -> bool:
    assert await ask(client, "after") == "after"
    talker.release.set()
    response = await other.receive()
    assert response is not None
    return list(response.contents) == ["x"] and await other.receive() is None


async def test_large_answer_arrives_whole_and_touches_no_other_call(
    client: ExchangeClient, talker: Talker, other: ClientCall[router.ChatResponse]
) -> None:
    async with asyncio.timeout(60):
        call = client.open("Chat", opening(pieces=2, piece_bytes=LARGE_BYTES), router.ChatResponse)
        for _ in range(2):
            response = await call.receive()
            assert response is not None
            assert response.contents[0] == "x" * LARGE_BYTES
        assert await call.receive() is None
        assert await _runs_on(other, client, talker)


async def test_large_question_arrives_whole_and_touches_no_other_call(
    client: ExchangeClient, talker: Talker, other: ClientCall[router.ChatResponse]
) -> None:
    async with asyncio.timeout(60):
        account_id = "x" * LARGE_BYTES
        assert await ask(client, account_id, timeout_s=60) == account_id
        assert await _runs_on(other, client, talker)


async def test_others_speak_between_the_parts_of_a_large_item() -> None:
    outbox = an_outbox()
    say(outbox, 1, b"a" * PART_BYTES + b"b" * PART_BYTES + b"c", b"next")
    say(outbox, 2, b"x", b"y")
    seen = []
    while outbox._urgent or outbox._turns:
        seen += [(call_id, kind, payload[:1], len(payload)) for call_id, kind, payload in await taken(outbox)]
    assert seen == [
        (1, pb.ITEM_KIND_PART, b"a", PART_BYTES),
        (2, pb.ITEM_KIND_MESSAGE, b"x", 1),
        (1, pb.ITEM_KIND_PART, b"b", PART_BYTES),
        (2, pb.ITEM_KIND_MESSAGE, b"y", 1),
        (1, pb.ITEM_KIND_MESSAGE, b"c", 1),
        (1, pb.ITEM_KIND_MESSAGE, b"n", 4),
    ]


async def test_call_that_leaves_in_the_middle_of_a_large_answer_is_forgotten(
    client: ExchangeClient, talker: Talker
) -> None:
    async with asyncio.timeout(60):
        call = client.open("Chat", opening(pieces=1, piece_bytes=LARGE_BYTES), router.ChatResponse)
        while not talker.sent:
            await asyncio.sleep(0.01)
        call.cancel()
        assert await ask(client, "after") == "after"
        assert not client._parts


async def test_answer_that_cannot_be_read_fails_its_own_call_alone(
    client: ExchangeClient, talker: Talker, other: ClientCall[router.ChatResponse]
) -> None:
    for kind, reason in ((pb.ITEM_KIND_END, Reason.INTERNAL), (pb.ITEM_KIND_ERROR, Reason.INTERNAL)):
        request = metering.GetBalanceRequest(account_id="slow")
        answer = client.call("GetBalance", request, metering.GetBalanceResponse, 30)
        client._receive(Item(call_id=client._last_call_id, kind=kind, payload=b"\xff"))
        with pytest.raises(LegatoError) as failed:
            await answer
        assert failed.value.reason is reason
    async with asyncio.timeout(30):
        assert await _runs_on(other, client, talker)
