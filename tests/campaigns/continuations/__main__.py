"""`make continuations`: cuts answers at random places, and compares what the clients receive with the uncut answers and
the ledger."""

import argparse
import asyncio
import logging
import random
import secrets
import sys

from tests.campaigns.continuations.campaign import run_campaign
from tests.campaigns.faults.tally import Progress


def main() -> int:
    parser = argparse.ArgumentParser(prog="make continuations", description=__doc__)
    parser.add_argument("--cuts", type=int, default=1000, help="number of cuts (1000)")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="random seed, to repeat a run")
    options = parser.parse_args()
    # That a peer is gone is what happens here all the time.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    print(f"seed {options.seed}", flush=True)
    progress = Progress("continuations", options.cuts, "cuts")
    try:
        findings = asyncio.run(
            run_campaign(options.cuts, random.Random(options.seed), lambda cuts: progress.advance(by=cuts))
        )
    except KeyboardInterrupt:
        return 130
    finally:
        progress.end()
    ways = ", ".join(f"{way} {times}" for way, times in sorted(findings.cuts.items()))
    print(f"\n{findings.chats} answers were cut {findings.cuts.total()} times ({ways})")
    print(f"{findings.continued} times they went on in mid-answer; {len(findings.violations)} violations")
    for violation in findings.violations:
        print(violation)
    return 1 if findings.violations else 0


if __name__ == "__main__":
    sys.exit(main())
