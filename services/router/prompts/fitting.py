"""Fits max_tokens to a model's context window.

A server refuses a request whose prompt and max_tokens together exceed its window, by its own count. So the limit is
fitted by calibration, and once more by the server's own figures if it refuses nevertheless.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.router.prompts.calibration import Ratios

# Safety margin, one part of the prompt in this many: before the model's count of prompts of this size is calibrated,
# and after.
MARGIN_PARTS: Final = 16
CALIBRATED_MARGIN_PARTS: Final = 64
# No tokenizer in use counts a prompt as less than this share of our count.
LEAST_RATIO: Final = 0.6
# The part of the window requested if the prompt seems to leave no room: enough for an answer if it is accepted; if it
# is refused, the model reports its figures.
DOUBTFUL_PARTS: Final = 16
# The part of a limit refused without figures that is requested next.
REFUSED_PARTS: Final = 64


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures a provider reported about a prompt's length, by its own count; None if missing."""

    context_tokens: int | None = None
    prompt_tokens: int | None = None
    # The prompt plus the requested output limit.
    total_tokens: int | None = None


class Fit(NamedTuple):
    max_tokens: int
    # The prompt seems to leave no room; only the model can tell.
    is_doubtful: bool = False


def fit_max_tokens(
    asked: int | None, prompt_tokens: int, context_tokens: int, max_output_tokens: int, ratios: Ratios | None = None
) -> Fit:
    """Returns the output limit to send to the model, at least 1. `prompt_tokens` is our count; `ratios` calibrate it to
    the model's."""
    if asked is not None and asked < 1:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("max_tokens_least"), param="max_tokens")
    if LEAST_RATIO * prompt_tokens >= context_tokens:
        raise LegatoError(
            Reason.CONTEXT_EXCEEDED,
            # OpenAI's wording, by which frameworks detect that the conversation must be shortened.
            Sentence("prompt_leaves_no_room", count=prompt_tokens, most=context_tokens),
            param="messages",
        )
    most_tokens = max_output_tokens if asked is None else min(asked, max_output_tokens)
    likely_tokens = cautious_tokens = prompt_tokens
    margin_parts = MARGIN_PARTS
    if ratios is not None:
        likely_tokens, cautious_tokens = int(ratios.middle * prompt_tokens), int(ratios.upper * prompt_tokens)
        margin_parts = CALIBRATED_MARGIN_PARTS if ratios.is_same_size else MARGIN_PARTS
    room_tokens = context_tokens - likely_tokens
    if room_tokens < 1:
        return Fit(min(most_tokens, max(1, context_tokens // DOUBTFUL_PARTS)), is_doubtful=True)
    cautious_room_tokens = context_tokens - cautious_tokens - cautious_tokens // margin_parts
    # The margin must not reduce an answer to nothing: a refusal costs only one retry.
    return Fit(max(1, min(most_tokens, max(room_tokens // 2, cautious_room_tokens))))


def refit_max_tokens(refused_tokens: int, context_tokens: int, figures: Figures) -> int | None:
    """Returns a smaller limit after a model refused this one for the total length.

    Returns None if the prompt alone is too long. The figures are checked, since a message may quote the client."""
    if refused_tokens <= 1:
        return None
    smaller_tokens = max(1, refused_tokens // REFUSED_PARTS)
    prompt_tokens = model_prompt_tokens(refused_tokens, figures)
    if prompt_tokens is None:
        return smaller_tokens
    room_tokens = (figures.context_tokens or context_tokens) - prompt_tokens
    if room_tokens < 1:
        return None
    # Some servers require the sum to be below the window.
    fitting_tokens = max(1, room_tokens - 1)
    return fitting_tokens if fitting_tokens < refused_tokens else smaller_tokens


def model_prompt_tokens(refused_tokens: int, figures: Figures) -> int | None:
    """Returns the model's own count of the prompt, if it is known."""
    if figures.prompt_tokens is not None:
        return figures.prompt_tokens
    if figures.total_tokens is not None and figures.total_tokens > refused_tokens:
        return figures.total_tokens - refused_tokens
    return None
