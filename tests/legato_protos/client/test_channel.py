"""Which calls gRPC repeats, and how connections end that have gone silent."""

import asyncio
import json
import socket
from pathlib import Path

import grpc
import pytest

from legato_protos.chat.v1.chat_pb2 import DESCRIPTOR
from legato_protos.client import AsyncLegatoClient, Certificates, UnavailableError
from legato_protos.client.channel import service_config
from tests.support.certificates import Authority
from tests.support.fault_proxy import STALL, FaultProxy
from tests.support.servers.chat_service import ScriptedChatService

API_KEY = "sk-of-the-test"


def test_service_config_has_every_method_once_and_repeats_only_what_was_not_available_or_met_a_shutdown() -> None:
    service = DESCRIPTOR.services_by_name["ChatService"]
    config = json.loads(service_config())
    named = [(name["service"], name["method"]) for method in config["methodConfig"] for name in method["name"]]
    assert sorted(named) == sorted((service.full_name, method.name) for method in service.methods)
    policies = [method["retryPolicy"] for method in config["methodConfig"]]
    assert {tuple(policy["retryableStatusCodes"]) for policy in policies} == {("UNAVAILABLE", "CANCELLED")}


async def test_calls_leave_an_edge_that_has_gone_silent(tmp_path: Path) -> None:
    """It closes nothing, like a machine that has vanished. Without pings, calls to it would hang to their deadline."""
    authority = Authority(tmp_path / "certs")
    certificate, key = authority.files("caller/reports")
    own = Certificates(authority.folder / "ca.pem", certificate, key)
    edges = [ScriptedChatService() for _ in range(2)]
    servers = [edge.start("127.0.0.1:0", _credentials(authority)) for edge in edges]
    async with FaultProxy(f"127.0.0.1:{servers[0][1]}") as proxy:
        address = f"ipv4:{proxy.address},127.0.0.1:{servers[1][1]}"
        async with AsyncLegatoClient(address, api_key=API_KEY, certificates=own) as legato:
            while not all(edge.received for edge in edges):
                await legato.list_models()
            proxy.set(STALL)
            async with asyncio.timeout(120):
                await asyncio.gather(*(legato.complete("Hi", timeout_s=600) for _ in range(4)))
    for server, _ in servers:
        server.stop(None).wait()


async def test_call_to_an_edge_that_never_answers_fails_within_a_bound(socket_folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(socket_folder / "silent.sock"))
        silent.listen()
        async with AsyncLegatoClient(f"unix:{socket_folder}/silent.sock", api_key=API_KEY) as legato:
            with pytest.raises(UnavailableError):
                await asyncio.wait_for(legato.complete("Hi", timeout_s=600), 120)


def _credentials(authority: Authority) -> grpc.ServerCredentials:
    certificate, key = (path.read_bytes() for path in authority.files("edge"))
    believed = (authority.folder / "ca.pem").read_bytes()
    return grpc.ssl_server_credentials([(key, certificate)], believed, require_client_auth=True)
