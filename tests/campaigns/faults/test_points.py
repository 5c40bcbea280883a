"""No failpoint is forgotten."""

import re
from itertools import product
from pathlib import Path

from services.metering.credit.records import (
    Checkpoint,
    Extend,
    Grant,
    Reserve,
    RestorePayment,
    ReturnPayment,
    Settle,
    Sweep,
    Void,
)
from tests.campaigns.faults.points import POINTS

ROOT = Path(__file__).parents[3]
PLACES = {point.place for point in POINTS}


def test_every_failpoint_of_edge_router_retention_and_payments_is_a_point() -> None:
    folders = ("edge", "services/router", "services/metering/months", "services/payments")
    sources = [path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py")]
    named = {name for source in sources for call in re.findall(r"failpoints\.hit\(.*", source) for name in _names(call)}
    assert len(named) > 25
    assert named <= PLACES


def test_every_step_of_every_operation_of_a_request_or_a_payment_is_a_point() -> None:
    kinds = (Reserve, Extend, Settle, Void, Checkpoint, Sweep, Grant, ReturnPayment, RestorePayment)
    operations = [kind.__name__.lower() for kind in kinds]
    steps = ("read", "written", "committed")
    assert {f"metering.{operation}.{step}" for operation, step in product(operations, steps)} <= PLACES


def _names(call: str) -> list[str]:
    return re.findall(r'"((?:edge|router|metering|payments)\.[\w.]+)"', call)
