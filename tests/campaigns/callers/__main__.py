"""`make killed-callers`: kills programs that call ChatService at random moments, and compares what they received with
the ledger."""

import argparse
import asyncio
import logging
import random
import secrets
import sys

from tests.campaigns.callers.campaign import run_campaign
from tests.campaigns.faults.tally import Progress


def main() -> int:
    parser = argparse.ArgumentParser(prog="make killed-callers", description=__doc__)
    parser.add_argument("--callers", type=int, default=500, help="number of callers (500)")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="random seed, to repeat a run")
    options = parser.parse_args()
    # That a peer is gone is what happens here all the time.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    print(f"seed {options.seed}", flush=True)
    progress = Progress("killed callers", options.callers, "callers")
    try:
        findings = asyncio.run(run_campaign(options.callers, random.Random(options.seed), progress.advance))
    except KeyboardInterrupt:
        return 130
    finally:
        progress.end()
    print(
        f"\n{findings.calls} callers: {findings.finished} saw the end, {findings.charged} were charged,"
        f" {len(findings.violations)} violations"
    )
    for violation in findings.violations:
        print(violation)
    return 1 if findings.violations else 0


if __name__ == "__main__":
    sys.exit(main())
