"""No failpoint is forgotten."""

import re
from itertools import product
from pathlib import Path

from services.metering.ledger.records import Checkpoint, Extend, Reserve, Settle, Sweep, Void
from tests.campaigns.faults.points import POINTS

ROOT = Path(__file__).parents[3]
PLACES = {point.place for point in POINTS}


def test_every_failpoint_of_edge_and_router_is_a_point() -> None:
    sources = [path.read_text() for folder in ("edge", "services/router") for path in (ROOT / folder).rglob("*.py")]
    named = {name for source in sources for call in re.findall(r"failpoints\.hit\(.*", source) for name in _names(call)}
    assert len(named) > 15
    assert named <= PLACES


def test_every_step_of_every_operation_of_a_request_is_a_point() -> None:
    operations = [kind.__name__.lower() for kind in (Reserve, Extend, Settle, Void, Checkpoint, Sweep)]
    steps = ("read", "written", "committed")
    assert {f"metering.{operation}.{step}" for operation, step in product(operations, steps)} <= PLACES


def _names(call: str) -> list[str]:
    return re.findall(r'"((?:edge|router)\.\w+)"', call)
