"""Metering without group commits: the same process and rules, with one operation per transaction."""

from unittest.mock import patch

from services.chassis.process.run import run
from services.metering.__main__ import main
from services.metering.credit import batch

if __name__ == "__main__":
    with patch.object(batch, "BATCH_MOST", 1):
        run("metering", main)
