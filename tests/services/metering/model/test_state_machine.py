"""One random story after the other, compared with the model step by step.

In the suite they are always the same: one in `make test`, and the two after it in `make test-stores`.
`STATE_MACHINE_STEPS=100000 pytest -n 2 FILE` tells many, and others each time; one that fails names its number, and
`STATE_MACHINE_FIRST_STORY` begins with it.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from services.metering.credit.records import Checkpoint, Extend, Operation, Reserve, Settle, Sweep, Void
from services.rules.usage import Usage
from tests.services.metering.conftest import MIGRATIONS
from tests.services.metering.model.machine import Machine
from tests.services.metering.model.replicas import Replicas
from tests.services.metering.model.stories import STORY_STEPS, tell_story
from tests.services.metering.model.strategies import Named
from tests.services.metering.samples import KEY
from tests.support.servers.migrated import MigratedPostgres, migrated_sqlite

STEPS = int(os.environ.get("STATE_MACHINE_STEPS", "0"))
FIRST_STORY = int(os.environ.get("STATE_MACHINE_FIRST_STORY", str(time.time_ns()) if STEPS else "0"))
# The audit reads everything that is in the database, at every step.
STORIES_A_DATABASE = 3

LITTLE, MUCH = Usage(2, 1, 3), Usage(20, 0, 2_000)
NEW, NEWEST = ("-1", "own"), ("0", "own")
RESERVE = Reserve(*NEW, KEY, "forte", 5, 10)
# What happens to a request that was reserved; the second replica's holds are overdue at once.
STATES: dict[str, Callable[[Machine], None]] = {
    "held": lambda machine: None,
    "settled": lambda machine: machine.settle(0, Settle(*NEWEST, LITTLE, "counted", "client_gone")),
    "void": lambda machine: machine.void(0, Void(*NEWEST, "refused", KEY, "forte")),
    "swept": lambda machine: machine.lose_the_edge(RESERVE, Usage()),
    "swept at a checkpoint": lambda machine: machine.lose_the_edge(RESERVE, LITTLE),
    "swept beyond its hold": lambda machine: machine.lose_the_edge(RESERVE, MUCH),
}


def operations_on(request: Named) -> Iterator[Operation[Any]]:
    yield Reserve(*request, KEY, "forte", 5, 10)
    yield Extend(*request, 200, LITTLE)
    yield Checkpoint(*request, LITTLE)
    for usage in (Usage(), LITTLE, MUCH):
        yield Settle(*request, usage, "provider", "complete")
    yield Void(*request, "crashed", KEY, "forte", LITTLE)
    for due in (Usage(5), Usage(20_000)):
        yield Void(*request, "client_gone", KEY, "forte", Usage(), due)
    yield Sweep(*request)


def test_every_operation_has_its_answer_in_every_state_and_the_same_if_it_comes_again(database_url: str) -> None:
    with closing(Replicas(database_url)) as replicas:
        for bring_about in STATES.values():
            for operation in operations_on(NEWEST):
                machine = Machine(replicas)
                machine.begin(400, 1, 0, RESERVE)
                bring_about(machine)
                machine.come_together(0, [operation])
                machine.repeat(1, 1)
        for operation in operations_on(NEW):
            machine = Machine(replicas)
            machine.come_together(0, [operation])
            machine.repeat(1, 1)
        assert replicas.audit() == []


FreshReplicas = Callable[[], AbstractContextManager[Replicas]]


@pytest.fixture
def fresh_replicas(request: pytest.FixtureRequest, database_kind: str, tmp_path: Path) -> FreshReplicas:
    """Each time on another database, which is empty."""
    numbers = count(1)

    @contextmanager
    def open_replicas() -> Iterator[Replicas]:
        if database_kind == "sqlite":
            url = migrated_sqlite(tmp_path / f"{next(numbers)}.db", "metering", MIGRATIONS)
            with closing(Replicas(url)) as replicas:
                yield replicas
            return
        postgres: MigratedPostgres = request.getfixturevalue("migrated_postgres")
        with postgres.lend("metering", MIGRATIONS) as url, closing(Replicas(url)) as replicas:
            yield replicas

    return open_replicas


@pytest.mark.parametrize(
    "stories", [range(1), pytest.param(range(1, STORIES_A_DATABASE), marks=pytest.mark.long)], ids=["one", "others"]
)
def test_whatever_comes_in_whichever_order_the_books_are_those_of_the_model(
    fresh_replicas: FreshReplicas, stories: range
) -> None:
    for first in range(FIRST_STORY, FIRST_STORY + max(1, STEPS // STORY_STEPS), STORIES_A_DATABASE):
        tell_stories(range(first + stories.start, first + stories.stop), fresh_replicas)


def tell_stories(numbers: range, fresh_replicas: FreshReplicas) -> None:
    with ExitStack() as opened:
        replicas = opened.enter_context(fresh_replicas())

        def begin() -> Machine:
            nonlocal replicas
            if replicas.spoiled:
                # While a story that failed is made shorter.
                replicas = opened.enter_context(fresh_replicas())
            return Machine(replicas)

        for number in numbers:
            tell_story(number, begin)
        assert replicas.audit() == []
