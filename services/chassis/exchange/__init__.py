"""Many calls on one long-lived stream between two processes.

A gRPC call of its own costs close to a millisecond of processor time on both sides together; as one of many items in a
message on a stream that is open anyway, the same question and answer costs some microseconds. Both sides keep an outbox
that is emptied whenever the last write is done: alone, an item leaves at once; under load, batches form by themselves.
While many calls are under way each side rests for some milliseconds after a message, so that they become larger.
"""

from services.chassis.exchange.calls import ClientCall
from services.chassis.exchange.client import ExchangeBroken, ExchangeClient
from services.chassis.exchange.methods import CallStream, StreamMethod, UnaryMethod
from services.chassis.exchange.rpc import RpcCall, serve_stream
from services.chassis.exchange.server import ExchangeServer
from services.chassis.exchange.spans import CallSpans

__all__ = [
    "CallSpans",
    "CallStream",
    "ClientCall",
    "ExchangeBroken",
    "ExchangeClient",
    "ExchangeServer",
    "RpcCall",
    "StreamMethod",
    "UnaryMethod",
    "serve_stream",
]
