from unittest.mock import Mock

import pytest

from edge.api.completions import ChunkedReply
from edge.wire.completion_json import Chunks
from legato_protos.router.v1.router_pb2 import ChatResponse
from services.chassis.packed_pieces import pack_piece, read_counts, unpack_piece

TEXTS = [["a"], ["line\nbreak", "\r\n\n", '"quoted" \\ back'], ["\0", "", "\u2028\u20ac\U0001f600"], ["\t"] * 128]


@pytest.mark.parametrize("texts", TEXTS)
def test_piece_is_the_same_after_it_was_packed(texts: list[str]) -> None:
    packed = pack_piece(50, 10**9, texts)
    assert unpack_piece(packed) == ChatResponse(contents=texts, prompt_tokens=50, output_tokens=10**9)
    assert read_counts(packed) == (50, 10**9)


@pytest.mark.parametrize("texts", TEXTS)
def test_client_reads_the_same_chunks_of_either_form(texts: list[str]) -> None:
    writer = Mock()
    chunks = Chunks("chatcmpl-7", 1, "forte")
    ChunkedReply(Mock(), chunks, (), writer, keepalive_s=10).write_packed(pack_piece(1, 1, texts))
    writer.write.assert_called_once_with(chunks.deltas(ChatResponse(contents=texts)))


def test_packed_piece_is_told_from_a_message_by_its_first_byte() -> None:
    assert pack_piece(1, 1, ["x"])[0] == 0
    assert ChatResponse(contents=["x"], prompt_tokens=1).SerializeToString()[0] != 0
