"""Estimates the length of a prompt without counting its tokens.

The edge counts no tokens. It estimates, and the router, which counts, requests more credit if that is too low.
"""

from edge.wire.body_reader import LARGEST_BODY_BYTES

BYTES_PER_TOKEN = 4
# Tokens that the router adds: its system prompt, and the format of messages.
UNSEEN_PROMPT_TOKENS = 128
# Escapes are counted in a sample: scanning megabytes would block the event loop.
SAMPLE_BYTES = 64 * 1024

# Many clients write `\u0434` for a letter that has two bytes, or three.
_ESCAPE_BYTES, _LETTER_BYTES = 6, 2


def guess_body_tokens(body_bytes: int) -> int:
    """Estimates the tokens of a body by its size, for rate limits; at least one."""
    return 1 + min(body_bytes, LARGEST_BODY_BYTES) // BYTES_PER_TOKEN


def guess_prompt_tokens(*sent_json: bytes) -> int:
    """Estimates the tokens of all that goes upstream: messages, tools and parameters."""
    return sum(map(_plain_bytes, filter(None, sent_json))) // BYTES_PER_TOKEN + UNSEEN_PROMPT_TOKENS


def _plain_bytes(text_json: bytes) -> int:
    """Estimates the size without escapes, so that no prompt is refused for the way it is encoded."""
    sample = text_json[:SAMPLE_BYTES]
    escapes = sample.count(b"\\u")
    if not escapes:
        return len(text_json)
    # `\\u` is an escaped backslash, and only looks like one: there cannot be more of them than there is room for.
    escapes = min(escapes, len(sample) // _ESCAPE_BYTES)
    return len(text_json) - escapes * (_ESCAPE_BYTES - _LETTER_BYTES) * len(text_json) // len(sample)
