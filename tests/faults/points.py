"""Where something is killed: every step of the protocol, with the chats that lead there."""

from dataclasses import dataclass
from typing import Literal

from tests.faults import parts
from tests.faults.parts import Part

MIXED = (parts.STREAM, parts.STREAM, parts.WHOLE, parts.FOLDED, parts.LEAVES, parts.CUT)
FIRST_PIECES = (parts.STREAM, parts.SHORT, parts.WHOLE, parts.FOLDED, parts.LEAVES_FIRST, parts.CUT)
COMPLETE = (parts.STREAM, parts.SHORT, parts.STREAM, parts.WHOLE, parts.FOLDED, parts.SHORT)
EMPTY = (parts.REFUSED, parts.LEAVES_EARLY, parts.LEAVES_WHOLE, parts.CUT_EARLY, parts.STREAM, parts.WHOLE)
GROWING = (parts.OUTGROWS, parts.DENSE, parts.OUTGROWS, parts.DENSE, parts.STREAM, parts.WHOLE)
EVERYTHING = (parts.STREAM, parts.WHOLE, parts.FOLDED, parts.LEAVES, parts.CUT, parts.REFUSED, parts.DENSE, parts.SHORT)
SLOW = (parts.SLOW, parts.SLOW, parts.SLOW, parts.STREAM, parts.WHOLE)

# How a process comes to die: at a named place in it, by a kill from outside at any moment, or with its machine.
How = Literal["place", "any moment", "machine lost"]


@dataclass(frozen=True)
class Point:
    name: str
    # Which process dies; all edges are "edge".
    process: str
    cast: tuple[Part, ...]
    # It dies when it comes to its place for the first time, or for up to the so many-th.
    most_passes: int = 1
    how: How = "place"
    # A place on the way: a first process must die there to leave something to recover.
    after: str = ""
    # It may be between a first delivery and the mark for it.
    may_miss_mark: bool = False

    @property
    def place(self) -> str:
        """The failpoint, if there is one."""
        return "" if " " in self.name else self.name


def _edge(
    step: str, cast: tuple[Part, ...], most_passes: int, after: str = "", *, may_miss_mark: bool = False
) -> Point:
    return Point(f"edge.{step}", "edge", cast, most_passes, after=after, may_miss_mark=may_miss_mark)


def _metering(operation: str, cast: tuple[Part, ...], most_passes: int) -> list[Point]:
    steps = ("read", "written", "committed")
    return [Point(f"metering.{operation}.{step}", "metering", cast, most_passes) for step in steps]


def _swept(step: str) -> Point:
    return Point(f"metering.sweep.{step}", "metering", SLOW[:3], how="machine lost")


EDGE = [
    _edge("claimed", MIXED, 6),
    _edge("reserved", MIXED, 6),
    _edge("routed", MIXED, 6),
    _edge("extended", GROWING, 4),
    _edge("counted_first", FIRST_PIECES, 6),
    _edge("relayed_first", FIRST_PIECES, 6, may_miss_mark=True),
    _edge("marked", FIRST_PIECES, 6),
    _edge("counted", MIXED, 12),
    _edge("relayed", MIXED, 12),
    _edge("sealed", EVERYTHING, 8),
    _edge("told", COMPLETE, 6),
    _edge("settling", MIXED, 6),
    _edge("settled", MIXED, 6),
    _edge("freed", EVERYTHING, 8),
    _edge("voiding", EMPTY, 4),
    _edge("voided", EMPTY, 4),
    _edge("checkpointed", SLOW, 1),
    _edge("torn", EVERYTHING, 40, may_miss_mark=True),
    _edge("replaying", MIXED, 3, after="edge.counted"),
    _edge("replayed", MIXED, 3, after="edge.counted"),
    _edge("recovered", MIXED, 1, after="edge.counted"),
    Point("edge, at any moment", "edge", EVERYTHING, how="any moment", may_miss_mark=True),
    Point("edge and its machine", "edge", SLOW[:3], how="machine lost"),
]
METERING = [
    *_metering("reserve", MIXED, 3),
    *_metering("extend", GROWING, 3),
    *_metering("settle", MIXED, 4),
    *_metering("void", EMPTY, 3),
    *_metering("checkpoint", SLOW, 1),
    *[_swept(step) for step in ("read", "written", "committed")],
    Point("metering, at any moment", "metering", EVERYTHING, how="any moment"),
]
OTHERS = [
    Point("router.asked", "router", MIXED, 6),
    Point("router.passed_on", "router", MIXED, 10),
    Point("router.finished", "router", COMPLETE, 5),
    Point("router, at any moment", "router", EVERYTHING, how="any moment"),
    Point("auth, at any moment", "auth", EVERYTHING, how="any moment"),
]
POINTS = [*EDGE, *METERING, *OTHERS]
