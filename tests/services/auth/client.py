"""Lets tests talk to auth: its real stubs, and the few calls that most tests make."""

from collections.abc import Iterable

import grpc.aio
import pytest

from legato_protos.auth.v1 import auth_pb2 as pb
from legato_protos.auth.v1 import auth_pb2_grpc as pb_grpc
from legato_protos.auth.v1.accounts_pb2_grpc import AccountAdminServiceStub
from services.chassis.errors import LegatoError
from services.chassis.rpc.channel import errors_of

DAY_S = 24 * 60 * 60

WatchCall = grpc.aio.StreamStreamCall[pb.WatchRequest, pb.WatchResponse]


class AuthClient:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.auth = pb_grpc.AuthServiceStub(channel)
        self.accounts = AccountAdminServiceStub(channel)
        self.keys = pb_grpc.KeyAdminServiceStub(channel)
        self.maintenance = pb_grpc.AuthServiceStub(channel)

    async def create_account(self, name: str = "Acme") -> pb.Account:
        with errors_of("auth"):
            return (await self.accounts.CreateAccount(pb.CreateAccountRequest(name=name))).account

    async def update_account(self, request: pb.UpdateAccountRequest) -> pb.Account:
        with errors_of("auth"):
            return (await self.accounts.UpdateAccount(request)).account

    async def create_key(
        self,
        account_id: str,
        name: str = "laptop",
        scopes: Iterable[pb.Scope.ValueType] = (),
        expires_after_days: int | None = None,
    ) -> pb.CreateKeyResponse:
        request = pb.CreateKeyRequest(
            account_id=account_id, name=name, scopes=scopes, expires_after_days=expires_after_days
        )
        with errors_of("auth"):
            return await self.keys.CreateKey(request)

    async def revoke_key(self, key_id: str) -> pb.Key:
        with errors_of("auth"):
            return (await self.keys.RevokeKey(pb.RevokeKeyRequest(key_id=key_id))).key

    async def update_key(self, request: pb.UpdateKeyRequest) -> pb.Key:
        with errors_of("auth"):
            return (await self.keys.UpdateKey(request)).key

    async def suspend(self, account_id: str) -> pb.Account:
        with errors_of("auth"):
            return (await self.accounts.SuspendAccount(pb.SuspendAccountRequest(account_id=account_id))).account

    async def resume(self, account_id: str) -> pb.Account:
        with errors_of("auth"):
            return (await self.accounts.ResumeAccount(pb.ResumeAccountRequest(account_id=account_id))).account

    async def find_refused(self, *key_ids: str) -> list[str]:
        with errors_of("auth"):
            return list((await self.auth.FindRefusedKeys(pb.FindRefusedKeysRequest(key_ids=key_ids))).key_ids)

    async def verify(self, api_key: str) -> pb.VerifyResponse:
        with errors_of("auth"):
            return await self.auth.Verify(pb.VerifyRequest(api_key=api_key))

    def watch(self) -> WatchCall:
        return self.auth.Watch()


async def ping(call: WatchCall, number: int, epoch: int) -> pb.WatchResponse:
    """Sends a ping and gives the heartbeat that answers it."""
    await call.write(pb.WatchRequest(ping_no=number, epoch=epoch))
    heartbeat = await call.read()
    assert isinstance(heartbeat, pb.WatchResponse)
    return heartbeat


async def refusal_of(client: AuthClient, api_key: str) -> LegatoError:
    with pytest.raises(LegatoError) as caught:
        await client.verify(api_key)
    return caught.value
