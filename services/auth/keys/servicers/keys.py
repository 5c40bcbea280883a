"""Implements the RPCs of KeyAdminService for keys: converts messages to calls of the domain, and back.

The account of a console's request was compared with its access token's before, unless an operator calls.
"""

from typing import Any, Final

from legato_protos.auth.v1 import auth_pb2 as pb
from legato_protos.auth.v1 import auth_pb2_grpc as pb_grpc
from legato_protos.metering.v1.spend_limits_pb2 import SpendLimits
from services.auth.core.messages import LIMITS, from_allowance, given, given_classes, to_account
from services.auth.core.records.accounts import ALL_CLASSES
from services.auth.core.times import DAY_US
from services.auth.keys.records import Scope
from services.auth.keys.rules import checks as key_checks
from services.auth.keys.rules.callers import Callers
from services.auth.keys.rules.keys import IssuedKey, Keys, ShownKey
from services.auth.keys.servicers.callers import CallerMethods
from services.auth.keys.store.keys import KeyChoice
from services.chassis.access_tokens import current_access
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message

SPEND_LIMITS: Final = ("day_nanos", "month_nanos", "total_nanos")


class KeyAdminServicer(CallerMethods, pb_grpc.KeyAdminServiceServicer):
    def __init__(self, keys: Keys, callers: Callers) -> None:
        super().__init__(callers)
        self._keys = keys

    async def CreateKey(self, request: pb.CreateKeyRequest, context: Context) -> pb.CreateKeyResponse:
        issued = await self._keys.create(
            current_access.get(),
            request.account_id,
            request.name,
            scopes=map(_to_scope, request.scopes),
            limits=given(request, *LIMITS),
            allowed_classes=given_classes(request) or ALL_CLASSES,
            spend_limits=given(request.spend_limits, *SPEND_LIMITS),
            form_id=request.form_id,
            **given(request, "expires_after_days"),
        )
        return pb.CreateKeyResponse(**self._to_issued(issued))

    async def RotateKey(self, request: pb.RotateKeyRequest, context: Context) -> pb.RotateKeyResponse:
        issued = await self._keys.rotate(
            current_access.get(),
            request.account_id,
            request.key_id,
            form_id=request.form_id,
            **given(request, "expires_after_days"),
        )
        return pb.RotateKeyResponse(**self._to_issued(issued))

    async def RenameKey(self, request: pb.RenameKeyRequest, context: Context) -> pb.RenameKeyResponse:
        shown = await self._keys.rename(current_access.get(), request.key_id, request.name)
        return pb.RenameKeyResponse(key=self._to_key(shown))

    async def UpdateKey(self, request: pb.UpdateKeyRequest, context: Context) -> pb.UpdateKeyResponse:
        limits, classes = given(request, *LIMITS), given_classes(request)
        shown = await self._keys.update(current_access.get(), request.key_id, limits, classes)
        return pb.UpdateKeyResponse(key=self._to_key(shown))

    async def RevokeKey(self, request: pb.RevokeKeyRequest, context: Context) -> pb.RevokeKeyResponse:
        shown = await self._keys.revoke(current_access.get(), request.key_id)
        return pb.RevokeKeyResponse(key=self._to_key(shown))

    async def ListKeys(self, request: pb.ListKeysRequest, context: Context) -> pb.ListKeysResponse:
        by, unused_days = current_access.get(), key_checks.unused_for_days(request.unused_for_days)
        choice = KeyChoice(
            with_playground=request.with_playground,
            with_callers=request.with_callers,
            search=key_checks.search(request.search),
            active_at_us=self._keys.now_us() if request.only_active else None,
            created_by=by.user_id if by and request.only_own else request.created_by,
            newest_first=request.newest_first,
            never_used=request.HasField("unused_for_days") and not unused_days,
            unused_since_us=self._keys.now_us() - unused_days * DAY_US if unused_days else None,
        )
        page = await self._keys.list_page(
            by, request.account_id, request.page_size, request.page_token, choice, request.also_key_ids
        )
        return pb.ListKeysResponse(
            keys=map(self._to_key, page.items),
            next_page_token=page.next_token,
            previous_page_token=page.previous_token,
            also_keys=map(self._to_key, page.also),
        )

    async def GetKey(self, request: pb.GetKeyRequest, context: Context) -> pb.GetKeyResponse:
        found = await self._keys.get(current_access.get(), request.key_id)
        return pb.GetKeyResponse(
            key=self._to_key(found.shown),
            account=to_account(found.account, self._keys.service_limits),
            replaced=self._to_key(found.replaced) if found.replaced else None,
            replaced_by=self._to_key(found.replaced_by) if found.replaced_by else None,
        )

    async def SetKeySpendLimits(
        self, request: pb.SetKeySpendLimitsRequest, context: Context
    ) -> pb.SetKeySpendLimitsResponse:
        spend = await self._keys.set_spend_limits(
            current_access.get(), request.account_id, request.key_id, given(request.spend_limits, *SPEND_LIMITS)
        )
        return pb.SetKeySpendLimitsResponse(spend=spend)

    async def CountKeysByPepper(
        self, request: pb.CountKeysByPepperRequest, context: Context
    ) -> pb.CountKeysByPepperResponse:
        counts = await self._keys.count_by_pepper()
        return pb.CountKeysByPepperResponse(counts=[to_message(pb.PepperCount, use) for use in counts])

    def _to_issued(self, issued: IssuedKey) -> dict[str, Any]:
        limits = to_message(SpendLimits, issued.spend_limits)
        return {"key": self._to_key(issued.shown), "api_key": issued.secret, "spend_limits": limits}

    def _to_key(self, shown: ShownKey) -> pb.Key:
        key = shown.key
        return to_message(
            pb.Key,
            key,
            key.limits,
            shown,
            state=pb.KeyState.Value(f"KEY_STATE_{key.state_at(self._keys.now_us()).name}"),
            is_playground=key.playground_user_id is not None,
            caller=key.caller_name,
            allowed_classes=from_allowance(key.allowed_classes),
        )


def _to_scope(number: pb.Scope.ValueType) -> Scope | None:
    """Converts a scope; None stands for an unknown one."""
    name = pb.Scope.Name(number) if number in pb.Scope.values() else ""
    return Scope.__members__.get(name.removeprefix("SCOPE_"))
