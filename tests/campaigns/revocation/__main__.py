"""`make revocations`: revokes keys while lines break and auths die, and sees whether any edge accepts one too late."""

import argparse
import asyncio
import logging
import random
import secrets
import sys

from tests.campaigns.faults.harnesses.zygote import Forks
from tests.campaigns.faults.tally import Progress
from tests.campaigns.revocation import campaign
from tests.campaigns.revocation.tally import Findings
from tests.support.servers.postgres import Postgres


def main() -> int:
    options = _read_options()
    # That a peer is gone is what happens here all the time.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    print(f"seed {options.seed}", flush=True)
    try:
        findings = asyncio.run(_run(options))
    except KeyboardInterrupt:
        return 130
    print(f"\n{findings.revocations} revocations, {findings.suspensions} suspensions, three edges, two auths\n")
    print(findings.table())
    for violation in findings.violations:
        print(violation)
    return 1 if findings.violations else 0


async def _run(options: argparse.Namespace) -> Findings:
    postgres = Postgres()
    postgres.start()
    progress = Progress("revocations", options.revocations, "keys")
    try:
        async with Forks() as forks:
            dice = random.Random(options.seed)
            return await campaign.run(forks, postgres.create_database(), options.revocations, dice, progress.advance)
    finally:
        progress.end()
        postgres.stop()


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make revocations", description=__doc__)
    parser.add_argument(
        "--revocations", type=int, default=1_000, help="number of revocations, including suspensions (1000)"
    )
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="random seed, to repeat a run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
