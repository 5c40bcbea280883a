"""A new model that some accounts of a class try: its calls beside those of the others, and how they compare."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from console.display.language import N_, _
from console.display.sentences import in_words
from console.pages.operator.figures import Finding
from legato_protos.router.v1 import router_pb2 as pb
from services.rules.model_classes import CLASSES
from services.rules.model_comparison import OutcomeSum, compare, sum_outcomes

ROLES: Final[dict[int, str]] = {
    pb.CALL_ROLE_BASELINE: N_("serves"),
    pb.CALL_ROLE_CANARY: N_("canary"),
}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The outcomes of a class with a canary: each model with its role, and verdicts on the new ones."""

    class_id: str
    models: list[tuple[str, OutcomeSum]]
    # Each with the role of the model that it is about.
    verdicts: list[tuple[str, str]]


def evaluated(outcomes: Sequence[pb.ModelOutcomes]) -> Iterator[Evaluation]:
    """Yields the evaluation of each class with a canary that was called, summed over routers."""
    for class_id in CLASSES:
        by_role = {
            role: [each for each in outcomes if (each.class_id, each.role) == (class_id, role)] for role in ROLES
        }
        if any(by_role[role] for role in ROLES if role != pb.CALL_ROLE_BASELINE):
            yield Evaluation(class_id, *_compared(by_role))


def _compared(
    by_role: dict[int, list[pb.ModelOutcomes]],
) -> tuple[list[tuple[str, OutcomeSum]], list[tuple[str, str]]]:
    """Returns the sums of each model in each role, and how the new models compare with all others together."""
    sums = [
        (ROLES[role], sum_outcomes(name, outcomes))
        for role, outcomes in by_role.items()
        for name in dict.fromkeys(f"{each.provider}/{each.model_name}" for each in outcomes)
    ]
    baseline = OutcomeSum("the rest")
    for each in by_role[pb.CALL_ROLE_BASELINE]:
        baseline.add(each)
    new = [(role, each) for role, each in sums if role != ROLES[pb.CALL_ROLE_BASELINE]]
    verdicts = [(role, in_words(compare(baseline, each))) for role, each in new]
    return sums, verdicts


def counts_of(target: pb.Target, outcomes: Iterable[pb.ModelOutcomes]) -> tuple[int, int]:
    """Returns the calls and the failures of a model in its place since the start: a canary's are not those of the time
    before."""
    if not target.HasField("canary"):
        return target.attempts, target.failures
    own = [
        each
        for each in outcomes
        if each.role == pb.CALL_ROLE_CANARY
        and (each.class_id, each.provider, each.model_name) == (target.class_id, target.provider, target.model_name)
    ]
    return sum(each.calls for each in own), sum(each.failures for each in own)


def is_rolled_back(targets: Iterable[pb.Target]) -> bool:
    return any(target.canary.is_rolled_back for target in targets)


def roll_back_findings(class_ids: Iterable[str]) -> Iterator[Finding]:
    for class_id in class_ids:
        text = _("The canary of %(class_id)s was rolled back.", class_id=class_id)
        yield Finding("warn", text, "canary-rolled-back.md")
