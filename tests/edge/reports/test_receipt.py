from dataclasses import replace
from typing import Any, cast

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from edge.reports.receipt import get_request
from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.metering.v1 import metering_pb2 as metering
from legato_protos.type.v1.chat_api_pb2 import CHAT_API_MESSAGES, ChatApi
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from tests.edge.metering_harness import ANN
from tests.edge.reports.harness import edge_with

REQUEST_ID = f"{5:032x}"


class Books:
    """Metering with one request of the account, under the key that a test gives."""

    def __init__(self, key_id: str) -> None:
        self.found = metering.GetRequestResponse(
            request_id=REQUEST_ID,
            key_id=key_id,
            class_id="mezzo",
            state=metering.REQUEST_STATE_SETTLED,
            reserve_time=Timestamp(seconds=10),
            end_time=Timestamp(seconds=12),
            usage=Usage(prompt_tokens=5, cached_tokens=2, completion_tokens=3),
            charged_nanos=70,
            price_version=4,
            routes_version="0123456789ab",
            duration_ms=1_900,
            api=CHAT_API_MESSAGES,
            basis=metering.BASIS_COUNTED,
            end=metering.END_CLIENT_GONE,
        )

    async def caught_up(self, account_id: str) -> None: ...

    async def request(self, asked: metering.GetRequestRequest) -> metering.GetRequestResponse:
        assert (asked.account_id, asked.request_id) == (ANN.account_id, REQUEST_ID)
        return self.found


@pytest.mark.parametrize(
    "request_id", [REQUEST_ID, *(f"{prefix}{REQUEST_ID}" for prefix in ("chatcmpl-", "msg_", "resp_"))]
)
async def test_receipt_is_found_by_the_id_of_the_request_or_of_its_completion(request_id: str) -> None:
    receipt = await get_request(edge_with(Books("key_r2")), ANN, request_id)
    assert receipt == pb.GetRequestResponse(
        request_id=REQUEST_ID,
        state=pb.REQUEST_STATE_SETTLED,
        model="mezzo",
        key_id="key_r2",
        caller="reports",
        create_time=Timestamp(seconds=10),
        end_time=Timestamp(seconds=12),
        end=pb.REQUEST_END_CLIENT_GONE,
        basis=pb.USAGE_BASIS_COUNTED,
        usage=pb.Usage(prompt_tokens=5, cached_tokens=2, completion_tokens=3, cost_nanos=70),
        price_version=4,
        routes_version="0123456789ab",
        duration_ms=1_900,
        api=pb.REQUEST_API_MESSAGES,
    )


async def test_request_with_a_key_has_no_caller_and_a_programs_own_has_its_name() -> None:
    for principal, key_id, caller in (
        (ANN, ANN.key_id, ""),
        (ANN, "key_other", ""),
        (replace(ANN, key_id="key_x", caller="billing"), "key_x", "billing"),
    ):
        assert (await get_request(edge_with(Books(key_id)), principal, REQUEST_ID)).caller == caller


async def test_running_request_has_no_end() -> None:
    books = Books(ANN.key_id)
    books.found = metering.GetRequestResponse(request_id=REQUEST_ID, state=metering.REQUEST_STATE_RUNNING, held_nanos=9)
    receipt = await get_request(edge_with(books), ANN, REQUEST_ID)
    assert receipt == pb.GetRequestResponse(
        request_id=REQUEST_ID, state=pb.REQUEST_STATE_RUNNING, held_nanos=9, usage=pb.Usage()
    )


def words(enum: Any, prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): number for name, number in enum.items()}


def test_every_end_basis_and_api_of_the_ledger_has_one_in_the_contract() -> None:
    assert words(pb.RequestEnd, "REQUEST_END_") == words(metering.End, "END_")
    assert words(pb.UsageBasis, "USAGE_BASIS_") == words(metering.Basis, "BASIS_")
    assert words(pb.RequestApi, "REQUEST_API_") == words(ChatApi, "CHAT_API_")


async def test_an_end_that_only_a_newer_ledger_knows_is_left_out() -> None:
    books = Books(ANN.key_id)
    books.found.end, books.found.basis = cast(Any, 99), cast(Any, 99)
    receipt = await get_request(edge_with(books), ANN, REQUEST_ID)
    assert (receipt.end, receipt.basis) == (pb.REQUEST_END_UNSPECIFIED, pb.USAGE_BASIS_UNSPECIFIED)
    assert receipt.usage.cost_nanos == 70


@pytest.mark.parametrize("request_id", ["", "nonsense", REQUEST_ID.upper()[:-1] + "A", "x" + REQUEST_ID])
async def test_id_of_no_request_is_not_asked_for(request_id: str) -> None:
    with pytest.raises(LegatoError) as refused:
        await get_request(edge_with(None), ANN, request_id)
    assert refused.value.reason is Reason.NOT_FOUND
