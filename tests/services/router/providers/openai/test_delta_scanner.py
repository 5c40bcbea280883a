"""The scanner of reads: what it accepts, it reads as the parsers do; and it accepts what servers send."""

import httptools
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.packed_pieces import SEPARATOR
from services.router.providers.base import ProviderError
from services.router.providers.http.sse import EventReader, EventTooLong
from services.router.providers.openai.answer import CompletionAnswer
from services.router.providers.openai.delta_scanner import scan_deltas

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
Scanned = tuple[str, bytes, int]


def framed(*events: bytes) -> bytes:
    data = b"".join(b"data: %b\n\n" % event for event in events)
    return b"%x\r\n%b\r\n" % (len(data), data)


class Body:
    """The body of a response, by the parser."""

    def __init__(self) -> None:
        self.data = b""
        self.is_between_chunks = False
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(HEAD)

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)
        self.is_between_chunks = self.is_between_chunks and data.endswith(b"\r\n")

    def on_body(self, data: bytes) -> None:
        self.data += data

    def on_chunk_header(self) -> None:
        self.is_between_chunks = False

    def on_chunk_complete(self) -> None:
        self.is_between_chunks = True


def parse(read: bytes) -> Scanned | None:
    """Returns what the parsers make of a read; None if that is not one piece of texts and nothing else."""
    body, reader, answer = Body(), EventReader(), CompletionAnswer()
    try:
        body.feed(read)
        events = reader.feed(body.data)
        answer.begin_piece()
        for event in events:
            answer.read_event(event)
    except (httptools.HttpParserError, ProviderError, EventTooLong):
        return None
    is_all = body.is_between_chunks and not reader.is_inside_event and not (answer.is_finished or answer.is_over)
    if not is_all or len(answer.pieces) != 1 or answer.usage is not None:
        return None
    [piece] = answer.pieces
    if not piece.contents or piece.tool_calls or piece.hidden or piece.refuses:
        return None
    return "".join(piece.contents), SEPARATOR.join(map(msgspec.json.encode, piece.contents)), len(body.data)


def event(content: str = "x", **fields: object) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    return msgspec.json.encode({"id": "c-1", "object": "chat.completion.chunk", "choices": [choice], **fields})


# Of OpenAI, Azure, vLLM, SGLang, llama.cpp, Groq, DeepSeek, Mistral, OpenRouter and Together: fields that others lack, and
# spaces as Python writes them.
SERVERS = {
    "OpenAI": b'{"id":"chatcmpl-B9","object":"chat.completion.chunk","created":1741569952,"model":"gpt-4.1-mini",'
    b'"service_tier":"default","system_fingerprint":"fp_a7","choices":[{"index":0,"delta":{"content":" rain"},'
    b'"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"Ab3xZ"}',
    "Azure": b'{"choices":[{"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}},"delta":'
    b'{"content":" rain"},"finish_reason":null,"index":0,"logprobs":null}],"created":1741569952,"id":"c","model":"m",'
    b'"object":"chat.completion.chunk","system_fingerprint":"fp"}',
    "vLLM": b'{"id":"c","object":"chat.completion.chunk","created":1,"model":"meta-llama/Llama-3","choices":[{"index":0,'
    b'"delta":{"content":" rain","reasoning_content":null},"logprobs":null,"finish_reason":null,"token_ids":null}]}',
    "SGLang": b'{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":'
    b'null,"content":" rain","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,'
    b'"matched_stop":null}],"usage":null}',
    "llama.cpp": b'{"choices":[{"finish_reason":null,"index":0,"delta":{"content":" rain"}}],"created":1,"id":"c",'
    b'"model":"m","system_fingerprint":"b6","object":"chat.completion.chunk"}',
    "Groq": b'{"id":"c","object":"chat.completion.chunk","created":1,"model":"llama3-8b-8192","system_fingerprint":"fp",'
    b'"choices":[{"index":0,"delta":{"content":" rain"},"logprobs":null,"finish_reason":null}],"x_groq":null}',
    "Mistral": b'{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
    b'{"content":" rain"},"finish_reason":null}],"p":"abcdefgh"}',
    "OpenRouter": b'{"id":"gen-1","provider":"Together","model":"m","object":"chat.completion.chunk","created":1,"choices":'
    b'[{"index":0,"delta":{"role":"assistant","content":" rain"},"finish_reason":null,"native_finish_reason":null,'
    b'"logprobs":null}]}',
    "Python's json": b'{"id": "c", "object": "chat.completion.chunk", "created": 1.5, "choices": [{"index": 0, "delta": '
    b'{"content": " rain"}, "logprobs": {"content": [ {"logprob": -0.25, "bytes": [ ]} ]}, "finish_reason": null}]}',
}


@pytest.mark.parametrize("server", SERVERS)
def test_events_of_servers_are_recognized(server: str) -> None:
    read = framed(SERVERS[server])
    assert scan_deltas(read) == parse(read) == (" rain", b'" rain"', len(SERVERS[server]) + len(b"data: \n\n"))


def test_all_events_of_a_read_are_one_piece() -> None:
    read = framed(event("a"), event("b")) + framed(event("c"))
    assert scan_deltas(read) == parse(read)
    scanned = scan_deltas(read)
    assert scanned is not None
    assert scanned[:2] == ("abc", b'"a"\n"b"\n"c"')


@pytest.mark.parametrize(
    "spelled",
    [rb"\n\t\r\b\f", rb"\"\\\/", rb"\u2019\u00e9\u4e2d", "é中🎵".encode(), b"\x7f", rb"a\u0431b"],
)
def test_texts_are_decoded_and_spelled_like_our_own(spelled: bytes) -> None:
    read = framed(event("@").replace(b"@", spelled))
    assert scan_deltas(read) is not None
    assert scan_deltas(read) == parse(read)


TEXT = event("x")
DECLINED = {
    "nothing": b"",
    "half a chunk": framed(TEXT)[:-1],
    "an incomplete size": framed(TEXT) + b"1f",
    "the last chunk": framed(TEXT) + b"0\r\n\r\n",
    "a chunk extension": framed(TEXT).replace(b"\r\n", b";x=1\r\n", 1),
    "a size that is too small": b"5" + framed(TEXT)[2:],
    "half an event": b"%x\r\ndata: %b\n\r\n" % (len(TEXT) + 7, TEXT),
    "an event of two lines": framed(TEXT + b"\ndata: "),
    "line ends of two characters": framed(TEXT).replace(b"\n\n", b"\r\n"),
    "a comment": framed(TEXT).replace(b"data: ", b": data"),
    "the end": framed(b"[DONE]"),
    "a finish reason": framed(TEXT.replace(b'"finish_reason":null', b'"finish_reason":"stop"')),
    "no content": framed(TEXT.replace(b'"content":"x"', b"")),
    "an empty content": framed(event("")),
    "a content of null": framed(TEXT.replace(b'"x"', b"null")),
    "content in parts": framed(TEXT.replace(b'"x"', b'[{"text":"x"}]')),
    "a content before another": framed(TEXT.replace(b'"x"', b'"x","content":"y"')),
    "a refusal": framed(TEXT.replace(b'"x"', b'"x","refusal":"no"')),
    "reasoning": framed(TEXT.replace(b'"x"', b'"x","reasoning":"why"')),
    "a tool call": framed(TEXT.replace(b'"x"', b'"x","tool_calls":[]')),
    "no choice": framed(event(choices=[])),
    "two choices": framed(TEXT.replace(b"null}]", b"null},{}]")),
    "a whole message": framed(TEXT.replace(b'"finish_reason"', b'"message":{},"finish_reason"')),
    "a usage": framed(event(usage={"prompt_tokens": 1})),
    "an error": framed(event(error={"message": "no"})),
    "an error by its kind": framed(TEXT.replace(b"chat.completion.chunk", b"error")),
    "a key that is escaped": framed(TEXT.replace(b'"id"', rb'"us\u0061ge"')),
    "half a surrogate pair": framed(event("@").replace(b"@", rb"\ud83c")),
    "an escaped control character": framed(event("@").replace(b"@", rb"\u0007")),
    "a control character": framed(event("@").replace(b"@", b"\x07")),
    "no UTF-8": framed(event("@").replace(b"@", b"\xff")),
    "a character in two events": framed(event("@").replace(b"@", b"\xc3"), event("@").replace(b"@", b"\xa9")),
    "no JSON": framed(TEXT[:-1]),
    "JSON that goes on": framed(TEXT + b"}"),
    "a number with a leading zero": framed(TEXT.replace(b'"index":0', b'"index":00')),
    "a nesting that is too deep": framed(event(deep=msgspec.Raw(b"[" * 9 + b"]" * 9))),
    "too many events": framed(*[TEXT] * 129),
    "too many bytes": framed(event("x" * 65_536)),
}


@pytest.mark.parametrize("why", DECLINED)
def test_what_is_not_ordinary_is_declined(why: str) -> None:
    assert scan_deltas(DECLINED[why]) is None


def test_only_bytes_are_scanned() -> None:
    with pytest.raises(TypeError):
        scan_deltas("data: {}")  # type: ignore[arg-type]


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_NAMES = (
    "content",
    "role",
    "refusal",
    "reasoning",
    "tool_calls",
    "delta",
    "message",
    "finish_reason",
    "usage",
    "error",
)
_fields = st.dictionaries(
    st.sampled_from((*_NAMES, "object", "choices", "x")) | st.text(max_size=4), _values, max_size=3
)
_events = st.builds(
    lambda content, delta, choice, fields: msgspec.json.encode(
        {**fields, "choices": [{"delta": {**delta, "content": content}, **choice}]}
    ),
    st.text(min_size=1, max_size=12),
    _fields,
    _fields,
    _fields,
)
_plain_events = st.builds(event, st.text(min_size=1, max_size=12))
_reads = st.lists(st.lists(_plain_events | _events, min_size=1, max_size=3), min_size=1, max_size=3).map(
    lambda chunks: b"".join(framed(*events) for events in chunks)
)


@given(_reads)
def test_what_is_accepted_is_what_the_parsers_read(read: bytes) -> None:
    scanned = scan_deltas(read)
    assert scanned is None or scanned == parse(read)


@given(_reads, st.data())
def test_what_is_accepted_of_a_damaged_read_is_what_the_parsers_read(read: bytes, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(read)))
        end = data.draw(st.integers(begin, min(begin + 3, len(read))))
        put = data.draw(
            st.binary(max_size=2) | st.sampled_from([b'"', b"\\", b",", b"}", b"]", b"\n", b"\r\n", b"0", b" "])
        )
        read = read[:begin] + put + read[end:]
    scanned = scan_deltas(read)
    assert scanned is None or scanned == parse(read)
