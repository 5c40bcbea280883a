"""Implements the RPCs of auth.proto: converts messages to calls of the domain, and back."""

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any

import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from protos.auth.v1 import auth_pb2 as pb
from protos.auth.v1 import auth_pb2_grpc as pb_grpc
from protos.auth.v1 import users_pb2
from protos.type.v1.class_allowance_pb2 import ClassAllowance as ClassAllowanceMessage
from services.auth import checks
from services.auth.accounts.accounts import AccountAdmin
from services.auth.changes import GivenLimits
from services.auth.keys.key_admin import KeyAdmin
from services.auth.keys.verifier import Verified, Verifier
from services.auth.keys.watch import Heartbeat, Ping, Watches
from services.auth.records.accounts import ALL_CLASSES, Account, ClassAllowance
from services.auth.records.keys import Key, KeyState, Scope
from services.auth.records.times import to_micros
from services.auth.servicers.maintenance import to_maintenance
from services.chassis.errors import LegatoError, Reason
from services.chassis.timing.deadlines import Clock

Context = grpc.aio.ServicerContext[Any, Any]

_SCOPE_TO_PROTO = {
    Scope.INFERENCE: pb.SCOPE_INFERENCE,
    Scope.MODELS: pb.SCOPE_MODELS,
    Scope.USAGE: pb.SCOPE_USAGE,
}
_SCOPE_FROM_PROTO = {number: scope for scope, number in _SCOPE_TO_PROTO.items()}

_STATE_TO_PROTO = {
    KeyState.ACTIVE: pb.KEY_STATE_ACTIVE,
    KeyState.REVOKED: pb.KEY_STATE_REVOKED,
    KeyState.EXPIRED: pb.KEY_STATE_EXPIRED,
}


class AuthServicer(pb_grpc.AuthServiceServicer):
    def __init__(self, verifier: Verifier, watches: Watches) -> None:
        self._verifier = verifier
        self._watches = watches

    async def Verify(self, request: pb.VerifyRequest, context: Context) -> pb.VerifyResponse:
        verified = await self._verifier.verify(request.api_key, accepts_tokens=request.accepts_playground_tokens)
        return pb.VerifyResponse(
            principal=_to_principal(verified),
            epoch=verified.epoch,
            once_only=not verified.may_be_remembered,
            maintenance=to_maintenance(verified.holder.maintenance),
        )

    async def FindRefusedKeys(self, request: pb.FindRefusedKeysRequest, context: Context) -> pb.FindRefusedKeysResponse:
        return pb.FindRefusedKeysResponse(key_ids=await self._verifier.find_refused(request.key_ids))

    async def Watch(
        self, request_iterator: AsyncIterator[pb.WatchRequest], context: Context
    ) -> AsyncIterator[pb.WatchResponse]:
        async with aclosing(self._watches.serve(_to_pings(request_iterator))) as heartbeats:
            async for heartbeat in heartbeats:
                yield _to_watch_response(heartbeat)


class AccountAdminServicer(pb_grpc.AccountAdminServiceServicer):
    def __init__(self, accounts: AccountAdmin) -> None:
        self._accounts = accounts

    async def CreateAccount(self, request: pb.CreateAccountRequest, context: Context) -> pb.CreateAccountResponse:
        return pb.CreateAccountResponse(account=to_account(await self._accounts.create(request.name)))

    async def GetAccount(self, request: pb.GetAccountRequest, context: Context) -> pb.GetAccountResponse:
        return pb.GetAccountResponse(account=to_account(await self._accounts.get(request.account_id)))

    async def ListAccounts(self, request: pb.ListAccountsRequest, context: Context) -> pb.ListAccountsResponse:
        page = await self._accounts.list_page(request.page_size, request.page_token, request.query)
        return pb.ListAccountsResponse(
            accounts=[to_account(account) for account in page.items], next_page_token=page.next_token
        )

    async def UpdateAccount(self, request: pb.UpdateAccountRequest, context: Context) -> pb.UpdateAccountResponse:
        account = await self._accounts.update(
            request.account_id,
            request.preferred_class if request.HasField("preferred_class") else None,
            _given_limits(request),
            given_switches(request),
            allowed_classes=given_classes(request),
        )
        return pb.UpdateAccountResponse(account=to_account(account))

    async def SuspendAccount(self, request: pb.SuspendAccountRequest, context: Context) -> pb.SuspendAccountResponse:
        return pb.SuspendAccountResponse(account=to_account(await self._accounts.suspend(request.account_id)))

    async def ResumeAccount(self, request: pb.ResumeAccountRequest, context: Context) -> pb.ResumeAccountResponse:
        return pb.ResumeAccountResponse(account=to_account(await self._accounts.resume(request.account_id)))


class KeyAdminServicer(pb_grpc.KeyAdminServiceServicer):
    def __init__(self, keys: KeyAdmin, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock

    async def CreateKey(self, request: pb.CreateKeyRequest, context: Context) -> pb.CreateKeyResponse:
        issued = await self._keys.create(
            request.account_id,
            request.name,
            scopes_from_proto(request.scopes),
            request.expires_after_days if request.HasField("expires_after_days") else None,
            classes_of_new_key(request),
        )
        return pb.CreateKeyResponse(key=to_key(issued.key, self._clock), api_key=issued.secret.reveal())

    async def ListKeys(self, request: pb.ListKeysRequest, context: Context) -> pb.ListKeysResponse:
        page = await self._keys.list_page(request.account_id, request.page_size, request.page_token)
        return pb.ListKeysResponse(
            keys=[to_key(key, self._clock) for key in page.items], next_page_token=page.next_token
        )

    async def UpdateKey(self, request: pb.UpdateKeyRequest, context: Context) -> pb.UpdateKeyResponse:
        key = await self._keys.update(request.key_id, _given_limits(request), given_classes(request))
        return pb.UpdateKeyResponse(key=to_key(key, self._clock))

    async def RevokeKey(self, request: pb.RevokeKeyRequest, context: Context) -> pb.RevokeKeyResponse:
        return pb.RevokeKeyResponse(key=to_key(await self._keys.revoke(request.key_id), self._clock))

    async def GetKey(self, request: pb.GetKeyRequest, context: Context) -> pb.GetKeyResponse:
        key, account, created_by_name = await self._keys.get(request.key_id)
        return pb.GetKeyResponse(
            key=to_key(key, self._clock),
            account=to_account(account),
            created_by=key.created_by,
            created_by_name=created_by_name,
        )

    async def CountKeysByPepper(
        self, request: pb.CountKeysByPepperRequest, context: Context
    ) -> pb.CountKeysByPepperResponse:
        counts = [
            pb.PepperCount(
                pepper_version=use.pepper_version, keys=use.keys, last_use_time=_to_timestamp(use.last_used_hour_us)
            )
            for use in await self._keys.count_by_pepper()
        ]
        return pb.CountKeysByPepperResponse(counts=counts)


def _to_principal(verified: Verified) -> pb.Principal:
    holder = verified.holder
    return pb.Principal(
        account_id=holder.key.account_id,
        key_id=holder.key.key_id,
        scopes=[_SCOPE_TO_PROTO[scope] for scope in holder.key.scopes],
        expire_time=_to_timestamp(holder.key.expires_at_us),
        preferred_class=holder.preferred_class,
        requests_per_minute=holder.limits.requests_per_minute,
        tokens_per_minute=holder.limits.tokens_per_minute,
        concurrent_requests=holder.limits.concurrent_requests,
        digest_key=verified.digest_key,
        search=holder.grounding.search,
        memory=holder.grounding.memory,
        attachments=holder.grounding.attachments,
        credential_id=holder.token_id,
        allowed_classes=_from_allowance(holder.allowed_classes),
    )


async def _to_pings(requests: AsyncIterator[pb.WatchRequest]) -> AsyncIterator[Ping]:
    # Not a generator expression: that would start receiving at once, and gRPC fails if nobody continues it.
    async for request in requests:
        networks = [(used.key_id, used.network) for used in request.used_networks]
        yield Ping(request.ping_no, request.epoch, request.used_key_ids, networks)


def _to_watch_response(heartbeat: Heartbeat) -> pb.WatchResponse:
    return pb.WatchResponse(
        epoch=heartbeat.changes.epoch,
        echoed_ping_no=heartbeat.echoed_ping_no,
        changed_key_ids=heartbeat.changes.key_ids,
        forget_all=heartbeat.changes.has_gap,
        refused_key_ids=heartbeat.changes.refused_key_ids,
        read_time=_to_timestamp(heartbeat.read_at_us),
        maintenance=to_maintenance(heartbeat.changes.maintenance),
    )


def to_account(account: Account) -> pb.Account:
    return pb.Account(
        account_id=account.account_id,
        name=account.name,
        create_time=_to_timestamp(account.created_at_us),
        preferred_class=account.preferred_class,
        requests_per_minute=account.limits.requests_per_minute,
        tokens_per_minute=account.limits.tokens_per_minute,
        concurrent_requests=account.limits.concurrent_requests,
        suspend_time=_to_timestamp(account.suspended_at_us),
        search=account.grounding.search,
        memory=account.grounding.memory,
        attachments=account.grounding.attachments,
        allowed_classes=_from_allowance(account.allowed_classes),
        auto_class=account.allowed_classes.auto_class(account.preferred_class),
    )


def to_key(key: Key, clock: Clock) -> pb.Key:
    return pb.Key(
        key_id=key.key_id,
        account_id=key.account_id,
        name=key.name,
        scopes=[_SCOPE_TO_PROTO[scope] for scope in key.scopes],
        create_time=_to_timestamp(key.created_at_us),
        expire_time=_to_timestamp(key.expires_at_us),
        revoke_time=_to_timestamp(key.revoked_at_us),
        state=_STATE_TO_PROTO[key.state_at(to_micros(clock.now()))],
        requests_per_minute=key.limits.requests_per_minute,
        tokens_per_minute=key.limits.tokens_per_minute,
        concurrent_requests=key.limits.concurrent_requests,
        last_use_time=_to_timestamp(key.last_used_hour_us),
        pepper_version=key.pepper_version,
        allowed_classes=_from_allowance(key.allowed_classes),
    )


def scopes_from_proto(scopes: Iterable[pb.Scope.ValueType]) -> list[Scope | None]:
    """Converts scopes; None stands for an unknown one."""
    return [_SCOPE_FROM_PROTO.get(scope) for scope in scopes]


def _given_limits(request: pb.UpdateAccountRequest | pb.UpdateKeyRequest) -> GivenLimits:
    return GivenLimits(
        request.requests_per_minute if request.HasField("requests_per_minute") else None,
        request.tokens_per_minute if request.HasField("tokens_per_minute") else None,
        request.concurrent_requests if request.HasField("concurrent_requests") else None,
    )


def classes_of_new_key(request: pb.CreateKeyRequest | users_pb2.AccountServiceCreateKeyRequest) -> ClassAllowance:
    if not request.HasField("allowed_classes"):
        return ALL_CLASSES
    return checks.allowed_classes(request.allowed_classes.class_ids)


def given_classes(
    request: pb.UpdateAccountRequest
    | pb.UpdateKeyRequest
    | users_pb2.AccountServiceUpdateAccountRequest
    | users_pb2.AccountServiceUpdateKeyRequest,
) -> ClassAllowance | None:
    """Returns what is to be allowed; None leaves it as it is."""
    if request.HasField("allowed_classes"):
        if request.allow_all_classes:
            raise LegatoError(Reason.REQUEST_INVALID, "Allow all classes or some, not both.", param="allowed_classes")
        return checks.allowed_classes(request.allowed_classes.class_ids)
    return ALL_CLASSES if request.allow_all_classes else None


def _from_allowance(allowance: ClassAllowance) -> ClassAllowanceMessage | None:
    return None if allowance.class_ids is None else ClassAllowanceMessage(class_ids=allowance.class_ids)


def given_switches(request: pb.UpdateAccountRequest | users_pb2.AccountServiceUpdateAccountRequest) -> dict[str, bool]:
    given = {"search": request.search, "memory": request.memory, "attachments": request.attachments}
    present = {field.name for field, _ in request.ListFields()}
    return {name: is_on for name, is_on in given.items() if name in present}


def _to_timestamp(micros: int | None) -> Timestamp | None:
    if micros is None:
        return None
    timestamp = Timestamp()
    timestamp.FromMicroseconds(micros)
    return timestamp
