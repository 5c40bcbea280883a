"""Answers of the Responses API in every dialect that was seen in the wild, kept as bytes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.services.router.providers.wires import (
    ARGUMENTS,
    CACHED_TOKENS,
    CALLS,
    COMPLETION_TOKENS,
    HALVES,
    PROMPT_TOKENS,
    TEXT,
    THOUGHT,
    Recording,
    as_json,
    in_halves,
    marked,
)

USAGE = {
    "input_tokens": PROMPT_TOKENS,
    "input_tokens_details": {"cached_tokens": CACHED_TOKENS},
    "output_tokens": COMPLETION_TOKENS,
    "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
}
Events = list[dict[str, Any]]


def event(kind: str, index: int, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": index, **fields}


def message(text: str = TEXT) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}] if text else []
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


def called(place: int, **fields: Any) -> dict[str, Any]:
    item = {"type": "function_call", "id": f"fc_{place}", "call_id": f"call_{place}", "name": CALLS[place][0]}
    return {**item, "arguments": ARGUMENTS[place], "status": "completed", **fields}


def thought() -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": THOUGHT}]
    return {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAA"}


def text_events(*texts: str, index: int = 0) -> Events:
    texts = texts or (TEXT[:5], TEXT[5:])
    whole = "".join(texts)
    of_part = {"item_id": "msg_1", "content_index": 0}
    return [
        event("output_item.added", index, item={**message(""), "status": "in_progress"}),
        event("content_part.added", index, **of_part, part={"type": "output_text", "text": ""}),
        *(event("output_text.delta", index, **of_part, delta=text, obfuscation="x") for text in texts if text),
        event("output_text.done", index, **of_part, text=whole),
        event("content_part.done", index, **of_part, part={"type": "output_text", "text": whole}),
        event("output_item.done", index, item=message(whole)),
    ]


def call_events(place: int, *pieces: str, **fields: Any) -> Events:
    """Of the item after the text, and after the calls before it."""
    index, of_item = place + 1, {"item_id": f"fc_{place}"}
    whole = called(place, **fields)
    return [
        event("output_item.added", index, item={**whole, "arguments": "", "status": "in_progress"}),
        *(event("function_call_arguments.delta", index, **of_item, delta=piece) for piece in pieces),
        event("function_call_arguments.done", index, **of_item, arguments=whole["arguments"]),
        event("output_item.done", index, item=whole),
    ]


def thought_events(index: int = 7) -> Events:
    of_part = {"item_id": "rs_1", "summary_index": 0}
    return [
        event("output_item.added", index, item={**thought(), "summary": [], "encrypted_content": ""}),
        event("reasoning_summary_part.added", index, **of_part, part={"type": "summary_text", "text": ""}),
        event("reasoning_summary_text.delta", index, **of_part, delta=THOUGHT),
        event("reasoning_summary_text.done", index, **of_part, text=THOUGHT),
        event("output_item.done", index, item=thought()),
    ]


def response(items: Sequence[dict[str, Any]], usage: Any = USAGE, status: str = "completed") -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "status": status,
        "model": "gpt",
        "output": list(items),
        "error": None,
        "incomplete_details": None,
        "usage": usage,
    }


ITEMS = [message(), called(0), called(1)]
BEGIN: Events = [
    {"type": "response.created", "response": response([], None, "in_progress")},
    {"type": "response.in_progress", "response": response([], None, "in_progress")},
]
BOTH: Events = [*call_events(0, ARGUMENTS[0]), *call_events(1, ARGUMENTS[1])]


def recorded(
    events: Sequence[dict[str, Any]],
    items: Sequence[dict[str, Any]] = ITEMS,
    *,
    usage: Any = USAGE,
    end: Sequence[Any] | None = None,
    **fields: Any,
) -> Recording:
    before, after = fields.pop("before", "data: "), fields.pop("after", "\n\n")
    last = fields.pop("last", "")
    eol = after[: len(after) // 2]
    ended = [{"type": "response.completed", "response": response(items, usage)}] if end is None else end
    stream = "".join(
        f"event: {each['type']}{eol}{before}{as_json({**each, 'sequence_number': number})}{after}"
        for number, each in enumerate([*BEGIN, *events, *ended])
    )
    whole = as_json(response(items, usage)).encode()
    return Recording((stream + last).encode(), whole, **fields)


def is_end_of_text(each: dict[str, Any]) -> bool:
    is_item = each["type"] == "response.output_item.done" and each["item"]["type"] == "message"
    return is_item or each["type"] in ("response.output_text.done", "response.content_part.done")


ALL: Events = [*text_events(), *BOTH]
_FOREIGN = ("functions.get_weather:0", "chatcmpl-tool-1")
_SPLIT = ARGUMENTS[0][:6], ARGUMENTS[0][6:]

RESPONSES_RECORDINGS: dict[str, Recording] = {
    "as documented": recorded([*text_events(), *call_events(0, *_SPLIT), *call_events(1, ARGUMENTS[1])]),
    "`id` in a foreign form": recorded(
        [*text_events(), *(event for place in (0, 1) for event in call_events(place, call_id=_FOREIGN[place]))],
        [message(), *(called(place, call_id=_FOREIGN[place]) for place in (0, 1))],
    ),
    "arguments whole": recorded([*text_events(), *call_events(0), *call_events(1)]),
    "arguments in slivers": recorded([*text_events(), *call_events(0, *ARGUMENTS[0]), *call_events(1, *ARGUMENTS[1])]),
    "arguments missing, null or empty": recorded(
        [*text_events(), *call_events(0, arguments=""), *call_events(1, "", arguments="")],
        [message(), called(0, arguments=None), called(1, arguments="")],
        has_arguments=False,
    ),
    "calls interleaved": recorded(
        [
            *text_events(),
            *call_events(0, *_SPLIT)[:2],
            *call_events(1, *ARGUMENTS[1])[:-2],
            *call_events(0, *_SPLIT)[2:],
            *call_events(1, *ARGUMENTS[1])[-2:],
        ]
    ),
    "empty content beside calls": recorded([*text_events(""), *BOTH], [message(""), called(0), called(1)], text=""),
    "content after the calls": recorded([*BOTH, *text_events(index=3)], [called(0), called(1), message()]),
    "finish reason `stop` after calls": recorded(ALL),
    "reasoning beside the answer": recorded([*thought_events(), *ALL], [thought(), *ITEMS]),
    "usage with the finish reason": recorded(ALL),
    "no usage": recorded(ALL, usage=None, is_counted=False),
    "no `[DONE]`": recorded(ALL),
    "`[DONE]`, though it is not of the format": recorded(ALL, last="data: [DONE]\n\n"),
    "ends of parts and items alone": recorded([each for each in ALL if not each["type"].endswith(".delta")]),
    "the whole response alone": recorded([]),
    "unknown fields and events": recorded(
        [
            {"type": "keepalive"},
            event("something_new", 9, delta={"a": 7}, item=7),
            event("output_item.added", 9, item={"type": "web_search_call", "id": "ws_1", "action": {"query": "x"}}),
            event("output_item.done", 9, item={"type": "web_search_call", "id": "ws_1", "action": {"query": "x"}}),
            *({**each, "timings": {"a": [1]}} for each in ALL),
        ]
    ),
    "`data:` without a space": recorded(ALL, before="data:"),
    "CRLF": recorded(ALL, after="\r\n\r\n"),
    "CR": recorded(ALL, after="\r\r"),
    "comments, and fields of no use": recorded(ALL, before="id: 7\nretry: 7\n: comment\ndata: "),
    "a byte order mark": marked(recorded(ALL)),
    # Only deltas are cut so.
    "a character cut in two": in_halves(
        recorded([each for each in [*text_events(*HALVES), *BOTH] if not is_end_of_text(each)])
    ),
    "no blank line at the end": replace(recorded(ALL), stream=recorded(ALL).stream.removesuffix(b"\n\n")),
    "an event over several lines": replace(
        recorded(ALL), stream=recorded(ALL).stream.replace(b', "output_index"', b',\ndata: "output_index"')
    ),
}
