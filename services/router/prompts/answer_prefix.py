"""The beginning of an answer as a part of the prompt, so that a model goes on with it (also called prefill)."""

from enum import Enum
from typing import Final

from msgspec import Raw

from services.router.schema.messages import Message, Messages, encode_string
from services.router.schema.parameters import Parameters

_TRUE: Final = Raw(b"true")


class PrefixStyle(Enum):
    """The way in which a server is told that the last message is the beginning of its answer."""

    # By nothing else: Anthropic's models before 4.6, llama.cpp, Ollama, Groq.
    LAST_MESSAGE = "last_message"
    # By a flag of the message: DeepSeek; Mistral, which repeats it in its answer; Moonshot and Qwen.
    PREFIX = "prefix"
    REPEATED_PREFIX = "repeated_prefix"
    PARTIAL = "partial"
    # By parameters: vLLM, SGLang.
    CONTINUE_FINAL_MESSAGE = "continue_final_message"


_FLAGS: Final = {
    PrefixStyle.PREFIX: "prefix",
    PrefixStyle.REPEATED_PREFIX: "prefix",
    PrefixStyle.PARTIAL: "partial",
}
# Those that have a model think, which it does before an answer and not within.
_THINKING: Final = ("reasoning_effort", "reasoning")
_PARAMETERS: Final = {
    PrefixStyle.CONTINUE_FINAL_MESSAGE: {"continue_final_message": _TRUE, "add_generation_prompt": Raw(b"false")}
}


def add_prefix(
    messages: Messages, parameters: Parameters, text: str, style: PrefixStyle
) -> tuple[Messages, Parameters]:
    """Returns the messages and parameters of a request whose answer is to continue `text`, without more thinking."""
    if not text:
        return messages, parameters
    if parameters.known.reasoning_effort != "none":
        parameters = parameters.without(_THINKING)
    message = Message(role="assistant", content=encode_string(text))
    if style in _FLAGS:
        setattr(message, _FLAGS[style], _TRUE)
    return messages.append([message]), parameters.with_fields(_PARAMETERS.get(style, {}))
