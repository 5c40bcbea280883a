"""Tool calls in every dialect that was seen in the wild, kept as bytes."""

from tests.services.router.providers.wires import (
    ALL_PARTS,
    ARGUMENTS,
    CALL_PARTS,
    CALLS,
    COUNTED,
    FINISH,
    GEMINI_USAGE,
    ROLE,
    TEXT_PARTS,
    TEXTS,
    TWO_TOOLS,
    USAGE,
    WHOLE_CALLS,
    Recording,
    anthropic,
    call,
    chunk,
    content,
    function_call,
    gemini,
    gemini_stream,
    more,
    openai,
    openai_stream,
    slivers,
    text_block,
    tool_block,
)

# Dialect by dialect, in the words of the page docs/providers.md, and provider by provider.
CALL_RECORDINGS: dict[str, dict[str, Recording]] = {
    "as documented": {
        "openai": openai(call(0, ""), *slivers(0, ARGUMENTS[0]), call(1, ""), *slivers(1, ARGUMENTS[1])),
        "anthropic": anthropic(text_block(), TWO_TOOLS),
        "gemini": gemini(*ALL_PARTS),
    },
    "`index` missing": {
        "openai": openai(call(0, "", index=None), *slivers(None, ARGUMENTS[0]), call(1, ARGUMENTS[1], index=None)),
    },
    "`index` always 0": {
        "openai": openai(call(0, "", index=0), *slivers(0, ARGUMENTS[0]), call(1, "", index=0), more(0, ARGUMENTS[1])),
    },
    "`id` missing": {
        "openai": openai(call(0, "", id=None), *slivers(0, ARGUMENTS[0]), call(1, ARGUMENTS[1], id=None)),
        "gemini": gemini(*TEXT_PARTS, function_call(0), function_call(1)),
    },
    "`id` and `index` missing": {
        "openai": openai(
            call(0, "", id=None, index=None), *slivers(None, ARGUMENTS[0]), call(1, ARGUMENTS[1], id=None, index=None)
        ),
    },
    "`id` on every piece": {
        "openai": openai(
            call(0, ""), *slivers(0, ARGUMENTS[0], "call_0"), call(1, ""), *slivers(1, ARGUMENTS[1], "call_1")
        ),
    },
    "`id` and name on every piece": {
        "openai": openai(*(call(0, piece) for piece in ARGUMENTS[0]), *(call(1, piece) for piece in ARGUMENTS[1])),
    },
    "one `id` for all calls": {
        "openai": openai(call(0, ARGUMENTS[0], id="0"), call(1, ARGUMENTS[1], id="0")),
        "gemini": gemini(*TEXT_PARTS, function_call(0, id="0"), function_call(1, id="0")),
    },
    "`id` in a foreign form": {
        "openai": openai(
            call(0, ARGUMENTS[0], id="functions.get_weather:0"), call(1, ARGUMENTS[1], id="chatcmpl-tool-1")
        ),
        "anthropic": anthropic(text_block(), TWO_TOOLS),
        "gemini": gemini(*ALL_PARTS),
    },
    "arguments whole": {
        "openai": openai(call(0, ARGUMENTS[0]), call(1, ARGUMENTS[1])),
        "anthropic": anthropic(text_block(), tool_block(0, ARGUMENTS[0]), tool_block(1, ARGUMENTS[1])),
        "gemini": gemini(*ALL_PARTS),
    },
    "arguments in slivers": {
        "openai": openai(
            call(0), *(more(0, piece) for piece in ARGUMENTS[0]), call(1), *(more(1, piece) for piece in ARGUMENTS[1])
        ),
        "anthropic": anthropic(text_block(), tool_block(0, "", *ARGUMENTS[0]), tool_block(1, *ARGUMENTS[1])),
    },
    "arguments as an object": {
        "openai": openai(
            call(0, CALLS[0][1]),
            call(1, CALLS[1][1]),
            message_calls=[call(0, CALLS[0][1], index=None), call(1, CALLS[1][1], index=None)],
        ),
        "anthropic": anthropic(
            text_block(), tool_block(0, arguments=CALLS[0][1]), tool_block(1, arguments=CALLS[1][1])
        ),
        "gemini": gemini(*ALL_PARTS),
    },
    "arguments missing, null or empty": {
        "openai": openai(
            call(0, ""),
            call(1),
            message_calls=[{**call(0), "function": {"name": CALLS[0][0], "arguments": None}}, call(1, "")],
            has_arguments=False,
        ),
        "anthropic": anthropic(text_block(), tool_block(0), tool_block(1, ""), has_arguments=False),
        "gemini": gemini(*TEXT_PARTS, function_call(0, args=None), function_call(1, args={}), has_arguments=False),
    },
    "arguments before the name": {
        "openai": openai(call(0, ARGUMENTS[0][:4], name=""), call(0, ARGUMENTS[0][4:], id=None), call(1, ARGUMENTS[1])),
    },
    "calls interleaved": {
        "openai": openai(
            call(0, ""),
            call(1, ARGUMENTS[1][:2]),
            more(0, ARGUMENTS[0][:6]),
            more(1, ARGUMENTS[1][2:]),
            more(0, ARGUMENTS[0][6:]),
        ),
        "anthropic": anthropic(
            text_block(),
            tool_block(0, ARGUMENTS[0][:6])[:-1],
            tool_block(1, ARGUMENTS[1][:6])[:-1],
            tool_block(0, ARGUMENTS[0][6:])[1:],
            tool_block(1, ARGUMENTS[1][6:])[1:],
        ),
    },
    "several calls in one event": {
        "openai": openai_stream(
            [
                ROLE,
                *TEXTS,
                chunk({"tool_calls": [call(0, ARGUMENTS[0]), call(1, ARGUMENTS[1])]}),
                FINISH,
                COUNTED,
                "[DONE]",
            ]
        ),
        "gemini": gemini_stream([content(*ALL_PARTS), content(finish_reason="STOP", usage=GEMINI_USAGE)]),
    },
    "empty content beside calls": {
        "openai": openai_stream(
            [
                chunk({"role": "assistant", "content": ""}),
                chunk({"content": "", "tool_calls": [call(0, ARGUMENTS[0])]}),
                chunk({"content": None, "tool_calls": [call(1, ARGUMENTS[1])]}),
                chunk({"content": ""}, "tool_calls", usage=USAGE),
            ],
            text="",
        ),
        "anthropic": anthropic(text_block(0, ""), TWO_TOOLS, text=""),
        "gemini": gemini({"text": ""}, *CALL_PARTS, {"text": ""}, text=""),
    },
    "content after the calls": {
        "openai": openai_stream([ROLE, *WHOLE_CALLS, *TEXTS, FINISH, COUNTED, "[DONE]"]),
        "anthropic": anthropic(TWO_TOOLS, text_block(3)),
        "gemini": gemini(*CALL_PARTS, *TEXT_PARTS),
    },
}
