"""The packed form of an ordinary piece of an answer: its token counts, and its texts as JSON strings.

A piece is some characters. To build, send, parse and read a `ChatResponse` for them costs several times what everything
else does that a piece needs. So an exchange carries ordinary pieces in this form, if the one who opened the chat asks
for it (`ChatOpen.takes_packed`); everything else remains a `ChatResponse`.

A packed piece begins with a zero byte, which no message in protobuf's format does, so that both can share a queue.
"""

from collections.abc import Iterable, Sequence
from struct import Struct

import msgspec

from legato_protos.router.v1.router_pb2 import ChatResponse

_COUNTS = Struct("<xQQ")
PACKED_MARK = b"\0"
# The texts follow, each as a JSON string, with separators between them: no JSON string contains a line break.
PACKED_HEAD_BYTES = _COUNTS.size
SEPARATOR = b"\n"

read_counts = _COUNTS.unpack_from
_encode = msgspec.json.encode
_texts = msgspec.json.Decoder(list[str])


def pack_piece(prompt_tokens: int, output_tokens: int, contents: Sequence[str]) -> bytes:
    counts = _COUNTS.pack(prompt_tokens, output_tokens)
    if len(contents) == 1:
        return counts + _encode(contents[0])
    return counts + write_texts(contents)


def write_texts(contents: Sequence[str]) -> bytes:
    return SEPARATOR.join(map(_encode, contents))


def unpack_piece(packed: bytes) -> ChatResponse:
    """Returns the same piece as a message."""
    prompt_tokens, output_tokens = read_counts(packed)
    return ChatResponse(contents=unpack_texts([packed]), prompt_tokens=prompt_tokens, output_tokens=output_tokens)


def unpack_texts(packed_pieces: Iterable[bytes]) -> list[str]:
    """Returns the texts of some pieces, in their order."""
    return read_texts(SEPARATOR.join([packed[PACKED_HEAD_BYTES:] for packed in packed_pieces]))


def read_texts(texts_json: bytes | bytearray) -> list[str]:
    return _texts.decode(b"[" + texts_json.replace(SEPARATOR, b",") + b"]")
