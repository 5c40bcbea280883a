"""The state and the cost of one request."""

import re
from typing import Final

from edge.backends.auth import Principal
from edge.chat.edge_state import EdgeState
from edge.wire.answer_ids import COMPLETION_PREFIX, MESSAGE_PREFIX, RESPONSE_PREFIX
from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.metering.v1 import metering_pb2 as metering
from legato_protos.type.v1.chat_api_pb2 import ChatApi
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.rules.usage import named

# Ids of answers begin with what the API calls them.
_REQUEST_ID: Final = re.compile(
    f"(?:{COMPLETION_PREFIX}|{MESSAGE_PREFIX}|{RESPONSE_PREFIX})?([0-9a-f]{{32}})", re.ASCII
)
_ENDS: Final = {number: pb.RequestEnd.Value(f"REQUEST_{name}") for name, number in metering.End.items()}
_APIS: Final = {
    number: pb.RequestApi.Value(f"REQUEST_{name.removeprefix('CHAT_')}") for name, number in ChatApi.items()
}
_BASES: Final = {number: pb.UsageBasis.Value(f"USAGE_{name}") for name, number in metering.Basis.items()}


async def get_request(edge: EdgeState, principal: Principal, request_id: str) -> pb.GetRequestResponse:
    """Returns a request of the principal's account, by its id or by that of its answer. Others are not found."""
    account_id, given = principal.account_id, _REQUEST_ID.fullmatch(request_id)
    if given is None:
        raise LegatoError(Reason.NOT_FOUND, Sentence("thing_unknown", what="request"))
    own_id = given[1]
    await edge.metering.caught_up(account_id)
    found = await edge.metering.request(metering.GetRequestRequest(account_id=account_id, request_id=own_id))
    caller = principal.caller
    if found.key_id != principal.key_id:
        caller = (await edge.principals.list_callers(account_id)).get(found.key_id, "")
    return pb.GetRequestResponse(
        request_id=found.request_id,
        state=pb.RequestState.Value(metering.RequestState.Name(found.state)),
        model=found.class_id,
        key_id=found.key_id,
        caller=caller,
        create_time=found.reserve_time if found.HasField("reserve_time") else None,
        end_time=found.end_time if found.HasField("end_time") else None,
        end=_ENDS.get(found.end, pb.REQUEST_END_UNSPECIFIED),
        basis=_BASES.get(found.basis, pb.USAGE_BASIS_UNSPECIFIED),
        usage=pb.Usage(**named(found.usage), cost_nanos=found.charged_nanos),
        held_nanos=found.held_nanos,
        price_version=found.price_version,
        routes_version=found.routes_version,
        first_token_ms=found.first_token_ms if found.HasField("first_token_ms") else None,
        duration_ms=found.duration_ms if found.HasField("duration_ms") else None,
        api=_APIS.get(found.api, pb.REQUEST_API_UNSPECIFIED),
    )
