"""One call to a model: what was planned, what came of it, and the interface of those who learn of it.

A plan and a result are immutable. `services/router/calls/` makes one of each for a call; the observers of a model are
listed where its state is made (`states.py`), and get each result once.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from msgspec import Struct

from services.router.answers.answer_end import NOT_RELAYED, AnswerEnd
from services.router.prompts.calibration import CountedPrompt
from services.router.prompts.fitting import Figures
from services.router.providers.base import Failure
from services.router.routes.target import Target

# The role of a model that is called because it is one of its class.
BASELINE: Final = "baseline"


class FailedCall(NamedTuple):
    """A call of the same search that failed before its answer."""

    role: str
    failure: Failure


class CallPlan(Struct, frozen=True):
    """The request of a call, and its limits."""

    class_id: str
    target: Target
    # Why the model is called: `BASELINE`, or the name of a trial.
    role: str
    prompt: CountedPrompt
    # The output limit, beyond which the answer is cut.
    max_tokens: int
    # By our count, of an answer that respects `max_tokens`.
    longest_tokens: int
    # Whether the model is sent the limit.
    is_limit_told: bool = True
    # How long an answer takes that is asked for whole; None: it is streamed.
    whole_s: float | None = None
    # The calls before this one that failed.
    failed_before: Sequence[FailedCall] = ()


class CallEnd(Enum):
    # Before the answer began: the model failed, or it works but refused.
    FAILED = "failed"
    DECLINED = "declined"
    # Nothing is known of the model: nobody waited for it, it was sent nothing, or it is full.
    GIVEN_UP = "given up"
    # After that: the answer was passed on to its end, or left before.
    ANSWERED = "answered"
    LEFT = "left"
    # The answer broke off.
    CUT = "cut"
    # The answer was nothing, and another model's was passed on in its place.
    EMPTY = "empty"


class CallResult(Struct, frozen=True):
    """The outcome of a call."""

    end: CallEnd
    # From the call until its end.
    duration_s: float
    # None: no answer began, or a whole one.
    first_token_s: float | None = None
    answer: AnswerEnd = NOT_RELAYED
    # Why the model failed or refused; None: the call had another end.
    failure: Failure | None = None
    # The model took longer than it may.
    has_timed_out: bool = False
    # The figures of a prompt that the model refused for its length.
    figures: Figures | None = None
    # The model is called again at once in another way, since it refused this one.
    is_repeated: bool = False
    # All of the answer was here before any of it was passed on.
    is_whole: bool = False
    # The complete answer has no content.
    is_silent: bool = False
    # Of a complete answer, where they are judged; the valid ones could be carried out.
    tool_calls: int = 0
    valid_tool_calls: int = 0
    # Empty: the chat is not traced.
    trace_id: str = ""


class CallObserver:
    """Learns of calls; each class overrides what it has to know."""

    __slots__ = ()

    def on_fallback(self, plan: CallPlan) -> None:
        """Is called when an answer has begun after other calls for the chat failed."""

    def on_result(self, plan: CallPlan, result: CallResult) -> None:
        """Is called once, when the call is over."""
