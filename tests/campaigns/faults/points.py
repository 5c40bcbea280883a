"""Kill points: every step of the protocol, with the chats that lead there."""

from dataclasses import dataclass, replace
from typing import Literal

from tests.campaigns.faults.harnesses import parts
from tests.campaigns.faults.harnesses.parts import Part

MIXED = (parts.STREAM, parts.STREAM, parts.WHOLE, parts.FOLDED, parts.LEAVES, parts.CUT)
FIRST_PIECES = (parts.STREAM, parts.SHORT, parts.WHOLE, parts.FOLDED, parts.LEAVES_FIRST, parts.CUT)
COMPLETE = (parts.STREAM, parts.SHORT, parts.STREAM, parts.WHOLE, parts.FOLDED, parts.SHORT)
EMPTY = (parts.REFUSED, parts.LEAVES_EARLY, parts.LEAVES_WHOLE, parts.CUT_EARLY, parts.STREAM, parts.WHOLE)
GROWING = (parts.OUTGROWS, parts.DENSE, parts.OUTGROWS, parts.DENSE, parts.STREAM, parts.WHOLE)
EVERYTHING = (parts.STREAM, parts.WHOLE, parts.FOLDED, parts.LEAVES, parts.CUT, parts.REFUSED, parts.DENSE, parts.SHORT)
CHECKED = (parts.SLOW, parts.SLOW, parts.SLOW, parts.STREAM, parts.WHOLE)
SLOW = (parts.SLOW, parts.SLOW, parts.SLOW)
PAID = (parts.STEADY, parts.STEADY, parts.STREAM, parts.WHOLE)
OWING = (parts.STEADY, parts.STEADY, parts.STEADY, parts.LEAVES, parts.WHOLE)
MONTHLY = (parts.STEADY, parts.STEADY, parts.STREAM, parts.WHOLE, parts.LEAVES, parts.OUTGROWS)
LIMITED = (parts.STREAM, parts.OUTGROWS, parts.WHOLE, parts.FOLDED, parts.OUTGROWS, parts.SHORT)

How = Literal[
    # It comes to a named place in its code.
    "place",
    # It is killed from outside, at any moment.
    "any moment",
    # An edge is killed, and its journal is gone too; or it is one from before, as after a reboot.
    "machine lost",
    "machine rebooted",
    # It stands still until its holds were given up, and then goes on, or is killed.
    "frozen",
    "frozen and killed",
    # It stands still for some seconds.
    "paused",
    # Everybody lives.
    "none dies",
]


@dataclass(frozen=True)
class Point:
    name: str
    # Which process dies: all edges are "edge", and "everything" is all at once.
    process: str
    cast: tuple[Part, ...]
    how: How
    # The failpoint. The process dies when it comes there for the first time, or for up to the so many-th.
    place: str = ""
    most_passes: int = 1
    # A failpoint on the way: an edge must die there first, so that another has something to recover.
    after: str = ""
    # It may be between a first delivery and the mark for it.
    may_miss_mark: bool = False
    # Every request has an Idempotency-Key, and comes once more when everything is back.
    repeats: bool = False
    # Spend limits leave the chats a part of what they cost, or a little more.
    limited: bool = False
    # Cards are charged and refunded meanwhile, and events come as Stripe sends them.
    paid: bool = False
    # One of the payments is disputed, with more than the account has, and the dispute is won later.
    owes: bool = False
    # A month ends meanwhile: it is closed, and an older one is pruned.
    month_ends: bool = False

    @property
    def loses_journal(self) -> bool:
        return self.how in ("machine lost", "machine rebooted")

    @property
    def waits_for_sweep(self) -> bool:
        """Only where holds are given up after seconds."""
        return self.loses_journal or self.how in ("frozen", "frozen and killed")

    @property
    def is_slow(self) -> bool:
        return self.how == "paused" or parts.SLOW in self.cast


def _edge(
    step: str, cast: tuple[Part, ...], most_passes: int, after: str = "", *, may_miss_mark: bool = False
) -> Point:
    name = f"edge.{step}"
    return Point(name, "edge", cast, "place", name, most_passes, after, may_miss_mark)


def _metering(operation: str, cast: tuple[Part, ...], most_passes: int) -> list[Point]:
    names = [f"metering.{operation}.{step}" for step in ("read", "written", "committed")]
    return [Point(name, "metering", cast, "place", name, most_passes) for name in names]


def _recovering(place: str, cast: tuple[Part, ...]) -> Point:
    return Point(f"{place}, edge recovers", "metering", cast, "place", place, after="edge.counted")


def _swept(step: str) -> Point:
    name = f"metering.sweep.{step}"
    return Point(name, "metering", SLOW, "machine lost", name)


def _repeated(point: Point) -> Point:
    return replace(point, name=f"{point.name}, repeated", repeats=True)


def _limited(point: Point) -> Point:
    return replace(point, name=f"{point.name}, at a spend limit", limited=True)


def _retaining(step: str) -> Point:
    name = f"metering.{step}"
    return Point(name, "metering", MONTHLY, "place", name, paid=True, month_ends=True)


def _booking(operation: str, most_passes: int) -> list[Point]:
    return [replace(point, paid=True) for point in _metering(operation, PAID, most_passes)]


def _owing(point: Point) -> Point:
    return replace(point, name=f"{point.name}, credit is owed", cast=OWING, paid=True, owes=True)


def _at_the_end_of_a_month(point: Point) -> Point:
    return replace(point, name=f"{point.name}, a month ends", cast=MONTHLY, paid=True, month_ends=True)


def _at_any_moment(process: str) -> Point:
    may_miss_mark = process in ("edge", "everything")
    return Point(f"{process}, at any moment", process, EVERYTHING, "any moment", may_miss_mark=may_miss_mark)


POINTS = [
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
    _edge("checkpointed", CHECKED, 1),
    _edge("torn", EVERYTHING, 40, may_miss_mark=True),
    _edge("replaying", MIXED, 3, after="edge.counted"),
    _edge("replayed", MIXED, 3, after="edge.counted"),
    _edge("recovered", MIXED, 1, after="edge.counted"),
    *_metering("reserve", MIXED, 2),
    *_metering("extend", GROWING, 3),
    *_metering("settle", MIXED, 3),
    *_metering("void", EMPTY, 2),
    *_metering("checkpoint", CHECKED, 1),
    *[_swept(step) for step in ("read", "written", "committed")],
    _recovering("metering.settle.read", MIXED),
    _recovering("metering.settle.written", MIXED),
    _recovering("metering.settle.committed", MIXED),
    Point("router.asked", "router", MIXED, "place", "router.asked", 6),
    Point("router.passed_on", "router", MIXED, "place", "router.passed_on", 10),
    Point("router.finished", "router", COMPLETE, "place", "router.finished", 5),
    *[_at_any_moment(process) for process in ("edge", "metering", "router", "auth", "everything")],
    Point("edge, machine lost", "edge", SLOW, "machine lost"),
    Point("edge, machine rebooted", "edge", SLOW, "machine rebooted"),
    Point("edge, frozen for long", "edge", SLOW, "frozen"),
    Point("edge, frozen and killed", "edge", SLOW, "frozen and killed"),
    Point("metering, frozen for 3 s", "metering", EVERYTHING, "paused"),
    _repeated(_edge("reserved", MIXED, 6)),
    _repeated(_edge("relayed_first", FIRST_PIECES, 6, may_miss_mark=True)),
    _repeated(_edge("sealed", EVERYTHING, 8)),
    _repeated(_metering("reserve", MIXED, 2)[-1]),
    _repeated(_metering("settle", MIXED, 3)[-1]),
    _repeated(_at_any_moment("everything")),
    _limited(_edge("extended", LIMITED, 2)),
    _limited(_edge("counted", LIMITED, 12)),
    _limited(_edge("sealed", LIMITED, 4)),
    _limited(_metering("reserve", LIMITED, 2)[-1]),
    *[_limited(point) for point in _metering("extend", LIMITED, 2)[1:]],
    *[_limited(point) for point in _metering("settle", LIMITED, 3)],
    _limited(Point("edge, machine lost", "edge", SLOW, "machine lost")),
    _limited(Point("edge, frozen for long", "edge", SLOW, "frozen")),
    _limited(Point("everything, at any moment", "everything", LIMITED, "any moment", may_miss_mark=True)),
    *[_retaining(f"closing.{step}") for step in ("begun", "drafted", "closed")],
    *[_retaining(f"pruning.{step}") for step in ("archived", "marked", "deleted", "summed", "holds")],
    *[_at_the_end_of_a_month(_at_any_moment(process)) for process in ("metering", "everything")],
    *_booking("grant", 2),
    *_booking("returnpayment", 2),
    *_booking("restorepayment", 1),
    *[_owing(point) for point in _metering("settle", OWING, 3)],
    *[_owing(point) for point in _metering("returnpayment", OWING, 3)[1:]],
    *[_owing(point) for point in _metering("restorepayment", OWING, 3)[1:]],
    _owing(_at_any_moment("everything")),
    Point("payments.booked", "payments", PAID, "place", "payments.booked", 8, paid=True),
    Point("payments, at any moment", "payments", PAID, "any moment", paid=True),
]
