"""The parts of the edge that reports read: metering's books, and the names of internal programs."""

from dataclasses import fields
from typing import Any

from edge.chat.edge_state import EdgeState
from tests.edge.metering_harness import ANN
from tests.support.fakes import FakeClock

CLOCK = FakeClock()


class Callers:
    """Principals with two keys of one internal program, and one of another."""

    async def list_callers(self, account_id: str) -> dict[str, str]:
        assert account_id == ANN.account_id
        return {"key_r1": "reports", "key_r2": "reports", "key_s": "search"}


def edge_with(books: Any) -> EdgeState:
    parts: dict[str, Any] = dict.fromkeys(field.name for field in fields(EdgeState))
    return EdgeState(**(parts | {"metering": books, "principals": Callers(), "clock": CLOCK}))
