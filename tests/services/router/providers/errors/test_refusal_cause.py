"""The beginnings of refusals as providers word them, and what clients are told of them."""

import pytest

from services.router.providers.errors.refusal_cause import find_cause

# Each as it was quoted in a public thread, named beside it.
QUOTED = [
    # kevinwatt/mysql-mcp#5
    ("Invalid schema for function 'x': In context=(), 'required' is required", "function_schema_not_accepted"),
    # alibaba/spring-ai-alibaba#4576
    ("Invalid schema for function 'x': schema must be a JSON Schema of", "function_schema_not_accepted"),
    # anthropics/claude-code#86665
    ("tools.17.custom.input_schema: JSON schema is invalid. It must match", "function_schema_not_accepted"),
    # earendil-works/pi#4138
    ("Invalid request: tools.function.parameters is not a valid moonshot flavored", "function_schema_not_accepted"),
    # decolua/9router#2489
    (
        "Invalid value at 'request.tools[0].function_declarations[53].parameters.properties[6].value' (type.goo",
        "function_schema_not_accepted",
    ),
    ("Invalid 'tools[0].function.name': string does not match pattern.", "function_name_not_accepted"),
    ("tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'", "function_name_not_accepted"),
    ("Invalid 'tools': array too long. Expected an array with maximum length 128", "functions_too_many"),
    # runpod-workers/worker-vllm#113, swiss-ai/model-launch#213
    ('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser', "functions_not_accepted"),
    # LibreChat#14355
    ("Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat", "functions_not_accepted"),
    ("deepseek-reasoner does not support this tool_choice", "forced_call_not_accepted"),
    ("Thinking may not be enabled when tool_choice forces tool use.", "forced_call_not_accepted"),
    ("Invalid schema for response_format 'x': In context=()", "answer_schema_not_accepted"),
    # langgenius/dify#32222
    (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each",
        "calls_and_results_do_not_match",
    ),
    # QwenLM/qwen-code#606
    (
        '<400> InternalError.Algo.InvalidParameter: An assistant message with "tool_calls" must be followed by tool',
        "calls_and_results_do_not_match",
    ),
    # google-gemini/gemini-cli#26486
    (
        "Please ensure that function call turn comes immediately after a user turn or",
        "calls_and_results_do_not_match",
    ),
    ("messages.3: `tool_use` ids were found without `tool_result` blocks", "calls_and_results_do_not_match"),
    # opencode#24722
    ("The `reasoning_content` in the thinking mode must be passed back to the API.", "earlier_reasoning_missing"),
    (
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
        "earlier_reasoning_missing",
    ),
    ("Function call is missing a thought_signature in functionCall parts.", "earlier_reasoning_missing"),
    (
        "After the optional system message, conversation roles must alternate user/assistant",
        "order_of_messages_not_accepted",
    ),
]


@pytest.mark.parametrize(("message", "sentence_id"), QUOTED)
def test_a_known_beginning_has_a_cause(message: str, sentence_id: str) -> None:
    cause = find_cause(message.lower())
    assert cause is not None
    assert cause.sentence.id == sentence_id


@pytest.mark.parametrize("message", ["", "bad request", "you said: invalid schema for function 'x'"])
def test_what_a_client_may_have_said_has_none(message: str) -> None:
    assert find_cause(message) is None
