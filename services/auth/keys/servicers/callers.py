"""Implements the RPCs of KeyAdminService for internal programs: converts messages to calls of the domain, and back."""

from legato_protos.auth.v1 import callers_pb2 as pb
from services.auth.core.messages import LIMITS, given
from services.auth.keys.records import CallerGrant
from services.auth.keys.rules.callers import Callers
from services.chassis.access_tokens import current_access
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message


class CallerMethods:
    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def GrantCaller(self, request: pb.GrantCallerRequest, context: Context) -> pb.GrantCallerResponse:
        granted = await self._callers.grant(
            current_access.get(),
            request.caller,
            request.account_id,
            all_accounts=request.all_accounts,
            limits=given(request, *LIMITS),
        )
        return pb.GrantCallerResponse(grant=_to_grant(granted))

    async def RevokeCaller(self, request: pb.RevokeCallerRequest, context: Context) -> pb.RevokeCallerResponse:
        remaining = await self._callers.revoke(current_access.get(), request.caller, request.account_id)
        return pb.RevokeCallerResponse(remaining_grants=map(_to_grant, remaining))

    async def ListCallers(self, request: pb.ListCallersRequest, context: Context) -> pb.ListCallersResponse:
        page = await self._callers.list_page(request.page_size, request.page_token)
        return pb.ListCallersResponse(grants=map(_to_grant, page.items), next_page_token=page.next_token)


def _to_grant(grant: CallerGrant) -> pb.CallerGrant:
    return to_message(pb.CallerGrant, grant, grant.limits)
