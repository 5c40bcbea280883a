"""How long a prompt is, as far as it can be told without counting.

The edge counts no tokens. It guesses, and the router, who counts, asks for more where that is too low.
"""

from edge.wire.body_reader import BYTES_PER_TOKEN

# What the router adds: the character, and the form that messages have.
UNSEEN_PROMPT_TOKENS = 128
# How a text is spelled is seen at its beginning: to look through megabytes would hold up everybody else.
SAMPLE_BYTES = 64 * 1024

# Many clients write `\u0434` for a letter that has two bytes, or three.
_ESCAPE_BYTES, _LETTER_BYTES = 6, 2


def guess_prompt_tokens(*sent_json: bytes) -> int:
    """All that goes upstream: messages, tools, and what the answer is to be like."""
    return sum(map(_plain_bytes, sent_json)) // BYTES_PER_TOKEN + UNSEEN_PROMPT_TOKENS


def _plain_bytes(text_json: bytes) -> int:
    """How many bytes there would be without escapes, so that nobody is refused for the way a prompt is spelled."""
    sample = text_json[:SAMPLE_BYTES]
    escapes = sample.count(b"\\u")
    if not escapes:
        return len(text_json)
    # What stands behind an escaped backslash only looks like one: there cannot be more of them than there is room for.
    escapes = min(escapes, len(sample) // _ESCAPE_BYTES)
    return len(text_json) - escapes * (_ESCAPE_BYTES - _LETTER_BYTES) * len(text_json) // len(sample)
