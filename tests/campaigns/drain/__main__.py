"""`make drain-test`: two of each process are restarted one after the other, and then one of each is replaced by
another, all under load. No stream may break, no request may get another status than its own, and the books must be
exact."""

import argparse
import asyncio
import logging
import sys

from tests.campaigns.drain import campaign
from tests.campaigns.drain.campaign import REPLACEMENTS, RESTARTS, Findings, Pace, Plan
from tests.campaigns.faults.harnesses.zygote import Forks
from tests.support.servers.postgres import Postgres
from tests.support.servers.valkey import Valkey


def main() -> int:
    parser = argparse.ArgumentParser(prog="make drain-test", description=__doc__)
    parser.add_argument("--clients", type=int, default=210, help="concurrent clients; one in twenty only reads (210)")
    parser.add_argument("--words", type=int, default=Pace.words, help="words of each answer, four a second (12)")
    parser.add_argument("--rounds", type=int, default=1, help="how often each process is restarted (1)")
    options = parser.parse_args()
    # That a peer is gone is what happens here all the time.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    violations: list[str] = []
    for plan in (*options.rounds * [RESTARTS], REPLACEMENTS):
        findings = asyncio.run(_run(options, plan))
        print(f"\n{findings.table()}\n", flush=True)
        violations += findings.violations
    for violation in violations:
        print(violation)
    return 1 if violations else 0


async def _run(options: argparse.Namespace, plan: Plan) -> Findings:
    postgres, valkey = Postgres(), Valkey()
    postgres.start()
    valkey.start()
    try:
        async with Forks() as forks:
            return await campaign.run(
                forks,
                postgres.create_database(),
                valkey.url,
                options.clients,
                Pace(words=options.words),
                plan,
                say=lambda step: print(step, "...", flush=True),
            )
    finally:
        valkey.stop()
        postgres.stop()


if __name__ == "__main__":
    sys.exit(main())
