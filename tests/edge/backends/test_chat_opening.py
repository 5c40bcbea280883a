"""The message that opens a chat, as a router reads it."""

import pytest

from edge.backends.chat_opening import ChatOpening
from legato_protos.router.v1.router_pb2 import ChatOpen, ChatRequest, Grant
from legato_protos.type.v1.class_allowance_pb2 import ClassAllowance

FIELDS = ChatOpen(
    request_id="request",
    model="forte",
    stream=True,
    grant=Grant(prompt_tokens=300, output_tokens=1_000_000),
    allowed_classes=ClassAllowance(class_ids=["forte", "mezzo"]),
    max_tokens=0,
)


# Around each number of bytes of a length.
@pytest.mark.parametrize("size_bytes", [0, 1, 2, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_router_reads_what_protobuf_would_have_sent(size_bytes: int) -> None:
    messages_json, tools_json = b"m" * size_bytes, b"t" * (size_bytes // 2)
    expected = ChatRequest(open=FIELDS)
    expected.open.messages_json, expected.open.tools_json = messages_json, tools_json
    sent = ChatOpening(FIELDS, messages_json, tools_json).SerializeToString()
    assert ChatRequest.FromString(sent) == expected
    assert len(sent) == expected.ByteSize(), "nothing is sent that protobuf would leave out"


def test_opening_can_be_sent_again() -> None:
    opening = ChatOpening(FIELDS, b"[]", b"[{}]")
    assert opening.SerializeToString() == opening.SerializeToString()


def test_size_tells_how_much_is_sent() -> None:
    opening = ChatOpening(FIELDS, b"m" * 10_000, b"t" * 1_000)
    assert 0 < len(opening.SerializeToString()) - opening.size_bytes < 32
