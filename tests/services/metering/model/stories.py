"""Random stories of the machine, each of which can be told again by its number."""

from collections.abc import Callable
from typing import Final

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.services.metering.model.machine import Machine

EXAMPLES: Final = 4
EXAMPLE_STEPS: Final = 20
# Few examples each: Hypothesis varies what it has, and one story after the other brings more that is new.
STORY_STEPS: Final = EXAMPLES * EXAMPLE_STEPS

_SETTINGS: Final = settings(
    max_examples=EXAMPLES,
    stateful_step_count=EXAMPLE_STEPS,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


def tell_story(number: int, begin: Callable[[], Machine]) -> None:
    """Raises what a machine raises; `begin` makes that of each example."""
    try:
        run_state_machine_as_test(seed(number)(begin), settings=_SETTINGS)  # type: ignore[arg-type] # Any factory does.
    except BaseException as error:
        error.add_note(f"in story {number}")
        raise
