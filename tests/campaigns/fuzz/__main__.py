"""`make fuzz`: answers and requests that are not sent in good faith. None may cost more than it is worth, hold an
event loop, or be noticed by anybody else."""

import argparse
import asyncio
import random
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from tests.campaigns.fuzz.console_port import fuzz_console_port
from tests.campaigns.fuzz.documents import fuzz_documents
from tests.campaigns.fuzz.provider_side import fuzz_provider_side
from tests.campaigns.fuzz.public_port import fuzz_public_port

# How long, and with which seed; what was found.
Fuzz = Callable[[float, int], Coroutine[Any, Any, list[str]]]
SIDES: dict[str, Fuzz] = {
    "provider": fuzz_provider_side,
    "public": fuzz_public_port,
    "documents": fuzz_documents,
    "console": fuzz_console_port,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration for each side (60)")
    parser.add_argument("--seed", type=int, help="random seed, to repeat a run (a new one each time)")
    parser.add_argument("--side", choices=SIDES, help="run only this side")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    found: list[str] = []
    for name in [options.side] if options.side else SIDES:
        print(f"{name}, seed {seed}, {options.seconds:g} s ...", flush=True)
        found += asyncio.run(SIDES[name](options.seconds, seed))
    for violation in found:
        print(violation)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
