"""The failpoints of a batch: `metering.reserve.read`, `metering.settle.committed` and so on."""

from collections.abc import Iterable
from typing import Any, Literal

from services.chassis.process import failpoints
from services.metering.operations import Operation

# Read under locks; written, but not committed; committed, but not answered.
Step = Literal["read", "written", "committed"]


def reach(step: Step, operations: Iterable[Operation[Any]]) -> None:
    """Hits the failpoint of each kind of operation in the batch, once per batch."""
    if failpoints.are_watched():
        for kind in dict.fromkeys(type(operation) for operation in operations):
            failpoints.hit(f"metering.{kind.__name__.lower()}.{step}")
