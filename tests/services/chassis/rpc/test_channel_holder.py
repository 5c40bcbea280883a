"""Connections between processes over TCP: who is let in, and what becomes of them when certificates are replaced."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cli.authority import make_authority
from legato_protos.auth.v1 import auth_pb2
from legato_protos.auth.v1.auth_pb2_grpc import AuthServiceStub
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.certificates import Certificates, Pem
from services.chassis.rpc.channel import ChannelHolder, errors_of, open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from tests.services.chassis.playful_servicer import Servicer, verify
from tests.support.certificates import DAYS, Authority

if TYPE_CHECKING:
    from legato_protos.auth.v1.auth_pb2_grpc import AuthServiceAsyncStub


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


@asynccontextmanager
async def serving(
    certificates: Certificates, log: Log, listen: str = "127.0.0.1:0"
) -> AsyncIterator[tuple[str, RpcServer]]:
    server = RpcServer(listen, [Servicer()], log, certificates, health_listen="127.0.0.1:0")
    await server.start()
    try:
        async with asyncio.timeout(60):
            yield f"127.0.0.1:{server.port}", server
    finally:
        await server.stop(0)


async def reason_of_failure(address: str, tls: Pem | None, server_name: str = "auth") -> Reason | None:
    async with open_channel(address, tls, server_name) as channel:
        try:
            await verify(channel, "good")
        except LegatoError as error:
            return error.reason
    return None


async def test_only_certificates_of_the_same_authority_are_let_in(
    authority: Authority, tmp_path: Path, log: Log
) -> None:
    elsewhere = Authority(tmp_path / "elsewhere")
    good = authority.certificates("edge", log).current()
    forged = elsewhere.certificates("edge", log, believed=authority).current()
    async with serving(authority.certificates("auth", log), log) as (address, _):
        assert await reason_of_failure(address, good) is None
        assert await reason_of_failure(address, forged) is Reason.UNAVAILABLE
        assert await reason_of_failure(address, None) is Reason.UNAVAILABLE


async def test_caller_without_a_certificate_is_not_let_in(authority: Authority, log: Log) -> None:
    believed = authority.certificates("edge", log).current().authority
    async with serving(authority.certificates("auth", log), log) as (address, _):
        credentials = grpc.ssl_channel_credentials(believed)
        options = [("grpc.ssl_target_name_override", "auth")]
        async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
            with pytest.raises(LegatoError) as failed:
                await verify(channel, "good")
    assert failed.value.reason is Reason.UNAVAILABLE


async def test_expired_certificate_is_not_let_in(authority: Authority, log: Log) -> None:
    authority.issue("edge", now=datetime.now(UTC) - timedelta(days=DAYS + 1))
    async with serving(authority.certificates("auth", log), log) as (address, _):
        assert await reason_of_failure(address, authority.certificates("edge", log).current()) is Reason.UNAVAILABLE


async def test_service_with_an_expired_certificate_is_not_trusted(authority: Authority, log: Log) -> None:
    authority.issue("auth", now=datetime.now(UTC) - timedelta(days=DAYS + 1))
    async with serving(authority.certificates("auth", log), log) as (address, _):
        assert await reason_of_failure(address, authority.certificates("edge", log).current()) is Reason.UNAVAILABLE


@pytest.mark.parametrize("impostor", ["router", "edge", "caller/reports"])
async def test_no_service_can_pass_for_another(authority: Authority, log: Log, impostor: str) -> None:
    async with serving(authority.certificates(impostor, log), log) as (address, _):
        assert await reason_of_failure(address, authority.certificates("edge", log).current()) is Reason.UNAVAILABLE


async def test_certificate_of_a_service_is_not_one_to_call_with(authority: Authority, log: Log) -> None:
    async with serving(authority.certificates("auth", log), log) as (address, _):
        assert await reason_of_failure(address, authority.certificates("metering", log).current()) is Reason.UNAVAILABLE


async def test_health_alone_is_told_without_a_certificate(authority: Authority, log: Log) -> None:
    async with serving(authority.certificates("auth", log), log) as (_, server):
        assert server.health_port
        async with open_channel(f"127.0.0.1:{server.health_port}") as channel:
            health: Any = health_pb2_grpc.HealthStub(channel)
            answer = await health.Check(health_pb2.HealthCheckRequest(service="legato.auth.v1.AuthService"))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await AuthServiceStub(channel).Verify(auth_pb2.VerifyRequest())
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
            await server.announce_shutdown()
            answer = await health.Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


class Watching:
    """A stream that is open for as long as it is watched."""

    def __init__(self, stub: "AuthServiceAsyncStub") -> None:
        self._call = stub.Watch()

    async def ping(self) -> int:
        await self._call.write(auth_pb2.WatchRequest(ping_no=1))
        answer: Any = await self._call.read()
        return int(answer.echoed_ping_no)

    def end(self) -> None:
        self._call.cancel()


def connect(address: str, certificates: Certificates) -> ChannelHolder["AuthServiceAsyncStub"]:
    return ChannelHolder(address, "auth", AuthServiceStub, certificates)


async def verify_by(connection: ChannelHolder["AuthServiceAsyncStub"]) -> int:
    with errors_of("Auth"):
        return (await connection.stub.Verify(auth_pb2.VerifyRequest(api_key="good"))).epoch


async def test_stream_goes_on_while_both_ends_get_new_certificates(authority: Authority, log: Log) -> None:
    """The old authority is forgotten altogether, so a peer that still shows its certificates is turned away."""
    own, service = authority.certificates("edge", log), authority.certificates("auth", log)
    old = own.current()
    async with serving(service, log) as (address, _):
        connection = connect(address, own)
        watching = Watching(connection.stub)
        assert await watching.ping() == 1
        authority.replace()
        assert await verify_by(connection) == 7
        assert await watching.ping() == 1
        assert await reason_of_failure(address, old) is Reason.UNAVAILABLE
        watching.end()
        await connection.close()


async def test_service_that_comes_back_is_reached_with_the_new_certificate(authority: Authority, log: Log) -> None:
    service = authority.certificates("auth", log)
    async with serving(service, log) as (address, _):
        connection = connect(address, authority.certificates("edge", log))
        assert await verify_by(connection) == 7
    authority.replace()
    async with serving(service, log, listen=address):
        request = auth_pb2.VerifyRequest(api_key="good")
        assert (await connection.stub.Verify(request, wait_for_ready=True, timeout=60)).epoch == 7
        await connection.close()


async def test_both_authorities_are_believed_while_one_replaces_the_other(authority: Authority, log: Log) -> None:
    own, service = authority.certificates("edge", log), authority.certificates("auth", log)
    async with serving(service, log) as (address, _):
        connection = connect(address, own)
        assert await verify_by(connection) == 7
        make_authority(authority.folder, DAYS)
        assert await reason_of_failure(address, own.current()) is None
        authority.issue("edge")
        assert await reason_of_failure(address, own.current()) is None
        authority.issue("auth")
        assert await reason_of_failure(address, own.current()) is None
        assert await verify_by(connection) == 7
        await connection.close()


async def test_connection_that_is_given_up_is_opened_anew(authority: Authority, log: Log) -> None:
    async with serving(authority.certificates("auth", log), log) as (address, _):
        connection = connect(address, authority.certificates("edge", log))
        watching = Watching(connection.stub)
        assert await watching.ping() == 1
        await connection.reopen()
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError, asyncio.InvalidStateError)):
            await watching.ping()
        assert await verify_by(connection) == 7
        await connection.close()
