"""Finds why a provider refuses a request, by the beginning of its message, which is in its own fixed words.

What follows them may quote the conversation, so a client gets the cause in our words.
"""

import re
from typing import Final

from services.chassis.sentence import Sentence
from services.router.providers.base import RefusalCause

# Alibaba's servers begin with the status and a name of their own.
_PREFIX: Final = r"(<400> )?(internalerror\.algo\.invalidparameter: )?"
# Google names the place in its own message, with or without the message itself.
_GOOGLE_FUNCTION: Final = r"(\* )?(generatecontentrequest\.|request\.)?tools\[\d+\]\.function_?declarations\[\d+\]\."
_TABLE: Final[tuple[tuple[RefusalCause, tuple[str, ...]], ...]] = (
    (
        RefusalCause(Sentence("function_name_not_accepted"), "tools"),
        (
            r"invalid 'tools\[\d+\](\.function)?\.name'",
            r"tools\.\d+\.(custom\.)?name: ",
            _GOOGLE_FUNCTION + r"name\b",
        ),
    ),
    (
        RefusalCause(Sentence("function_schema_not_accepted"), "tools"),
        (
            r"invalid schema for function '",
            r"tools\.\d+\.(custom\.)?input_schema\b",
            r"(invalid request: )?tools\.function\.parameters is not a valid",
            _GOOGLE_FUNCTION + r"parameters",
            rf"invalid value at '{_GOOGLE_FUNCTION}parameters",
            rf"""invalid json payload received\. unknown name "[^"]{{1,64}}" at '{_GOOGLE_FUNCTION}parameters""",
        ),
    ),
    (
        RefusalCause(Sentence("functions_too_many"), "tools"),
        (r"invalid 'tools': array too long", r"tools: (list should have at most|too many)"),
    ),
    (
        RefusalCause(Sentence("functions_not_accepted"), "tools"),
        (
            r'"auto" tool choice requires --enable-auto-tool-choice',
            r"function tools with reasoning_effort are not supported",
            r"\S{1,100} does not support (tools|tool calling|function calling)\b",
            r"(tool|function) calling is not (supported|enabled)",
        ),
    ),
    (
        RefusalCause(Sentence("forced_call_not_accepted"), "tool_choice"),
        (
            r'tool_choice: type "tool" and "any" are not supported',
            r"thinking may not be enabled when tool_choice forces tool use",
            r"\S{1,100} does not support this tool_choice",
        ),
    ),
    (
        RefusalCause(Sentence("answer_schema_not_accepted"), "response_format"),
        (r"invalid schema for response_format", r"output_(config\.)?format\.(schema|json_schema)\b"),
    ),
    (
        RefusalCause(Sentence("calls_and_results_do_not_match"), "messages"),
        (
            r"""an assistant message with ['"]tool_calls['"] must be followed by tool""",
            r"""messages? with role ['"]tool['"] must be a response to""",
            r"tool_call_ids? did not have response messages",
            r"messages\.\d+(\.content\.\d+)?: (`tool_use` ids were found without|unexpected `tool_use_id`)",
            r"please ensure that (the number of )?function (call|response)",
            r"no tool (output|call) found for function call",
        ),
    ),
    (
        RefusalCause(Sentence("earlier_reasoning_missing"), "messages"),
        (
            r"the `?reasoning_content`? in the thinking mode must be passed back",
            r"thinking is enabled but reasoning_content is missing",
            r"messages\.\d+\.content\.\d+(\.type)?: (expected `thinking`|invalid `signature`)",
            r"function call( \S{1,100})? (is missing|in \S{1,100} is missing) a thought_signature",
            r"unable to submit request because function call.{0,200}missing a `?thought_signature",
        ),
    ),
    (
        RefusalCause(Sentence("order_of_messages_not_accepted"), "messages"),
        (
            r"(after the optional system message, )?conversation roles must alternate",
            r"messages: (roles must alternate|first message must use)",
            r"(the )?last message must (have role|be (from )?(the |a )?(user|tool))",
            r"(this model does not support assistant message prefill|expected last role user or tool)",
            r"system message must be at the beginning",
        ),
    ),
)
_CAUSES: Final = tuple((re.compile(_PREFIX + f"({'|'.join(patterns)})"), cause) for cause, patterns in _TABLE)


def find_cause(message: str) -> RefusalCause | None:
    """Returns the cause that a message in lower case begins with, or None if it is not known."""
    return next((cause for pattern, cause in _CAUSES if pattern.match(message)), None)
