"""Prepares the gRPC service for programs."""

from edge.chat.edge_state import EdgeState
from edge.rpc.servicer import KEEPALIVE_OPTIONS, ChatServicer
from edge.settings import EdgeSettings
from services.chassis.process.serving import Process, RpcBeside
from services.chassis.rpc.callers import Role
from services.chassis.rpc.server import RpcServer, private_listen


def prepare_rpcs(settings: EdgeSettings, process: Process, edge: EdgeState) -> RpcBeside:
    listen = settings.edge_rpc_listen or private_listen(settings.data, "chat")
    if process.certificates is not None and not listen.startswith("unix:"):
        process.certificates.warn_unless_server(Role.EDGE.value)
    servicer = ChatServicer(edge, settings.stalled_reader_s)
    server = RpcServer(
        listen,
        [servicer],
        process.log,
        process.certificates,
        insecure_tcp=settings.insecure_tcp,
        options=KEEPALIVE_OPTIONS,
    )
    return RpcBeside(server, servicer.cancel_all, settings.drain_s)
