"""One random story after the other, compared with the model step by step.

In the suite it is the same short story every time. `STATE_MACHINE_STEPS=100000 pytest -n 2 FILE` tells a long one, and
another one each time; `--hypothesis-seed` repeats it.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.postgres import Postgres
from tests.services.metering.machine import Machine, Situation
from tests.services.metering.replicas import Replicas

STEPS = int(os.environ.get("STATE_MACHINE_STEPS", "0"))
# The audit reads everything that a round left, at every step.
ROUND_EXAMPLES, EXAMPLE_STEPS = 12, 25


@pytest.fixture(params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Gives the address of an empty database, each time of another."""
    if request.param == "sqlite":
        numbers = count(1)
        return lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db"
    server: Postgres = request.getfixturevalue("postgres_server")
    return server.create_database


def test_whatever_comes_in_whichever_order_the_books_are_those_of_the_model(new_database: Callable[[], str]) -> None:
    met: Counter[Situation] = Counter()
    for _ in range(max(1, STEPS // (ROUND_EXAMPLES * EXAMPLE_STEPS))):
        tell_a_story(new_database, met)
    # A story in which little happens would prove little.
    found = {(operation, state) for operation, state, _ in met}
    states = ("none", "held", "settled", "void", "swept")
    operations = ("Reserve", "Extend", "Checkpoint", "Settle", "Void", "Sweep")
    assert {(operation, state) for operation in operations for state in states} - found == set()


def tell_a_story(new_database: Callable[[], str], met: Counter[Situation]) -> None:
    with contextlib.ExitStack() as opened:
        replicas = opened.enter_context(contextlib.closing(Replicas(new_database())))

        def begin() -> Machine:
            nonlocal replicas
            if replicas.spoiled:
                # While a story that failed is made shorter.
                replicas = opened.enter_context(contextlib.closing(Replicas(new_database())))
            return Machine(replicas, met)

        run_state_machine_as_test(
            begin,  # type: ignore[arg-type] # Whatever makes one will do.
            settings=settings(
                max_examples=ROUND_EXAMPLES,
                stateful_step_count=EXAMPLE_STEPS,
                derandomize=not STEPS,
                database=None,
                deadline=None,
                phases=[Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
            ),
        )
