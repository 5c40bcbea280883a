"""Limits what keys may spend: metering keeps the limits with what was spent of them, and auth says whose a key is.

A new key is limited before it is created: nobody ever has a key whose limits do not hold yet, and where metering does
not answer, or refuses the limits, there is no key.
"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from legato_protos.metering.v1 import spend_limits_pb2 as pb
from services.auth.keys.records import NO_SPEND_LIMITS, KeySpendLimits
from services.chassis.access_tokens import Access
from services.chassis.errors import unavailable

if TYPE_CHECKING:
    from legato_protos.metering.v1.spend_limits_pb2_grpc import SpendLimitServiceAsyncStub

# Metering answers in milliseconds, and may be starting.
TIMEOUT_S: Final = 3.0


class SpendLimiter:
    def __init__(self, metering: "SpendLimitServiceAsyncStub | None") -> None:
        """Calls any replica of metering: all have the same database. With none, no key has limits."""
        self._metering = metering

    async def limit_new(self, account_id: str, key_id: str, limits: KeySpendLimits) -> KeySpendLimits:
        """Limits a key that is created next."""
        request = pb.LimitKeyRequest(account_id=account_id, key_id=key_id, limits=_to_message(limits))
        return _to_limits((await self._ask(request)).spend.limits)

    async def share(self, account_id: str, key_id: str, replaced_key_id: str) -> KeySpendLimits:
        """Lets a key that is created next share the limits and counters of another."""
        if self._metering is None:
            return NO_SPEND_LIMITS
        request = pb.LimitKeyRequest(account_id=account_id, key_id=key_id, replaced_key_id=replaced_key_id)
        return _to_limits((await self._ask(request)).spend.limits)

    async def change(self, by: Access | None, account_id: str, key_id: str, limits: KeySpendLimits) -> pb.Spend:
        """Replaces the limits of a key. Metering records the change for the audit log."""
        changed_by = pb.ChangedBy(user_id=by.user_id, session_id=by.session_id) if by else pb.ChangedBy()
        request = pb.LimitKeyRequest(
            account_id=account_id, key_id=key_id, limits=_to_message(limits), changed_by=changed_by
        )
        return (await self._ask(request)).spend

    async def _ask(self, request: pb.LimitKeyRequest) -> pb.LimitKeyResponse:
        if self._metering is None:
            raise unavailable("Metering")
        return await self._metering.LimitKey(request, timeout=TIMEOUT_S)


def _to_message(limits: KeySpendLimits) -> pb.SpendLimits:
    return pb.SpendLimits(**asdict(limits))


def _to_limits(limits: pb.SpendLimits) -> KeySpendLimits:
    return KeySpendLimits(**{field.name: nanos for field, nanos in limits.ListFields()})
