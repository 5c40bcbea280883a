"""`make overload`: the whole service on default settings. A provider without a limit answers late, or refuses one
customer's prompts: no other may be refused. And one with few places gets three times the load, in each way in which
it can be known to be full. Documents of one account come in numbers, while others add theirs. Webhooks of two accounts
never answer. Clients that are not signed in flood the console. One account wants all memory for prompts, and all
connections. And a router is stopped for ten seconds under streams with long prompts."""

import argparse
import asyncio
import io
import logging
import sys
import tempfile
from pathlib import Path

from services.chassis.telemetry.log import Log
from tests.campaigns.overload import campaign, documents, shares
from tests.campaigns.overload.console_flood import run_console_floods
from tests.campaigns.overload.silent_webhooks import run_silent_webhooks
from tests.support.frozen_router import freeze_router_of_two


async def run(phase_s: float, overload_s: float, ways: list[str]) -> list[str]:
    violations: list[str] = []

    def say(what: str) -> None:
        print(what, "...", flush=True)

    for name, tally in [*await campaign.run_thinking(phase_s, say), *await campaign.run_refusing(phase_s, say)]:
        outcome = f"refused {tally.refused}  failed {tally.failed}  p99 {tally.p99_s:.2f} s"
        print(f"{name:20} chats {tally.count:5}  {outcome}", flush=True)
        if tally.refused or tally.failed:
            violations.append(f"{name}: {tally.refused} refused, {tally.failed} failed")
    say("documents")
    with tempfile.TemporaryDirectory() as folder:
        for name, flood in await documents.run_documents(Path(folder), uploads=110, others=10):
            print(f"{name:20} {flood}", flush=True)
            violations += [f"{name}: {violation}" for violation in flood.violations]
    say("silent webhooks")
    waits = await asyncio.to_thread(run_silent_webhooks, others=20)
    print(f"{'silent webhooks':20} {waits}", flush=True)
    violations += [f"silent webhooks: {violation}" for violation in waits.violations]
    for way in ways:
        found = await campaign.run_overloaded(way, overload_s, say)
        print(found, flush=True)
        violations += found.violations
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as folder:
        violations += await run_console_floods(Path(folder), Log("console", io.StringIO()), say)
    say("one account wants all memory and all connections")
    async with shares.running_campaign() as shared:
        await shared.send_prompts(shares.PROMPTS, shares.PROMPT_BYTES)
        await shared.take_places()
    print("\n".join(shared.figures), flush=True)
    violations += shared.violations
    say("a router is stopped")
    frozen = await asyncio.to_thread(freeze_router_of_two, streams=40, frozen_s=10)
    print(f"{'stopped router':20} cut {len(frozen.cut)}  called twice {len(frozen.called_twice)}", flush=True)
    return violations + [f"stopped router: {violation}" for violation in frozen.violations]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make overload", description=__doc__)
    parser.add_argument("--phase-s", type=float, default=30.0, help="duration of each of the three phases (30)")
    parser.add_argument("--overload-s", type=float, default=20.0, help="duration at three times the load (20)")
    parser.add_argument("--ways", default=",".join(campaign.WAYS), help="ways to detect a saturated provider (all)")
    options = parser.parse_args()
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    violations = asyncio.run(run(options.phase_s, options.overload_s, options.ways.split(",")))
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
