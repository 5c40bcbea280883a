"""The short form of `make faults`: some of the points, other ones each time, and some of the seeded mistakes."""

import inspect
import logging
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.campaigns.faults import campaign
from tests.campaigns.faults.bugs import BUGS, MISFORTUNES
from tests.campaigns.faults.directed import SCENARIOS
from tests.campaigns.faults.documents import PASSAGES, run_kills
from tests.campaigns.faults.harnesses.zygote import Forks
from tests.campaigns.faults.points import POINTS
from tests.campaigns.faults.trials import TRIALS, try_directed, try_out
from tests.support.servers.postgres import Postgres

# Those that show at once.
TRIED = ("settle before journal", "one journal copy")
# One point of so many is drawn.
IN_THE_SUITE, IN_CAMPAIGNS = 16, 4
ALWAYS = ("metering.settle.written, credit is owed",)


@pytest.fixture
async def forks() -> AsyncIterator[Forks]:
    # That a peer is gone is what happens here all the time.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    async with Forks() as forks:
        yield forks


@pytest.mark.parametrize("points_per_drawn", [IN_THE_SUITE, pytest.param(IN_CAMPAIGNS, marks=pytest.mark.long)])
async def test_whatever_is_killed_no_request_is_lost_doubled_or_stuck(
    forks: Forks, postgres_server: Postgres, points_per_drawn: int
) -> None:
    drawn = set(random.sample(range(len(POINTS)), len(POINTS) // points_per_drawn))
    points = [point for number, point in enumerate(POINTS) if number in drawn or point.name in ALWAYS]
    plan = campaign.forked(forks, points, 1, random.Random(), postgres_server.create_database)
    # Each is four to six processes, and other tests run beside them.
    plan.most_harnesses, plan.most_at_once = 1, 3
    kinds_for = plan.kinds_for
    # Months end on both stores; on PostgreSQL, with two meterings.
    plan.kinds_for = lambda point: [name for name in kinds_for(point) if name != campaign.POSTGRES_MONTHS]
    tallies = await plan.run()
    assert plan.stories == []
    assert [tally.point for tally in tallies if not tally.is_good] == []


@pytest.mark.long
async def test_seeded_mistakes_are_seen(forks: Forks) -> None:
    for trial in TRIALS:
        if trial.bug in TRIED:
            result = await try_out(forks, trial, random.Random(), silent_rounds=1)
            assert result.caught
            assert not result.false_alarm


def test_every_seeded_mistake_fits_the_code() -> None:
    """One that does not would keep its process from starting or from answering, and show nothing."""
    for bug in (BUGS | MISFORTUNES).values():
        for owner, name, _ in bug.changes:
            was = getattr(owner, name)
            with bug.applied():
                assert not inspect.isfunction(was) or takes_the_arguments_of(getattr(owner, name), was), bug.name


def takes_the_arguments_of(replacement: Callable[..., object], was: Callable[..., object]) -> bool:
    given = inspect.signature(was).parameters.values()
    by_place = [None for each in given if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    by_name = {each.name: None for each in given if each.kind is inspect.Parameter.KEYWORD_ONLY}
    try:
        inspect.signature(replacement).bind(*by_place, **by_name)
    except TypeError:
        return False
    return True


@pytest.mark.long
@pytest.mark.parametrize("bug", SCENARIOS)
async def test_mistake_that_needs_a_late_message_is_seen(bug: str) -> None:
    result = await try_directed(bug)
    assert result.caught
    assert not result.false_alarm


async def test_router_that_is_killed_leaves_no_part_of_a_document(socket_folder: Path) -> None:
    assert await run_kills(socket_folder, [PASSAGES // 2]) == []
