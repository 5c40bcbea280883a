"""`python -m services.auth`, as a process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from legato_protos.auth.v1 import auth_pb2 as pb
from legato_protos.auth.v1 import auth_pb2_grpc as pb_grpc
from legato_protos.auth.v1.accounts_pb2_grpc import AccountAdminServiceStub
from services.chassis.rpc.channel import open_sync_channel
from tests.support.forked.service_process import ServiceProcess

PEPPER = "5e" * 32
TIMEOUT_S = 60


def start(data: Path, **settings: str) -> ServiceProcess:
    own = {"LEGATO_DATA": str(data), "LEGATO_KEY_PEPPERS": f"1:{PEPPER}", "LEGATO_DEBUG": "true"}
    return ServiceProcess("services.auth", own | settings)


@contextmanager
def running(data: Path, **settings: str) -> Iterator[tuple[ServiceProcess, grpc.Channel]]:
    process = start(data, **settings)
    try:
        with open_sync_channel(f"unix:{data}/run/auth.sock") as channel:
            grpc.channel_ready_future(channel).result(TIMEOUT_S)
            yield process, channel
    finally:
        process.close()


def stop(process: ServiceProcess) -> str:
    """Gives all that the process wrote."""
    code, written = process.stop()
    assert code == 0
    return written


def test_process_serves_keys_keeps_them_and_writes_no_secret_anywhere(socket_folder: Path) -> None:
    with running(socket_folder) as (process, channel):
        assert is_serving(channel)
        account = AccountAdminServiceStub(channel).CreateAccount(pb.CreateAccountRequest(name="Acme")).account
        keys = pb_grpc.KeyAdminServiceStub(channel)
        created = [keys.CreateKey(pb.CreateKeyRequest(account_id=account.account_id, name="laptop")) for _ in range(2)]
        verify = pb_grpc.AuthServiceStub(channel).Verify
        for issued in created:
            assert verify(pb.VerifyRequest(api_key=issued.api_key)).principal.account_id == account.account_id
        revoked = keys.RevokeKey(pb.RevokeKeyRequest(key_id=created[1].key.key_id)).key
        assert revoked.state == pb.KEY_STATE_REVOKED
        for refused in (created[1].api_key, created[0].api_key[:-1], "sk-legato-canary"):
            with pytest.raises(grpc.RpcError):
                verify(pb.VerifyRequest(api_key=refused))
        # The write-ahead log is read while it is there: closing the database folds it into the file.
        written = stored_bytes(socket_folder)
        written += stop(process).encode()
    written += stored_bytes(socket_folder)

    assert created[0].key.key_id.encode() in written
    for issued in created:
        secret = issued.api_key.removeprefix("sk-legato-")[16:]
        assert secret[:12].encode() not in written
        assert secret[-20:].encode() not in written
    assert PEPPER.encode() not in written
    assert bytes.fromhex(PEPPER) not in written
    assert b"canary" not in written

    with running(socket_folder) as (process, channel):
        verified = pb_grpc.AuthServiceStub(channel).Verify(pb.VerifyRequest(api_key=created[0].api_key))
        assert verified.principal.key_id == created[0].key.key_id
        stop(process)


def test_process_that_has_other_peppers_than_the_last_one_tells_callers_to_forget_all(socket_folder: Path) -> None:
    both = f"1:{PEPPER},2:{'6f' * 32}"
    heartbeats: list[pb.WatchResponse] = []
    for peppers in (both, both, f"2:{'6f' * 32}"):
        with running(socket_folder, LEGATO_KEY_PEPPERS=peppers) as (process, channel):
            epoch = heartbeats[-1].epoch if heartbeats else 0
            pings = iter([pb.WatchRequest(ping_no=1, epoch=epoch)])
            heartbeats.append(next(pb_grpc.AuthServiceStub(channel).Watch(pings)))
            stop(process)
    first, same, other = heartbeats
    assert (same.epoch, same.forget_all) == (first.epoch, False)
    assert (other.epoch, other.forget_all) == (first.epoch + 1, True)


def test_socket_is_for_its_owner_alone_and_an_open_watch_does_not_hold_up_the_end(socket_folder: Path) -> None:
    enough = threading.Event()

    def pings() -> Iterator[pb.WatchRequest]:
        yield pb.WatchRequest(ping_no=1, epoch=1)
        enough.wait(TIMEOUT_S)

    with running(socket_folder) as (process, channel):
        assert (socket_folder / "run").stat().st_mode & 0o777 == 0o700
        heartbeats = pb_grpc.AuthServiceStub(channel).Watch(pings())
        assert next(heartbeats).echoed_ping_no == 1
        stop(process)
        with pytest.raises(StopIteration):
            next(heartbeats)
        enough.set()


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"LEGATO_KEY_PEPPERS": "1:abcd"}, "LEGATO_KEY_PEPPERS: version 1 has fewer than 32 bytes"),
        ({"LEGATO_AUTH_LISTEN": "127.0.0.1:0"}, "LEGATO_INSECURE_TCP=1"),
        (
            {"LEGATO_DATABASE_URL": "mysql://x", "LEGATO_DATABASE_REGION": "local"},
            "LEGATO_DATABASE_URL: must be a PostgreSQL address",
        ),
    ],
)
def test_wrong_setting_is_named_and_ends_the_process(socket_folder: Path, settings: dict[str, str], line: str) -> None:
    code, written = start(socket_folder, **settings).end()
    assert code == 2
    assert line in written
    assert "Traceback" not in written


def test_database_that_cannot_be_reached_is_said_on_one_line(socket_folder: Path) -> None:
    process = start(socket_folder, LEGATO_DATABASE_URL="postgresql://legato@/nowhere?host=/nonexistent")
    code, written = process.end()
    assert code == 1
    assert "the database cannot be reached" in written
    assert "Traceback" not in written


def is_serving(channel: grpc.Channel) -> bool:
    # The stubs of the health service declare no methods.
    health: Any = health_pb2_grpc.HealthStub(channel)
    return bool(health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING)


def stored_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("auth.db*")))
