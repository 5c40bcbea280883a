"""`make faults`: kills everything everywhere, and compares the books."""

import argparse
import asyncio
import logging
import random
import secrets
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from services.router.grounding.documents.attachments import PASSAGES_AT_ONCE
from tests.campaigns.faults import campaign, documents
from tests.campaigns.faults.directed import SCENARIOS
from tests.campaigns.faults.harnesses.zygote import Forks
from tests.campaigns.faults.points import POINTS, Point
from tests.campaigns.faults.tally import Tally, table
from tests.campaigns.faults.trials import TRIALS, Result, try_directed, try_out
from tests.support.servers.postgres import Postgres

PARTS = ["forked", "whole", "documents", "bugs"]


def main() -> int:
    options = _read_options()
    # That a peer is gone is what happens here all the time.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    print(f"seed {options.seed}", flush=True)
    try:
        return 0 if asyncio.run(_run(options)) else 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


async def _run(options: argparse.Namespace) -> bool:
    # Ended as by Ctrl-C, so that nothing is left behind.
    this = cast("asyncio.Task[bool]", asyncio.current_task())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    points, dice = _chosen(options.points), random.Random(options.seed)
    good = True
    if "forked" in options.only:
        good &= _show("Forked services", await _run_forked(points, options, dice))
    if "whole" in options.only:
        good &= _show("The whole service", await campaign.whole(points, options.whole_kills, dice).run())
    if "documents" in options.only:
        good &= await _kill_among_documents()
    if "bugs" in options.only:
        print("Seeded mistakes\n", flush=True)
        async for result in _try_bugs(dice):
            good &= result.is_good
    return good


async def _run_forked(points: Sequence[Point], options: argparse.Namespace, dice: random.Random) -> list[Tally]:
    async with Forks() as forks, _postgres() as postgres:
        plan = campaign.forked(forks, points, options.kills, dice, postgres.create_database)
        plan.replay = options.replay
        return await plan.run()


async def _kill_among_documents() -> bool:
    """Kills a router at each portion of a document."""
    with tempfile.TemporaryDirectory() as folder:
        violations = await documents.run_kills(Path(folder), range(0, documents.PASSAGES, PASSAGES_AT_ONCE))
    print("\nDocuments", *violations or ["whole, or not there"], sep="\n  ", flush=True)
    return not violations


@asynccontextmanager
async def _postgres() -> AsyncIterator[Postgres]:
    postgres = Postgres()
    postgres.start()
    try:
        yield postgres
    finally:
        postgres.stop()


async def _try_bugs(dice: random.Random) -> AsyncIterator[Result]:
    async with Forks() as forks:
        for trial in TRIALS:
            yield _told(await try_out(forks, trial, dice))
    for bug in SCENARIOS:
        yield _told(await try_directed(bug))


def _told(result: Result) -> Result:
    print(f"  {result.bug}\n    {result.caught or 'NOT SEEN'}", flush=True)
    if result.false_alarm:
        print(f"    and WITHOUT it: {result.false_alarm}", flush=True)
    return result


def _show(title: str, tallies: Sequence[Tally]) -> bool:
    print(f"\n{table(title, tallies)}", flush=True)
    for tally in tallies:
        if tally.kills < tally.wanted:
            print(f"{tally.point} was reached {tally.kills} times, not {tally.wanted}", flush=True)
    return all(tally.is_good for tally in tallies)


def _chosen(names: Sequence[str]) -> list[Point]:
    chosen = [point for point in POINTS if not names or any(point.name.startswith(name) for name in names)]
    if not chosen:
        sys.exit(f"no such point; there are: {', '.join(point.name for point in POINTS)}")
    return chosen


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="kills at each point, in forked services (200)")
    parser.add_argument("--whole-kills", type=int, default=20, help="kills at each point, with the whole service (20)")
    parser.add_argument("--points", nargs="+", default=[], help="only points whose names start with one of these")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="which of the four parts to run (all)")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="random seed, to repeat a run")
    parser.add_argument("--replay", type=int, help="repeat the forked round of this seed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
