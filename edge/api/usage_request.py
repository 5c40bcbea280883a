"""GET /v1/usage/requests/{id}: the state and cost of one request."""

import re
from typing import Any

from edge.billing.metering import Metering
from edge.principal import Principal
from protos.metering.v1 import metering_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import format_usd

# The prefix of a completion's id, before the id of its request.
COMPLETION_PREFIX = "chatcmpl-"
_REQUEST_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


async def get_usage_request(*, metering: Metering, principal: Principal, request_id: str) -> dict[str, Any]:
    """Finds a request by its `x-request-id` or the id of its completion. An account sees only its own requests."""
    own_id = request_id.removeprefix(COMPLETION_PREFIX)
    if not _REQUEST_ID.fullmatch(own_id):
        raise LegatoError(Reason.NOT_FOUND, "There is no such request.")
    await metering.caught_up(principal.account_id)
    found = await metering.request(pb.GetRequestRequest(account_id=principal.account_id, request_id=own_id))
    return {
        "object": "usage.request",
        "id": found.request_id,
        "state": _word(pb.RequestState.Name(found.state), "REQUEST_STATE"),
        "model": found.class_id or None,
        "key_id": found.key_id or None,
        "created": found.reserve_time.seconds if found.HasField("reserve_time") else None,
        "ended": found.end_time.seconds if found.HasField("end_time") else None,
        "end": _word(pb.End.Name(found.end), "END"),
        "basis": _word(pb.Basis.Name(found.basis), "BASIS"),
        "prompt_tokens": found.usage.prompt_tokens,
        "cached_tokens": found.usage.cached_tokens,
        "completion_tokens": found.usage.completion_tokens,
        "cost_nanos": found.charged_nanos,
        "cost_usd": format_usd(found.charged_nanos),
        "held_nanos": found.held_nanos,
        "price_version": found.price_version or None,
    }


def _word(name: str, prefix: str) -> str | None:
    word = name.removeprefix(f"{prefix}_").lower()
    return None if word == "unspecified" else word
