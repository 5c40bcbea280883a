import asyncio
from collections.abc import Sequence
from pathlib import Path

import grpc.aio
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from services.chassis.rpc.channel import open_channel
from services.chassis.rpc.reflection import REFLECTION_SERVICES
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from tests.services.chassis.playful_servicer import Servicer
from tests.support.certificates import Authority


async def reflect(
    channel: grpc.aio.Channel, version: str, *requests: ServerReflectionRequest
) -> Sequence[ServerReflectionResponse]:
    method = channel.stream_stream(
        f"/{version}/ServerReflectionInfo",
        request_serializer=ServerReflectionRequest.SerializeToString,
        response_deserializer=ServerReflectionResponse.FromString,
    )
    return [response async for response in method(iter(requests))]


@pytest.mark.parametrize("version", REFLECTION_SERVICES)
async def test_callers_and_admins_find_every_service_and_what_it_offers(version: str, tmp_path: Path, log: Log) -> None:
    authority = Authority(tmp_path)
    server = RpcServer("127.0.0.1:0", [Servicer()], log, authority.certificates("auth", log))
    await server.start()
    for identity in ("caller/reports", "admin"):
        tls = authority.certificates(identity, log).current()
        async with asyncio.timeout(60), open_channel(f"127.0.0.1:{server.port}", tls, "auth") as channel:
            [listed] = await reflect(channel, version, ServerReflectionRequest(list_services=""))
            names = [service.name for service in listed.list_services_response.service]
            assert names == sorted(["legato.auth.v1.AuthService", "grpc.health.v1.Health", *REFLECTION_SERVICES])
            asked = [ServerReflectionRequest(file_containing_symbol=name) for name in names]
            described = await reflect(channel, version, *asked)
        for name, response in zip(names, described, strict=True):
            files = map(FileDescriptorProto.FromString, response.file_descriptor_response.file_descriptor_proto)
            assert name in {f"{file.package}.{service.name}" for file in files for service in file.service}
    await server.stop(0)
