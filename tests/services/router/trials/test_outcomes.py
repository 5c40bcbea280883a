"""What the calls of a class come to, counted by model and role."""

from services.router.models.call_result import BASELINE
from services.router.trials.canary import ROLE
from services.router.trials.outcomes import CUT, EMPTY, CallOutcome, ClassOutcomes
from tests.services.router.harness import target

OLD, NEW = target("old"), target("new")
ANSWER = CallOutcome(first_token_s=0.3, duration_s=2.0, prompt_tokens=100, completion_tokens=20, finish_reason="stop")


def test_answers_and_errors_are_counted_for_each_model_and_role() -> None:
    outcomes = ClassOutcomes()
    for role, called, outcome in [
        (BASELINE, OLD, ANSWER),
        (BASELINE, NEW, ANSWER),
        (ROLE, NEW, ANSWER),
        (ROLE, NEW, CallOutcome(CUT, first_token_s=0.3)),
        (ROLE, NEW, CallOutcome("busy")),
    ]:
        outcomes.record(role, called, outcome)
    canary = next(model for model in outcomes.models if model.role == ROLE)
    assert [(model.role, model.model_name, model.calls) for model in outcomes.models] == [
        ("baseline", "old-model", 1),
        ("baseline", "new-model", 1),
        ("canary", "new-model", 3),
    ]
    assert (canary.answers, canary.failures, canary.errors) == (1, 1, {"cut": 1, "busy": 1})
    assert (canary.prompt_tokens, canary.completion_tokens, canary.finish_reasons) == (100, 20, {"stop": 1})
    assert (sum(canary.first_token_s.counts), canary.durations_s.total) == (2, 2.0)


def test_failures_are_the_errors_that_are_the_fault_of_the_model_and_invalid_tool_calls() -> None:
    errors = ["provider", "refused", CUT, EMPTY, "busy", "context"]
    assert [error for error in errors if CallOutcome(error).is_failure] == ["provider", "refused", CUT, EMPTY]
    assert CallOutcome(tool_calls=2, valid_tool_calls=1).is_failure
    assert not CallOutcome(tool_calls=2, valid_tool_calls=2).is_failure


def test_counts_of_a_model_that_left_the_class_are_forgotten() -> None:
    outcomes = ClassOutcomes()
    outcomes.record(BASELINE, OLD, ANSWER)
    outcomes.record(BASELINE, NEW, ANSWER)
    outcomes.keep([NEW])
    assert [model.model_name for model in outcomes.models] == ["new-model"]
