"""`make failover-test`: PostgreSQL is frozen, killed and replaced under load. If it is away for 10 s no chat may fail.
If it is away for 60 s errors must be clear, and service be full again 5 s after its return. The books must be exact."""

import argparse
import sys
import time

from tests.support.failover import PER_S, Failover, flaws_of_outage
from tests.support.servers.postgres import Postgres
from tests.support.service import Service, UpstreamThread

# An outage that no client may notice, and one that all may.
SHORT_S, LONG_S = 10.0, 60.0
FULL_SERVICE_AFTER_S = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make failover-test", description=__doc__)
    parser.add_argument("--per-second", type=float, default=PER_S, help="chats sent in a second (20)")
    parser.add_argument("--workers", type=int, default=2, help="edges (2)")
    options = parser.parse_args()
    postgres, violations = Postgres(), 0
    postgres.start()
    environ = {"LEGATO_DATABASE_URL": postgres.create_database()}
    try:
        with UpstreamThread() as upstream, Service(upstream, environ, workers=options.workers) as service:
            failover = Failover(service, postgres)
            for away_s in (SHORT_S, LONG_S):
                with failover.chats(options.per_second) as chats:
                    back_at_s = failover.replace_database(away_s)
                    time.sleep(2 * FULL_SERVICE_AFTER_S)
                flaws = flaws_of_outage(chats, back_at_s + FULL_SERVICE_AFTER_S)
                if away_s == SHORT_S and chats.failed:
                    flaws.append(f"{len(chats.failed)} failed, the first with {chats.failed[0].text[:200]}")
                print(f"away for {away_s:.0f} s: {len(chats.sent)} chats, {len(chats.failed)} failed", *flaws, sep="\n")
                violations += len(flaws)
    finally:
        postgres.stop()
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
