"""What results of calls teach of a model's token counts."""

import pytest
from msgspec.structs import replace

from legato_protos.router.v1.router_pb2 import USAGE_SOURCE_COUNTED, USAGE_SOURCE_PROVIDER, Finished
from legato_protos.type.v1.usage_pb2 import Usage
from services.router.answers.answer_end import AnswerEnd
from services.router.models.call_result import BASELINE, CallEnd, CallPlan, CallResult
from services.router.models.cut_prompts import CutPrompts
from services.router.models.learned_token_counts import LearnedTokenCounts
from services.router.prompts.calibration import LEAST_ANSWERS, UNKNOWN_ANSWER_RATIO, Calibration, CountedPrompt
from services.router.prompts.fitting import Figures
from services.router.providers.base import Failure, ProviderUsage
from tests.services.router.harness import target

PROMPT = CountedPrompt(9_000, False, "acct_1")
PLAN = CallPlan("forte", target("main"), BASELINE, PROMPT, 1_000, 2_000)


class Counts:
    def __init__(self) -> None:
        self.calibration, self.cut_prompts, self.cuts = Calibration(), CutPrompts(), 0
        self.observer = LearnedTokenCounts(self.calibration, self.cut_prompts, self._count_cut)

    def _count_cut(self) -> None:
        self.cuts += 1

    def answer(self, account_id: str = "acct_1", **known: object) -> None:
        usage = Usage(prompt_tokens=10_000, completion_tokens=400)
        end = AnswerEnd(Finished(usage=usage, usage_source=USAGE_SOURCE_PROVIDER), ProviderUsage(10_000, 400, 0), 500)
        plan = replace(PLAN, prompt=PROMPT._replace(account_id=account_id))
        self.observer.on_result(plan, CallResult(CallEnd.ANSWERED, 1.0, answer=replace(end, **known)))


@pytest.fixture
def counts() -> Counts:
    return Counts()


def test_answers_teach_how_a_model_counts_prompts_and_answers(counts: Counts) -> None:
    for number in range(LEAST_ANSWERS):
        counts.answer(f"acct_{number}")
    ratios = counts.calibration.ratios(PROMPT)
    assert ratios is not None
    assert ratios.middle == 10_000 / 9_000
    assert counts.calibration.answer_ratio == 400 / 500


@pytest.mark.parametrize(
    "known", [{"comparable_tokens": None}, {"finished": Finished(usage_source=USAGE_SOURCE_COUNTED)}]
)
def test_answer_that_is_not_comparable_teaches_nothing_of_answers(known: dict[str, object], counts: Counts) -> None:
    for number in range(LEAST_ANSWERS):
        counts.answer(f"acct_{number}", **known)
    assert counts.calibration.answer_ratio == UNKNOWN_ANSWER_RATIO


def test_prompt_that_was_cut_is_reported_and_teaches_nothing(counts: Counts) -> None:
    counts.answer(believed=ProviderUsage(2_048, 400, 0))
    assert (counts.cuts, counts.cut_prompts.cuts(9_000), counts.calibration.ratios(PROMPT)) == (1, True, None)


@pytest.mark.parametrize(
    ("figures", "ratio"), [(Figures(total_tokens=11_000), 10_000 / 9_000), (Figures(context_tokens=8_192), None)]
)
def test_refusal_for_length_teaches_the_length_of_the_prompt_if_it_names_it(
    figures: Figures, ratio: float | None, counts: Counts
) -> None:
    refused = CallResult(CallEnd.DECLINED, 0.1, failure=Failure.CONTEXT, figures=figures)
    counts.observer.on_result(PLAN, refused)
    ratios = counts.calibration.ratios(PROMPT)
    assert (None if ratios is None else ratios.middle) == ratio
