"""How long an answer may get.

A server refuses a request whose prompt and max_tokens exceed its window together, by a count that is not ours. So the
limit is fitted by how that model has counted so far, and once more by its own figures where it refuses all the same.
"""

from typing import Final, NamedTuple

from services.chassis.errors import LegatoError, Reason
from services.router.prompts.calibration import Ratios
from services.router.providers.base import Figures

# One part of the prompt in so many is left free: while nothing is known of how the model counts prompts of such a size,
# and from then on.
MARGIN_PARTS: Final = 16
CALIBRATED_MARGIN_PARTS: Final = 64
# No vocabulary in use takes a prompt for less than this part of our count of it.
LEAST_RATIO: Final = 0.6
# Of the window, what is asked for where the prompt seems to leave no room: enough for an answer if it is accepted, and
# if not, the model says how much there is.
DOUBTFUL_PARTS: Final = 16
# Of a limit that was refused without a figure, what is asked for then.
REFUSED_PARTS: Final = 64


class Fit(NamedTuple):
    max_tokens: int
    # By what is known, the prompt leaves no room; only the model can tell.
    is_doubtful: bool = False


def fit_max_tokens(
    asked: int | None, prompt_tokens: int, context_tokens: int, max_output_tokens: int, ratios: Ratios | None = None
) -> Fit:
    """The limit on output to send upstream, at least 1. `prompt_tokens` is our count, `ratios` what is known of the
    model's."""
    if asked is not None and asked < 1:
        raise LegatoError(Reason.REQUEST_INVALID, "max_tokens must be at least 1.", param="max_tokens")
    if LEAST_RATIO * prompt_tokens >= context_tokens:
        raise LegatoError(
            Reason.CONTEXT_EXCEEDED,
            # In OpenAI's words, by which frameworks know that the conversation has to be shortened.
            f"The prompt has {prompt_tokens} tokens, tool definitions and our own guidance included, and"
            f" this model's maximum context length is {context_tokens}: there is no room for an answer."
            " Please shorten the messages.",
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
    # Caution may not shorten an answer to nothing: being refused costs no more than being asked again.
    return Fit(max(1, min(most_tokens, max(room_tokens // 2, cautious_room_tokens))))


def refit_max_tokens(refused_tokens: int, context_tokens: int, figures: Figures) -> int | None:
    """A smaller limit than the one that a model refused for the length of prompt and answer together.

    None: the prompt alone is too long. What the figures say is checked, since a message may quote the client."""
    if refused_tokens <= 1:
        return None
    smaller_tokens = max(1, refused_tokens // REFUSED_PARTS)
    prompt_tokens = model_prompt_tokens(refused_tokens, figures)
    if prompt_tokens is None:
        return smaller_tokens
    room_tokens = (figures.context_tokens or context_tokens) - prompt_tokens
    if room_tokens < 1:
        return None
    # Some servers want the sum to be smaller than the window.
    fitting_tokens = max(1, room_tokens - 1)
    return fitting_tokens if fitting_tokens < refused_tokens else smaller_tokens


def model_prompt_tokens(refused_tokens: int, figures: Figures) -> int | None:
    """How the model counts the prompt, if it has said so."""
    if figures.prompt_tokens is not None:
        return figures.prompt_tokens
    if figures.total_tokens is not None and figures.total_tokens > refused_tokens:
        return figures.total_tokens - refused_tokens
    return None
