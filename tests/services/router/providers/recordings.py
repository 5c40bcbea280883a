"""Answers in every dialect that was seen in the wild, kept as bytes."""

from tests.services.router.providers.call_recordings import CALL_RECORDINGS
from tests.services.router.providers.citation_recordings import CITATION_RECORDINGS
from tests.services.router.providers.responses_recordings import RESPONSES_RECORDINGS
from tests.services.router.providers.wires import (
    ALL,
    ALL_CONTENTS,
    ALL_PARTS,
    ARGUMENTS,
    COUNTED,
    FINISH,
    GEMINI_USAGE,
    HALVES,
    ROLE,
    START,
    STOP,
    TEXT,
    TEXT_PARTS,
    TEXTS,
    THOUGHT,
    TWO_TOOLS,
    USAGE,
    WHOLE_CALLS,
    Recording,
    anthropic,
    anthropic_stream,
    as_stream,
    block,
    call,
    chunk,
    content,
    gemini,
    gemini_stream,
    in_halves,
    marked,
    openai_stream,
    openai_whole,
    text_block,
)

# Dialect by dialect, in the words of the page docs/providers.md, and provider by provider.
_RECORDINGS: dict[str, dict[str, Recording]] = {
    **CALL_RECORDINGS,
    "finish reason `stop` after calls": {
        "openai": openai_stream([ROLE, *TEXTS, *WHOLE_CALLS, chunk({}, "stop"), COUNTED, "[DONE]"]),
        "anthropic": anthropic(
            text_block(), TWO_TOOLS, stop=[{**STOP[0], "delta": {"stop_reason": "end_turn"}}, STOP[1]]
        ),
        "gemini": gemini(*ALL_PARTS),
    },
    "finish reason with the last call": {
        "openai": openai_stream(
            [
                ROLE,
                *TEXTS,
                WHOLE_CALLS[0],
                chunk({"tool_calls": [call(1, ARGUMENTS[1])]}, "tool_calls"),
                COUNTED,
                "[DONE]",
            ]
        ),
        "gemini": gemini_stream(
            [
                *(content(part) for part in ALL_PARTS[:-1]),
                content(ALL_PARTS[-1], finish_reason="STOP", usage=GEMINI_USAGE),
            ]
        ),
    },
    "finish reason empty in place of null": {
        "openai": openai_stream([chunk(event["choices"][0]["delta"], "") for event in ALL[:-3]] + ALL[-3:]),
    },
    "reasoning beside the answer": {
        "openai": openai_stream(
            [chunk({"reasoning_content": THOUGHT}), chunk({"reasoning": THOUGHT, "content": None}), *ALL]
        ),
        "anthropic": anthropic(
            block(
                7,
                "thinking",
                {"thinking": ""},
                {"type": "thinking_delta", "thinking": THOUGHT},
                {"type": "signature_delta", "signature": "c2ln"},
            ),
            block(8, "redacted_thinking", {"data": "c2ln"}),
            text_block(),
            TWO_TOOLS,
        ),
        "gemini": gemini({"text": THOUGHT, "thought": True}, *ALL_PARTS),
    },
    "content as a list of parts": {
        "openai": openai_stream(
            [
                chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}]}),
                chunk({"content": [{"type": "text", "text": TEXT}]}),
                *WHOLE_CALLS,
                FINISH,
                COUNTED,
                "[DONE]",
            ]
        ),
    },
    "usage with the finish reason": {
        "openai": openai_stream([ROLE, *TEXTS, *WHOLE_CALLS, chunk({}, "tool_calls", usage=USAGE), "[DONE]"]),
        "anthropic": anthropic(text_block(), TWO_TOOLS),
        "gemini": gemini(*ALL_PARTS),
    },
    "usage after the finish reason": {
        "openai": openai_stream(ALL),
        "gemini": gemini_stream(
            [*(content(part) for part in ALL_PARTS), content(finish_reason="STOP"), {"usageMetadata": GEMINI_USAGE}]
        ),
    },
    "usage on every event, of all so far": {
        "openai": openai_stream(
            [{**event, "usage": {**USAGE, "completion_tokens": number}} for number, event in enumerate(ALL[:-2])]
            + ALL[-2:]
        ),
        "anthropic": anthropic(
            text_block(), TWO_TOOLS, stop=[{**STOP[0], "delta": {}, "usage": {"output_tokens": 3}}, *STOP]
        ),
        "gemini": gemini_stream(
            [
                *(content(part, usage={**GEMINI_USAGE, "candidatesTokenCount": 1}) for part in ALL_PARTS),
                content(finish_reason="STOP", usage=GEMINI_USAGE),
            ]
        ),
    },
    "usage first": {
        "openai": openai_stream([COUNTED, *ALL[:-2], "[DONE]"]),
        "gemini": gemini_stream(
            [{"usageMetadata": GEMINI_USAGE}, *(content(part) for part in ALL_PARTS), content(finish_reason="STOP")]
        ),
    },
    "usage in a place of its own": {
        "openai": openai_stream([*ALL[:-2], {"choices": [], "x_groq": {"id": "x", "usage": USAGE}}, "[DONE]"]),
    },
    "usage empty after it was told": {
        "openai": openai_stream([*ALL[:-1], {"choices": [], "usage": {}}, "[DONE]"]),
        "anthropic": anthropic(text_block(), TWO_TOOLS, stop=[STOP[0], {**STOP[0], "usage": {}}, *STOP[1:]]),
        "gemini": gemini_stream([*ALL_CONTENTS, {"usageMetadata": {}}]),
    },
    "no usage": {
        "openai": openai_stream([*ALL[:-2], "[DONE]"], is_counted=False),
    },
    "no `[DONE]`": {
        "openai": openai_stream(ALL[:-1]),
        "anthropic": anthropic(text_block(), TWO_TOOLS, stop=STOP[:1]),
        "gemini": gemini(*ALL_PARTS),
    },
    "`choices` empty or missing": {
        "openai": openai_stream(
            [{"choices": [], "prompt_filter_results": []}, {"object": "chat.completion.chunk"}, *ALL]
        ),
        "gemini": gemini_stream([{"candidates": []}, {"modelVersion": "x"}, {"candidates": [{}]}, *ALL_CONTENTS]),
    },
    "unknown fields and events": {
        "openai": openai_stream(
            [{**event, "obfuscation": "x7", "timings": {"a": [1]}} for event in ALL[:-1]] + ["[DONE]"]
        ),
        "anthropic": anthropic(
            [{"type": "ping"}, {"type": "something_new", "delta": 7, "content_block": None}],
            block(9, "something_new", {"input": [7]}, {"type": "new_delta", "x": 7}),
            text_block(),
            TWO_TOOLS,
        ),
        "gemini": gemini({"somethingNew": {"a": [1]}}, *ALL_PARTS),
    },
    "`data:` without a space": {
        "openai": openai_stream(ALL, before="data:"),
        "anthropic": anthropic_stream([START, *text_block(), *TWO_TOOLS, *STOP], before="data:"),
        "gemini": gemini_stream(ALL_CONTENTS, before="data:"),
    },
    "CRLF": {
        "openai": openai_stream(ALL, after="\r\n\r\n"),
        "anthropic": anthropic_stream([START, *text_block(), *TWO_TOOLS, *STOP], after="\r\n\r\n"),
        "gemini": gemini_stream(ALL_CONTENTS, after="\r\n\r\n"),
    },
    "CR": {
        "openai": openai_stream(ALL, after="\r\r"),
        "anthropic": anthropic_stream([START, *text_block(), *TWO_TOOLS, *STOP], after="\r\r"),
        "gemini": gemini_stream(ALL_CONTENTS, after="\r\r"),
    },
    "comments, and fields of no use": {
        "openai": openai_stream(ALL, before=": OPENROUTER PROCESSING\n\nid: 7\nretry: 7\nevent: chunk\ndata: "),
        "anthropic": anthropic_stream(
            [START, *text_block(), *TWO_TOOLS, *STOP], before="id: 7\nretry: 7\n: comment\ndata: "
        ),
        "gemini": gemini_stream(ALL_CONTENTS, before=": keep-alive\n\nid: 7\ndata: "),
    },
    "a byte order mark": {
        "openai": marked(openai_stream(ALL)),
        "anthropic": marked(anthropic(text_block(), TWO_TOOLS)),
        "gemini": marked(gemini(*ALL_PARTS)),
    },
    "a character cut in two": {
        "openai": in_halves(
            openai_stream(
                [ROLE, *(chunk({"content": half}) for half in HALVES), *WHOLE_CALLS, FINISH, COUNTED, "[DONE]"]
            )
        ),
        "anthropic": in_halves(anthropic(text_block(0, *HALVES), TWO_TOOLS)),
        "gemini": in_halves(
            gemini_stream(
                [*(content({"text": half}) for half in HALVES), *ALL_CONTENTS[len(TEXT_PARTS) :]],
            )
        ),
    },
    "no blank line at the end": {
        "openai": Recording(as_stream(ALL[:-1]).removesuffix(b"\n\n"), openai_whole()),
        "anthropic": Recording(
            anthropic(text_block(), TWO_TOOLS).stream.removesuffix(b"\n\n"), anthropic(text_block(), TWO_TOOLS).whole
        ),
        "gemini": Recording(gemini(*ALL_PARTS).stream.removesuffix(b"\n\n"), gemini(*ALL_PARTS).whole),
    },
    "an event over several lines": {
        "openai": Recording(as_stream(ALL).replace(b', "finish_reason"', b',\ndata: "finish_reason"'), openai_whole()),
        "anthropic": Recording(
            anthropic(text_block(), TWO_TOOLS).stream.replace(b', "index"', b',\ndata: "index"'),
            anthropic(text_block(), TWO_TOOLS).whole,
        ),
        "gemini": Recording(
            gemini(*ALL_PARTS).stream.replace(b'{"content"', b'{\ndata: "content"'), gemini(*ALL_PARTS).whole
        ),
    },
}

# Dialect by dialect, in the words of the page docs/providers.md, and provider by provider.
RECORDINGS = {
    dialect: _RECORDINGS.get(dialect, {})
    | ({"responses": RESPONSES_RECORDINGS[dialect]} if dialect in RESPONSES_RECORDINGS else {})
    for dialect in [*_RECORDINGS, *(dialect for dialect in RESPONSES_RECORDINGS if dialect not in _RECORDINGS)]
} | CITATION_RECORDINGS
