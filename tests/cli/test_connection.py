import asyncio
import io
import os
import socket
import threading
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from cli.connection import CallRefused, NotRunning, call_service, running_services
from cli.settings import SettingsWrong
from cli.supervision import data_folder
from legato_protos.auth.v1 import accounts_pb2_grpc, auth_pb2
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.server import RpcServer
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from tests.support.certificates import Authority


class Accounts(accounts_pb2_grpc.AccountAdminServiceServicer):
    async def GetAccount(self, request: auth_pb2.GetAccountRequest, context: Any) -> auth_pb2.GetAccountResponse:
        if request.account_id != "acct_1":
            raise LegatoError(Reason.NOT_FOUND, Sentence.verbatim("There is no such account."))
        return auth_pb2.GetAccountResponse(account=auth_pb2.Account(account_id="acct_1", name="Ada"))


ACCOUNTS = Accounts()  # type: ignore[abstract]


def name_of(data: Path, account_id: str, environ: dict[str, str]) -> str:
    services = running_services(data, environ)
    try:
        request = auth_pb2.GetAccountRequest(account_id=account_id)
        return call_service(services.accounts.GetAccount, request).account.name
    finally:
        services.close()


async def test_a_service_is_reached_on_the_folders_socket(socket_folder: Path, log: Log) -> None:
    data_folder.prepare(socket_folder)
    server = RpcServer(f"unix:{data_folder.socket_of('auth', socket_folder)}", [ACCOUNTS], log)
    await server.start()
    assert await asyncio.to_thread(name_of, socket_folder, "acct_1", {}) == "Ada"
    with pytest.raises(CallRefused) as refusal:
        await asyncio.to_thread(name_of, socket_folder, "acct_2", {})
    assert (refusal.value.message, refusal.value.reason) == ("There is no such account.", Reason.NOT_FOUND)
    await server.stop(0)


async def test_a_service_elsewhere_is_reached_by_its_address(tmp_path: Path, log: Log) -> None:
    server = RpcServer("127.0.0.1:0", [ACCOUNTS], log, insecure_tcp=True)
    await server.start()
    environ = {"LEGATO_AUTH_ADDRESS": f"127.0.0.1:{server.port}"}
    assert await asyncio.to_thread(name_of, tmp_path, "acct_1", environ) == "Ada"
    await server.stop(0)


async def test_an_address_may_be_in_a_file_of_its_own(tmp_path: Path, log: Log) -> None:
    server = RpcServer("127.0.0.1:0", [ACCOUNTS], log, insecure_tcp=True)
    await server.start()
    file = tmp_path / "address"
    file.write_text(f"127.0.0.1:{server.port}\n")
    try:
        assert await asyncio.to_thread(name_of, tmp_path, "acct_1", {"LEGATO_AUTH_ADDRESS_FILE": str(file)}) == "Ada"
    finally:
        await server.stop(0)


async def test_service_on_tcp_is_asked_with_the_certificate_of_an_admin(tmp_path: Path, log: Log) -> None:
    authority = Authority(tmp_path)
    server = RpcServer("127.0.0.1:0", [ACCOUNTS], log, authority.certificates("auth", log))
    await server.start()
    for name, reason in (("admin", None), ("edge", Reason.CALLER_NOT_ALLOWED)):
        certificate, key = authority.files(name)
        environ = {
            "LEGATO_AUTH_ADDRESS": f"127.0.0.1:{server.port}",
            "LEGATO_TLS_CA": str(tmp_path / "ca.pem"),
            "LEGATO_TLS_CERT": str(certificate),
            "LEGATO_TLS_KEY": str(key),
        }
        if reason is None:
            assert await asyncio.to_thread(name_of, tmp_path, "acct_1", environ) == "Ada"
        else:
            with pytest.raises(CallRefused) as refusal:
                await asyncio.to_thread(name_of, tmp_path, "acct_1", environ)
            assert refusal.value.reason is reason
    await server.stop(0)


async def test_of_several_addresses_the_first_that_answers_is_taken(tmp_path: Path, log: Log) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
    server = RpcServer("127.0.0.1:0", [ACCOUNTS], log, insecure_tcp=True)
    await server.start()
    living = f"127.0.0.1:{server.port}"
    for addresses in (f"{dead}, {living}", f"{living},{dead}", f"unix:{tmp_path}/none.sock,{living}"):
        assert await asyncio.to_thread(name_of, tmp_path, "acct_1", {"LEGATO_AUTH_ADDRESS": addresses}) == "Ada"
    await server.stop(0)


@pytest.mark.parametrize("left_behind", [True, False])
def test_a_socket_that_is_absent_or_refuses_means_not_running(socket_folder: Path, left_behind: bool) -> None:
    data_folder.prepare(socket_folder)
    if left_behind:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(data_folder.socket_of("auth", socket_folder)))
    with pytest.raises(NotRunning, match="Legato is not running on"):
        name_of(socket_folder, "acct_1", {})


def test_an_address_where_nothing_listens_means_not_running(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NotRunning, match="auth is not running at"):
        name_of(tmp_path, "acct_1", {"LEGATO_AUTH_ADDRESS": f"127.0.0.1:{port}"})


def test_services_are_not_half_here_and_half_elsewhere(socket_folder: Path) -> None:
    """Accounts of one service would be granted credit in the books of another."""
    data_folder.prepare(socket_folder)
    elsewhere = {"LEGATO_AUTH_ADDRESS": "auth.example:7001"}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(data_folder.socket_of("metering", socket_folder)))
        listener.listen()
        services = running_services(socket_folder, elsewhere)
        with pytest.raises(SettingsWrong, match="LEGATO_METERING_ADDRESS: missing"):
            _ = services.credits
        with pytest.raises(SettingsWrong, match="LEGATO_ROUTER_ADDRESS: missing"):
            _ = services.grounding


def test_a_process_that_is_being_started_again_is_waited_for(socket_folder: Path) -> None:
    """The supervisor is there, so its process will be too."""
    data_folder.prepare(socket_folder)
    lock = data_folder.lock_for_supervisor(socket_folder)
    with socket.socket(socket.AF_UNIX) as listener:

        def come_back() -> None:
            listener.bind(str(data_folder.socket_of("auth", socket_folder)))
            listener.listen()

        threading.Timer(0.2, come_back).start()
        services = running_services(socket_folder, {})
        assert services.accounts is not None
        services.close()
    os.close(lock)


def test_every_router_that_runs_is_found_and_one_that_answers_for_what_all_share(
    socket_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.connection.RESTART_TIMEOUT_S", 0.0)
    data_folder.prepare(socket_folder)
    names = ["auth", "metering-1", "metering-2", "router-1", "router-2"]
    data_folder.write_processes(socket_folder, {"processes": [{"name": name} for name in names]})
    lock = data_folder.lock_for_supervisor(socket_folder)
    opened: list[str] = []
    open_channel = grpc.insecure_channel

    def opening(address: str, **options: Any) -> grpc.Channel:
        opened.append(address.rpartition("/")[2])
        return open_channel(address, **options)

    monkeypatch.setattr("cli.connection.open_sync_channel", opening)
    with socket.socket(socket.AF_UNIX) as metering, socket.socket(socket.AF_UNIX) as router:
        for listener, name in ((metering, "metering-2"), (router, "router-2")):
            listener.bind(str(data_folder.socket_of(name, socket_folder)))
            listener.listen()
        services = running_services(socket_folder, {})
        # The one that is away fails in its calls, and does not affect the other.
        assert list(services.routers) == ["router-1", "router-2"]
        assert services.grounding is not None
        assert services.metering is not None
        services.close()
    os.close(lock)
    assert opened == ["router-1.sock", "router-2.sock", "router-2.sock", "metering-2.sock"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Away(grpc.RpcError):
    """The gRPC error where nothing answers."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def trailing_metadata(self) -> tuple[Any, ...]:
        return ()


def test_a_wait_is_shown_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    attempts = iter(range(3))

    def method(request: str, timeout: float) -> str:
        if next(attempts) < 2:
            raise Away
        return "an answer"

    assert call_service(cast(Any, method), "a question", retry_for_s=10.0) == "an answer"
    assert "waiting for the service" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
