"""Fields that only newer programs know are found, wherever they are in a request."""

from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from edge.rpc.unknown_fields import MOST_VISITED, name_unknown_fields
from edge.wire.checked_json import MOST_NAMES
from legato_protos.chat.v1 import chat_pb2 as pb
from tests.edge.chat_harness import end, piece, saying
from tests.edge.rpc.rpc_harness import CHAT, KEY, RpcHarness


def newer(*names: str) -> Any:
    """The request of a program whose contract has another field, 99, in each of these messages."""
    file = FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)
    for message in file.message_type:
        if message.name in names:
            message.field.add(
                name="newer",
                number=99,
                type=FieldDescriptorProto.TYPE_STRING,
                label=FieldDescriptorProto.LABEL_OPTIONAL,
            )
    pool = DescriptorPool()
    for dependency in pb.DESCRIPTOR.dependencies:
        pool.AddSerializedFile(dependency.serialized_pb)
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("legato.chat.v1.CompleteRequest"))()


def found_in(request: Message) -> Sequence[str]:
    given = request.SerializeToString()
    read = pb.CompleteRequest.FromString(given)
    names = name_unknown_fields(read, given)
    assert read == pb.CompleteRequest.FromString(given) or names
    return names


def test_a_field_that_is_not_known_is_named_by_its_path_and_number() -> None:
    request = newer("CompleteRequest", "Chat", "Part", "Function", "Sampling")
    request.newer = "x"
    request.chat.newer = "x"
    for _ in range(3):
        request.chat.messages.add().parts.parts.add(text="Hi", newer="x")
    request.chat.tools.add().function.newer = "x"
    request.chat.sampling.newer = "x"
    assert sorted(found_in(request)) == [
        "99",
        "chat.99",
        "chat.messages.parts.parts.99",
        "chat.sampling.99",
        "chat.tools.function.99",
    ]


def test_a_request_of_known_fields_has_none() -> None:
    chat = pb.Chat(
        model="mezzo",
        messages=[pb.Message(role=pb.ROLE_USER, parts=pb.Parts(parts=[pb.Part(text="Hi")]))],
        sampling=pb.Sampling(logit_bias={"1": 0.5, "2": -0.5}, temperature=0),
    )
    chat.tools.add(function=pb.Function(name="now")).function.parameters.update({"type": "object", "b": [None, 1]})
    assert found_in(pb.CompleteRequest(chat=chat)) == ()
    # Another encoding of the same: the first text is replaced by the second.
    twice = pb.CompleteRequest(chat=pb.Chat(model="forte")).SerializeToString()
    twice += pb.CompleteRequest(chat=pb.Chat(model="mezzo")).SerializeToString()
    assert name_unknown_fields(pb.CompleteRequest.FromString(twice), twice) == ()


def test_more_names_than_can_be_told_are_one_more() -> None:
    # Field number 16 and more, of type varint, each with the value 0.
    given = b"".join(bytes([0x80 | (number & 15) << 3, number >> 4, 0]) for number in range(16, 16 + MOST_NAMES + 5))
    names = name_unknown_fields(pb.CompleteRequest.FromString(given), given)
    assert len(names) == MOST_NAMES + 1
    assert names[-1] == "*"


def test_a_search_that_takes_too_long_is_given_up() -> None:
    request = newer("Part")
    parts = request.chat.messages.add().parts
    for _ in range(MOST_VISITED):
        parts.parts.add()
    parts.parts.add(newer="x")
    assert found_in(request) == ("*",)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_caller_is_told_which_of_its_fields_are_not_known(rpc_harness: RpcHarness, is_streamed: bool) -> None:
    await rpc_harness.start(saying(piece("Hello", 1), end(1)))
    request = newer("Chat", "Message")
    request.chat.MergeFromString(CHAT.SerializeToString())
    request.chat.newer = request.chat.messages[0].newer = "x"
    given = request.SerializeToString()
    if is_streamed:
        [first, *_] = [each async for each in rpc_harness.stub.Stream(pb.StreamRequest.FromString(given), metadata=KEY)]
        ignored = first.started.ignored
    else:
        ignored = (await rpc_harness.stub.Complete(pb.CompleteRequest.FromString(given), metadata=KEY)).ignored
    assert sorted(ignored) == ["chat.99", "chat.messages.99"]
