"""`make chaos`: one of two models fails and comes back under load. No client may see an error that the other could have
prevented."""

import argparse
import logging
import sys

from tests.campaigns.chaos import campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--clients", type=int, default=32, help="number of concurrent clients (32)")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each fault (20)")
    options = parser.parse_args()
    # That a peer is gone is what happens here all the time.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    tallies = campaign.run(options.clients, options.seconds, lambda fault: print(fault, "...", flush=True))
    print(f"\n{campaign.table(tallies)}\n")
    violations = [violation for tally in tallies for violation in tally.violations]
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
