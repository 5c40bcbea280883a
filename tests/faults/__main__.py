"""`make faults`: kills everything everywhere, and compares the books."""

import argparse
import asyncio
import logging
import random
import secrets
import sys
from collections.abc import Sequence

from tests.faults import campaign
from tests.faults.forks import Forks
from tests.faults.points import POINTS, Point
from tests.faults.tally import Tally, table
from tests.postgres import Postgres


def main() -> int:
    options = _read_options()
    # That a peer is gone is what happens here all the time.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    print(f"seed {options.seed}", flush=True)
    return 0 if asyncio.run(_run(options)) else 1


async def _run(options: argparse.Namespace) -> bool:
    points, dice = _chosen(options.points), random.Random(options.seed)
    good = True
    if "forked" in options.only:
        good &= _show("Forked services", await _run_forked(points, options, dice))
    if "whole" in options.only:
        good &= _show("The whole service", await campaign.whole(points, options.whole_kills, dice).run())
    return good


async def _run_forked(points: Sequence[Point], options: argparse.Namespace, dice: random.Random) -> list[Tally]:
    postgres = Postgres()
    postgres.start()
    try:
        async with Forks() as forks:
            plan = campaign.forked(forks, points, options.kills, dice, postgres.create_database)
            plan.replay = options.replay
            return await plan.run()
    finally:
        postgres.stop()


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
    parser.add_argument("--kills", type=int, default=200, help="at each point, in forked services")
    parser.add_argument("--whole-kills", type=int, default=20, help="at each point, with the whole service")
    parser.add_argument("--points", nargs="*", default=[], help="only those whose names begin so")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--replay", type=int, help="the seed of one round, to play it again and again")
    return parser.parse_args()


PARTS = ["forked", "whole"]

if __name__ == "__main__":
    sys.exit(main())
