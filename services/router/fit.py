"""How long an answer may get."""

from services.chassis.errors import LegatoError, Reason

# Our count of a prompt is an estimate for models with a vocabulary of their own, and a server refuses a request whose
# prompt and max_tokens exceed its window together. So one part in this many is left free, where there is room.
MARGIN_PARTS = 16


def fit_max_tokens(asked: int | None, prompt_tokens: int, context_tokens: int, max_output_tokens: int) -> int:
    """The limit on output to send upstream: at least 1, and never more than the window has room for."""
    if asked is not None and asked < 1:
        raise LegatoError(Reason.REQUEST_INVALID, "max_tokens must be at least 1.", param="max_tokens")
    room_tokens = context_tokens - prompt_tokens
    if room_tokens < 1:
        raise LegatoError(
            Reason.CONTEXT_EXCEEDED,
            # In OpenAI's words, by which frameworks know that the conversation has to be shortened.
            f"The prompt has {prompt_tokens} tokens, tool definitions and our own guidance included, and"
            f" this model's maximum context length is {context_tokens}: there is no room for an answer."
            " Please shorten the messages.",
            param="messages",
        )
    room_with_margin = max(1, room_tokens - prompt_tokens // MARGIN_PARTS)
    return min(room_with_margin, max_output_tokens, room_tokens if asked is None else asked)
