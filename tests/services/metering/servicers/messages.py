"""Messages to the service, with everything filled in that a test does not care about."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError
from tests.services.metering.samples import ACCOUNT, KEY, request_id

Ask = Callable[[str, Any], Awaitable[Any]]


async def grant(admin: Any, amount_nanos: int, grant_id: str = "grant-1") -> pb.Balance:
    request = pb.GrantCreditsRequest(operation_id=grant_id, account_id=ACCOUNT, amount_nanos=amount_nanos)
    balance: pb.Balance = (await admin.GrantCredits(request)).balance
    return balance


def reserve(number: int = 1, **changes: Any) -> pb.ReserveRequest:
    given: dict[str, Any] = {
        "request_id": request_id(number),
        "account_id": ACCOUNT,
        "key_id": KEY,
        "class_id": "forte",
        "prompt_tokens": 5,
        "output_tokens": 10,
    }
    return pb.ReserveRequest(**(given | changes))


def settle(number: int = 1, **changes: Any) -> pb.SettleRequest:
    given: dict[str, Any] = {
        "request_id": request_id(number),
        "account_id": ACCOUNT,
        "usage": Usage(prompt_tokens=5, completion_tokens=3),
        "basis": pb.BASIS_PROVIDER,
        "end": pb.END_COMPLETE,
    }
    return pb.SettleRequest(**(given | changes))


def delivery(number: int, completion: int, account_id: str = ACCOUNT) -> pb.Delivery:
    usage = Usage(prompt_tokens=5, completion_tokens=completion)
    return pb.Delivery(request_id=request_id(number), account_id=account_id, delivered=usage)


async def refusal_of(call: Awaitable[Any]) -> LegatoError:
    with pytest.raises(LegatoError) as refusal:
        await call
    return refusal.value
