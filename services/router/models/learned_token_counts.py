"""Learns from the results of calls how a model counts the tokens of prompts and of answers."""

from collections.abc import Callable

from legato_protos.router.v1.router_pb2 import USAGE_SOURCE_PROVIDER
from services.router.models.call_result import CallObserver, CallPlan, CallResult
from services.router.models.cut_prompts import CutPrompts
from services.router.prompts.calibration import Calibration
from services.router.prompts.fitting import model_prompt_tokens


class LearnedTokenCounts(CallObserver):
    def __init__(self, calibration: Calibration, cut_prompts: CutPrompts, on_cut: Callable[[], None]) -> None:
        """`on_cut` is called for each prompt that the model's server has cut."""
        self._calibration = calibration
        self._cut_prompts = cut_prompts
        self._on_cut = on_cut

    def on_result(self, plan: CallPlan, result: CallResult) -> None:
        answer, calibration = result.answer, self._calibration
        if result.figures is not None:
            refused_tokens = model_prompt_tokens(plan.max_tokens, result.figures)
            if refused_tokens is not None:
                calibration.record(plan.prompt, refused_tokens)
        if answer.finished is None:
            return
        believed = answer.believed
        if (
            believed is not None
            and believed.prompt_tokens
            and self._cut_prompts.record(plan.prompt, believed, calibration)
        ):
            self._on_cut()
        if answer.finished.usage_source == USAGE_SOURCE_PROVIDER and answer.comparable_tokens is not None:
            completion_tokens = answer.finished.usage.completion_tokens
            calibration.record_answer(plan.prompt.account_id, answer.comparable_tokens, completion_tokens)
