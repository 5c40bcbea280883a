"""Serves gRPC's reflection, which tells tools such as grpcurl what a server offers, as v1 and as v1alpha.

gRPC's package has v1alpha alone; v1 has the same messages by other names.
"""

from collections.abc import Sequence
from typing import Final

import grpc
import grpc.aio
from google.protobuf import descriptor_pool, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2 as pb
from grpc_reflection.v1alpha._async import ReflectionServicer

REFLECTION_SERVICES: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")


def serve_reflection(service_names: Sequence[str], server: grpc.aio.Server) -> None:
    """Lets clients of the server find out about these services."""
    _describe_v1()
    handler = grpc.stream_stream_rpc_method_handler(
        ReflectionServicer([*service_names, *REFLECTION_SERVICES]).ServerReflectionInfo,
        request_deserializer=pb.ServerReflectionRequest.FromString,
        response_serializer=pb.ServerReflectionResponse.SerializeToString,
    )
    handlers = {"ServerReflectionInfo": handler}
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(name, handlers) for name in REFLECTION_SERVICES]
    )


def _describe_v1() -> None:
    """Adds v1 to what can be described, so that clients that ask about all listed services find it."""
    alpha = FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(alpha)
    described = text_format.Parse(text_format.MessageToString(alpha).replace("v1alpha", "v1"), FileDescriptorProto())
    descriptor_pool.Default().AddSerializedFile(described.SerializeToString())
