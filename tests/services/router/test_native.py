"""Reads that are packed without being parsed: as the parsers read them, and all that servers send ordinarily."""

import httptools
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.packed_pieces import PACKED_HEAD_BYTES, pack_piece, read_counts
from services.router.native import RunningCount, pack_read, read_leading_texts
from services.router.prompts import tokens
from services.router.providers.base import ProviderError
from services.router.providers.http.sse import EventReader, EventTooLong
from services.router.providers.openai.answer import CompletionAnswer

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
# The packed piece, and the bytes of the body.
Packed = tuple[bytes, int]
PROMPT_TOKENS = 7
MOST_TOKENS = 10**9


def pack(read: bytes) -> Packed | None:
    packed = pack_read(read, RunningCount(tokens.counter()), 0, MOST_TOKENS, PROMPT_TOKENS, MOST_TOKENS)
    if packed is None:
        return None
    payload, output_tokens, body_bytes = packed
    assert read_counts(payload) == (PROMPT_TOKENS, output_tokens)
    return payload, body_bytes


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


def parse(read: bytes) -> Packed | None:
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
    is_all = body.is_between_chunks and not (reader.begun or reader.data) and not (answer.is_finished or answer.is_over)
    if not is_all or len(answer.pieces) != 1 or answer.usage is not None:
        return None
    [piece] = answer.pieces
    if not piece.contents or piece.tool_calls or piece.hidden or piece.refuses:
        return None
    output_tokens = tokens.count("".join(piece.contents))
    return pack_piece(PROMPT_TOKENS, output_tokens, piece.contents), len(body.data)


def event(content: str = "x", **fields: object) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    return msgspec.json.encode({"id": "c-1", "object": "chat.completion.chunk", "choices": [choice], **fields})


# With the fields that others lack, and spaces as Python writes them.
SERVERS = {
    "OpenAI": b'{"id":"chatcmpl-B9","object":"chat.completion.chunk","created":1741569952,"model":"gpt-4.1-mini",'
    b'"service_tier":"default","system_fingerprint":"fp_a7","choices":[{"index":0,"delta":{"content":" rain"},'
    b'"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"Ab3xZ"}',
    "Azure": b'{"choices":[{"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}},"delta":'
    b'{"content":" rain"},"finish_reason":null,"index":0,"logprobs":null}],"created":1741569952,"id":"c","model":"m",'
    b'"object":"chat.completion.chunk","system_fingerprint":"fp"}',
    "vLLM": b'{"id":"c","object":"chat.completion.chunk","created":1,"model":"llama/Llama-3","choices":[{"index":0,'
    b'"delta":{"content":" rain","reasoning_content":null},"logprobs":null,"finish_reason":null,"token_ids":null}]}',
    "SGLang": b'{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
    b'{"role":null,"content":" rain","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,'
    b'"matched_stop":null}],"usage":null}',
    "llama.cpp": b'{"choices":[{"finish_reason":null,"index":0,"delta":{"content":" rain"}}],"created":1,"id":"c",'
    b'"model":"m","system_fingerprint":"b6","object":"chat.completion.chunk"}',
    "Groq": b'{"id":"c","object":"chat.completion.chunk","created":1,"model":"llama3-8b","system_fingerprint":"fp",'
    b'"choices":[{"index":0,"delta":{"content":" rain"},"logprobs":null,"finish_reason":null}],"x_groq":null}',
    "Mistral": b'{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
    b'{"content":" rain"},"finish_reason":null}],"p":"abcdefgh"}',
    "OpenRouter": b'{"id":"g","provider":"Together","model":"m","object":"chat.completion.chunk","created":1,"choices":'
    b'[{"index":0,"delta":{"role":"assistant","content":" rain"},"finish_reason":null,"native_finish_reason":null,'
    b'"logprobs":null}]}',
    "a server that cites nothing": b'{"choices":[{"index":0,"delta":{"content":" rain","annotations":[]}}],"id":"c"}',
    "Python's json": b'{"id": "c", "object": "chat.completion.chunk", "at": 1.5, "choices": [{"index": 0, "delta": '
    b'{"content": " rain"}, "logprobs": {"content": [ {"logprob": -0.25, "bytes": [ ]} ]}, "finish_reason": null}]}',
}


@pytest.mark.parametrize("server", SERVERS)
def test_events_of_servers_are_recognized(server: str) -> None:
    read = framed(SERVERS[server])
    packed = pack(read)
    assert packed is not None
    assert packed == parse(read)
    assert packed[0][PACKED_HEAD_BYTES:] == b'" rain"'


def test_all_events_of_a_read_are_one_piece() -> None:
    read = framed(event("a"), event("b")) + framed(event("c"))
    packed = pack(read)
    assert packed is not None
    assert packed == parse(read)
    assert packed[0][PACKED_HEAD_BYTES:] == b'"a"\n"b"\n"c"'


@pytest.mark.parametrize(
    "spelled",
    [rb"\n\t\r\b\f", rb"\"\\\/", rb"\u2019\u00e9\u4e2d", "é中🎵".encode(), b"\x7f", rb"a\u0431b"],
)
def test_texts_are_decoded_and_spelled_like_our_own(spelled: bytes) -> None:
    read = framed(event("@").replace(b"@", spelled))
    assert pack(read) is not None
    assert pack(read) == parse(read)


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
    "citations": framed(TEXT.replace(b'"x"', b'"x","annotations":[{"type":"url_citation"}]')),
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
    "too many objects": framed(event(many=[{}] * 20_001)),
    "too many events": framed(*[TEXT] * 129),
    "too many bytes": framed(event("x" * 65_536)),
}


@pytest.mark.parametrize("why", DECLINED)
def test_what_is_not_ordinary_is_declined(why: str) -> None:
    assert pack(DECLINED[why]) is None


def test_only_bytes_are_packed() -> None:
    with pytest.raises(TypeError):
        pack("data: {}")  # type: ignore[arg-type]


TEN = framed(event("x" * 10))


@pytest.mark.parametrize(("sure_tokens", "is_packed"), [(14, False), (15, True)])
def test_read_that_may_have_more_tokens_than_are_sure_is_declined_uncounted(sure_tokens: int, is_packed: bool) -> None:
    contents = RunningCount(tokens.counter())
    packed = pack_read(TEN, contents, 5, sure_tokens, PROMPT_TOKENS, MOST_TOKENS)
    assert (packed is not None) is is_packed
    assert bool(contents.tokens) is is_packed


def test_count_goes_on_from_read_to_read_and_is_told_up_to_the_limit() -> None:
    contents = RunningCount(tokens.counter())
    first = pack_read(framed(event("hello wor")), contents, 5, MOST_TOKENS, PROMPT_TOKENS, MOST_TOKENS)
    assert first is not None
    assert first[1] == 5 + tokens.count("hello wor")
    second = pack_read(framed(event("ld and so on")), contents, first[1], MOST_TOKENS, PROMPT_TOKENS, 8)
    assert second is not None
    assert second[1] == 5 + tokens.count("hello world and so on") > 8
    assert read_counts(second[0]) == (PROMPT_TOKENS, 8)


@pytest.mark.parametrize("tokens_given", [(0, 0), (0, 0, -1, 0), ("0", 0, 0, 0), (0, 2**70, 0, 0)])
def test_wrong_arguments_are_refused(tokens_given: tuple[object, ...]) -> None:
    with pytest.raises((TypeError, OverflowError)):
        pack_read(TEN, RunningCount(tokens.counter()), *tokens_given)  # type: ignore[arg-type]


def test_failure_of_the_tokenizer_is_raised() -> None:
    def count(text: str) -> int:
        raise ValueError(text)

    with pytest.raises(ValueError, match="x"):
        pack_read(TEN, RunningCount(count), 0, MOST_TOKENS, PROMPT_TOKENS, MOST_TOKENS)


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
    st.text(max_size=12),
    _fields,
    _fields,
    _fields,
)
_plain_events = st.builds(event, st.text(max_size=12))
_reads = st.lists(st.lists(_plain_events | _events, min_size=1, max_size=3), min_size=1, max_size=3).map(
    lambda chunks: b"".join(framed(*events) for events in chunks)
)


@given(_reads)
def test_what_is_accepted_is_what_the_parsers_read(read: bytes) -> None:
    packed = pack(read)
    assert packed is None or packed == parse(read)


@given(_reads, st.data())
def test_what_is_accepted_of_a_damaged_read_is_what_the_parsers_read(read: bytes, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(read)))
        end = data.draw(st.integers(begin, min(begin + 3, len(read))))
        put = data.draw(
            st.binary(max_size=2) | st.sampled_from([b'"', b"\\", b",", b"}", b"]", b"\n", b"\r\n", b"0", b" "])
        )
        read = read[:begin] + put + read[end:]
    packed = pack(read)
    assert packed is None or packed == parse(read)


def test_empty_texts_are_left_out() -> None:
    role = TEXT.replace(b'"content":"x"', b'"role":"assistant","content":""')
    read = framed(role) + framed(TEXT, event(""), event("y"))
    assert pack(read) == parse(read) is not None


def test_texts_that_a_body_begins_with_are_read_up_to_the_first_event_that_has_anything_else() -> None:
    texts = b"".join(b"data: %b\n\n" % each for each in (event(""), event("a"), event("b\n"), event("")))
    for rest in (b"", b"data: [DONE]\n\n", b": ping\n\n", b"data: " + event("c"), b"data: " + event("c") + b"\n"):
        assert read_leading_texts(texts + rest) == (["a", "b\n"], len(texts))
    assert read_leading_texts(b"") == ([], 0)
    too_many = b"data: %b\n\n" % event("a") * 129
    assert read_leading_texts(too_many) == (["a"] * 128, len(too_many) // 129 * 128)


@given(st.lists(_plain_events | _events, max_size=5), st.integers(0, 20), st.binary(max_size=2))
def test_leading_texts_are_those_that_the_parser_reads(events: list[bytes], cut_bytes: int, put: bytes) -> None:
    body = b"".join(b"data: %b\n\n" % each for each in events)
    body = body[: len(body) - cut_bytes] + put
    texts, end = read_leading_texts(body)
    answer, reader = CompletionAnswer(), EventReader()
    answer.begin_piece()
    for each in reader.feed(body[:end]) if end else ():
        answer.read_event(each)
    assert [text for piece in answer.pieces for text in piece.contents] == texts
    assert (reader.held_bytes, answer.is_finished, answer.is_over, answer.usage) == (0, False, False, None)


def test_only_bytes_are_read() -> None:
    with pytest.raises(TypeError):
        read_leading_texts("x")  # type: ignore[arg-type]
