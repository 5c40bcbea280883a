"""`make openapi-fuzz`: asks for everything that the OpenAPI document describes, and compares the answers with it."""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.campaigns.openapi.campaign import run_schemathesis


def main() -> int:
    parser = argparse.ArgumentParser(prog="make openapi-fuzz", description=__doc__)
    parser.add_argument("--examples", type=int, default=500, help="requests for each operation (500)")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="random seed, to repeat a run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_schemathesis(options.examples, options.seed, Path(folder))
    print(outcome.stdout, outcome.stderr)
    return outcome.returncode


if __name__ == "__main__":
    sys.exit(main())
