"""A program that uses Legato's services without HTTP: it verifies a key, holds credit, chats, settles.

python examples/internal_caller.py .legato sk-legato-... "Say hello."
"""

import json
import random
import re
import socket
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import grpc

from legato_protos.auth.v1.auth_pb2 import VerifyRequest
from legato_protos.auth.v1.auth_pb2_grpc import AuthServiceStub
from legato_protos.metering.v1 import metering_pb2 as metering
from legato_protos.metering.v1.metering_pb2_grpc import MeteringServiceStub
from legato_protos.router.v1.router_pb2 import USAGE_SOURCE_PROVIDER, ChatOpen, ChatRequest, Grant
from legato_protos.router.v1.router_pb2_grpc import RouterServiceStub
from legato_protos.type.v1.usage_pb2 import Usage

CLASS = "mezzo"
# The character that stands before every chat counts too.
PROMPT_TOKENS, OUTPUT_TOKENS = 4000, 500


def ask(auth: grpc.Channel, meter: grpc.Channel, route: grpc.Channel, api_key: str, question: str) -> Iterator[str]:
    """The answer, piece by piece. However it ends, what was delivered is charged and the rest is given back."""
    caller = AuthServiceStub(auth).Verify(VerifyRequest(api_key=api_key)).principal
    request_id, account_id, books = uuid.uuid4().hex, caller.account_id, MeteringServiceStub(meter)
    books.Reserve(
        metering.ReserveRequest(
            request_id=request_id, account_id=account_id, key_id=caller.key_id, class_id=CLASS,
            prompt_tokens=PROMPT_TOKENS, output_tokens=OUTPUT_TOKENS,
        )
    )  # fmt: skip
    # A last grant: the router asks for no more credit, and the answer ends where this one does.
    grant = Grant(prompt_tokens=PROMPT_TOKENS, output_tokens=OUTPUT_TOKENS, last=True)
    messages = json.dumps([{"role": "user", "content": question}]).encode()
    opening = ChatOpen(
        request_id=request_id, account_id=account_id, model=CLASS, messages_json=messages, stream=True, grant=grant
    )
    if caller.HasField("allowed_classes"):
        # What the key may not use, the router refuses like an unknown model.
        opening.allowed_classes.CopyFrom(caller.allowed_classes)
    chat = RouterServiceStub(route).Chat(iter([ChatRequest(open=opening)]))
    used, basis, end = Usage(), metering.BASIS_COUNTED, metering.END_UPSTREAM_CUT
    try:
        for response in chat:
            used = Usage(prompt_tokens=response.prompt_tokens, completion_tokens=response.output_tokens)
            if response.HasField("finished"):
                used, end = response.finished.usage, metering.END_COMPLETE
                if response.finished.usage_source == USAGE_SOURCE_PROVIDER:
                    basis = metering.BASIS_PROVIDER
            yield from response.contents
    except GeneratorExit:
        # The reader of the answer has heard enough.
        end = metering.END_CLIENT_GONE
        raise
    finally:
        chat.cancel()
        books.Settle(
            metering.SettleRequest(request_id=request_id, account_id=account_id, usage=used, basis=basis, end=end)
        )


def channel_to(service: str, sockets: Path) -> grpc.Channel:
    """A channel to a process of the service that answers. Of several, such as routers, each can do everything."""
    name = re.compile(rf"{service}(-\d+)?\.sock")
    found = [path for path in sockets.iterdir() if name.fullmatch(path.name)]
    for path in random.sample(found, len(found)):
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                return grpc.insecure_channel(f"unix:{path}")
    sys.exit(f"No {service} answers in {sockets}.")


def main() -> None:
    data, api_key, question = sys.argv[1:]
    sockets = Path(data).resolve() / "run"
    auth, meter, route = (channel_to(service, sockets) for service in ("auth", "metering", "router"))
    for piece in ask(auth, meter, route, api_key, question):
        sys.stdout.write(piece)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
