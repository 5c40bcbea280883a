"""Writes answers as providers do, as bytes: once as a stream, once whole.

All of them say the same: `TEXT`, and the two `CALLS`.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

TEXT = "È così: 🌍!"
# Name and arguments. Letters of several bytes are in both, so that a network may cut in the middle of one.
CALLS: list[tuple[str, dict[str, Any]]] = [("get_weather", {"city": "Città 🏙"}), ("get_time", {"zone": "UTC"})]
THOUGHT = "Pensiamo… 🤔"
# The text in two pieces, with marks in place of the two halves of the globe in it.
HALVES = (TEXT[:8] + "@1", "@2" + TEXT[9:])
PROMPT_TOKENS, COMPLETION_TOKENS, CACHED_TOKENS = 18, 7, 5


@dataclass(frozen=True)
class Recording:
    stream: bytes
    whole: bytes
    text: str = TEXT
    calls: int = len(CALLS)
    # Without them, functions are called with an empty object.
    has_arguments: bool = True
    # Whether the provider said what it counted, and how much of that was cached.
    is_counted: bool = True
    cached_tokens: int = CACHED_TOKENS
    # The parts of the text that cite something, with its title and its address.
    citations: tuple[tuple[str, str, str], ...] = ()


def in_halves(recording: Recording) -> Recording:
    return replace(recording, stream=recording.stream.replace(b"@1", rb"\ud83c").replace(b"@2", rb"\udf0d"))


def marked(recording: Recording) -> Recording:
    """Adds a byte order mark."""
    return replace(recording, stream=b"\xef\xbb\xbf" + recording.stream)


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_stream(events: Iterable[Any], *, before: str = "data: ", after: str = "\n\n", last: str = "") -> bytes:
    datas = [event if isinstance(event, str) else as_json(event) for event in events]
    return ("".join(before + data + after for data in datas) + last).encode()


ARGUMENTS = [as_json(arguments) for _, arguments in CALLS]


# OpenAI and those who speak like it.

USAGE = {
    "prompt_tokens": PROMPT_TOKENS,
    "completion_tokens": COMPLETION_TOKENS,
    "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
    "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
}


def chunk(delta: dict[str, Any], finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}], **fields}


def call(place: int, arguments: Any = None, **fields: Any) -> dict[str, Any]:
    """A piece of a call, as it would be if it was spoken of for the first time; None takes a field away."""
    name, _ = CALLS[place]
    said = {"index": place, "id": f"call_{place}", "type": "function", **fields}
    function = {"name": fields.get("name", name), "arguments": arguments}
    said["function"] = {key: value for key, value in function.items() if value is not None}
    said.pop("name", None)
    return {key: value for key, value in said.items() if value is not None}


def more(place: int | None, arguments: str, call_id: str | None = None) -> dict[str, Any]:
    said = {"index": place, "id": call_id, "function": {"arguments": arguments}}
    return {key: value for key, value in said.items() if value is not None}


ROLE = chunk({"role": "assistant", "content": ""})
TEXTS = [chunk({"content": TEXT[:5]}), chunk({"content": TEXT[5:]})]
WHOLE_CALLS = [chunk({"tool_calls": [call(0, ARGUMENTS[0])]}), chunk({"tool_calls": [call(1, ARGUMENTS[1])]})]
COUNTED = {"choices": [], "usage": USAGE}
FINISH = chunk({}, "tool_calls")
ALL: list[Any] = [ROLE, *TEXTS, *WHOLE_CALLS, FINISH, COUNTED, "[DONE]"]


def openai(*calls: dict[str, Any], message_calls: list[dict[str, Any]] | None = None, **fields: Any) -> Recording:
    """Calls in such pieces, one in each event."""
    events = [ROLE, *TEXTS, *(chunk({"tool_calls": [said]}) for said in calls), FINISH, COUNTED, "[DONE]"]
    return openai_stream(events, message_calls=message_calls, **fields)


def openai_stream(
    events: list[Any], *, message_calls: list[dict[str, Any]] | None = None, text: str = TEXT, **fields: Any
) -> Recording:
    framing = {name: fields.pop(name) for name in ("before", "after", "last") if name in fields}
    return Recording(as_stream(events, **framing), openai_whole(message_calls, text), text=text, **fields)


def openai_whole(calls: list[dict[str, Any]] | None = None, text: str = TEXT, **message: Any) -> bytes:
    tool_calls = calls if calls is not None else [call(0, ARGUMENTS[0]), call(1, ARGUMENTS[1])]
    whole = {"role": "assistant", "content": text or None, "tool_calls": tool_calls, **message}
    return as_json({"choices": [{"index": 0, "message": whole, "finish_reason": "stop"}], "usage": USAGE}).encode()


def slivers(place: int | None, arguments: str, call_id: str | None = None) -> list[dict[str, Any]]:
    return [more(place, arguments[at : at + 3], call_id) for at in range(0, len(arguments), 3)]


# Anthropic.

ANTHROPIC_USAGE = {
    "input_tokens": PROMPT_TOKENS - CACHED_TOKENS - 1,
    "cache_read_input_tokens": CACHED_TOKENS,
    "cache_creation_input_tokens": 1,
}
START: dict[str, Any] = {
    "type": "message_start",
    "message": {"type": "message", "usage": {**ANTHROPIC_USAGE, "output_tokens": 1}},
}
STOP: list[dict[str, Any]] = [
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": COMPLETION_TOKENS}},
    {"type": "message_stop"},
]


def block(index: int, kind: str, begun: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": {"type": kind, **begun}},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text_block(index: int = 0, *texts: str) -> list[dict[str, Any]]:
    deltas = [{"type": "text_delta", "text": text} for text in texts or (TEXT[:5], TEXT[5:])]
    return block(index, "text", {"text": ""}, *deltas)


def tool_block(place: int, *pieces: str, arguments: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Follows a block of text."""
    begun = {"id": f"toolu_{place}", "name": CALLS[place][0], "input": arguments or {}}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block(place + 1, "tool_use", begun, *deltas)


def anthropic(*blocks: list[dict[str, Any]], stop: list[dict[str, Any]] = STOP, **fields: Any) -> Recording:
    return anthropic_stream([START, *(event for events in blocks for event in events), *stop], **fields)


def anthropic_stream(events: list[dict[str, Any]], *, text: str = TEXT, calls: int = 2, **fields: Any) -> Recording:
    has_arguments = fields.get("has_arguments", True)
    before, after = fields.pop("before", "data: "), fields.pop("after", "\n\n")
    eol = after[: len(after) // 2]
    stream = "".join(f"event: {event['type']}{eol}{before}{as_json(event)}{after}" for event in events)
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "tool_use", "id": f"toolu_{place}", "name": name, "input": arguments if has_arguments else {}}
        for place, (name, arguments) in enumerate(CALLS[:calls])
    ]
    usage = {**ANTHROPIC_USAGE, "output_tokens": COMPLETION_TOKENS}
    whole = {"type": "message", "content": content, "stop_reason": "end_turn", "usage": usage}
    return Recording(
        (stream + fields.pop("last", "")).encode(), as_json(whole).encode(), text=text, calls=calls, **fields
    )


TWO_TOOLS: list[dict[str, Any]] = [*tool_block(0, "", ARGUMENTS[0]), *tool_block(1, "", ARGUMENTS[1])]


# Google.

GEMINI_USAGE = {
    "promptTokenCount": PROMPT_TOKENS,
    "cachedContentTokenCount": CACHED_TOKENS,
    "candidatesTokenCount": COMPLETION_TOKENS - 2,
    "thoughtsTokenCount": 2,
}


def content(*parts: dict[str, Any], finish_reason: str | None = None, usage: Any = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}} if parts else {}
    if finish_reason is not None:
        candidate["finishReason"] = finish_reason
    return {"candidates": [candidate], **({"usageMetadata": usage} if usage else {})}


def function_call(place: int, **fields: Any) -> dict[str, Any]:
    name, arguments = CALLS[place]
    return {"functionCall": {"name": name, "args": arguments, **fields}, "thoughtSignature": "c2ln"}


TEXT_PARTS: list[dict[str, Any]] = [{"text": TEXT[:5]}, {"text": TEXT[5:]}]
CALL_PARTS: list[dict[str, Any]] = [function_call(0, id="fc-0"), function_call(1, id="fc-1")]


def gemini(*parts: dict[str, Any], **fields: Any) -> Recording:
    """Each part in a response of its own, and the end in another one."""
    events = [*(content(part) for part in parts), content(finish_reason="STOP", usage=GEMINI_USAGE)]
    return gemini_stream(events, list(parts), **fields)


def gemini_stream(events: list[Any], parts: list[dict[str, Any]] | None = None, **fields: Any) -> Recording:
    framing = {name: fields.pop(name) for name in ("before", "after", "last") if name in fields}
    whole = content(*(parts or [*TEXT_PARTS, *CALL_PARTS]), finish_reason="STOP", usage=GEMINI_USAGE)
    return Recording(as_stream(events, **framing), as_json(whole).encode(), **fields)


ALL_PARTS: list[dict[str, Any]] = [*TEXT_PARTS, *CALL_PARTS]
ALL_CONTENTS: list[dict[str, Any]] = [
    *(content(part) for part in ALL_PARTS),
    content(finish_reason="STOP", usage=GEMINI_USAGE),
]
