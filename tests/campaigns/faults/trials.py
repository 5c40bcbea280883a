"""The point where each seeded mistake must show: rounds are played there until the books say so."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.campaigns.faults.campaign import SHORT_LIVES
from tests.campaigns.faults.client import Provider
from tests.campaigns.faults.directed import SCENARIOS
from tests.campaigns.faults.harnesses import parts
from tests.campaigns.faults.harnesses.forked_harness import ForkedHarness
from tests.campaigns.faults.harnesses.parts import Part
from tests.campaigns.faults.harnesses.zygote import Forks
from tests.campaigns.faults.points import POINTS, Point
from tests.campaigns.faults.round import CREDIT_NANOS, Stage
from tests.support.waiting import WAIT_TIMEOUT_S

MOST_ROUNDS: Final = 40
# Without the mistake the same must be silent for so many rounds.
SILENT_ROUNDS: Final = 3
# With the mistake, what is stuck is waited for no longer. Without it, a busy machine is no reason for an alarm.
SHORT_TIMEOUT_S: Final = 4.0

_LONG = Part("long stream", pieces=60, pause_s=0.1)


@dataclass(frozen=True)
class Trial:
    bug: str
    points: tuple[Point, ...]
    edges: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    misfortunes: tuple[str, ...] = ()
    credit_nanos: int = CREDIT_NANOS
    has_months: bool = False


@dataclass(frozen=True)
class Result:
    bug: str
    # How the mistake showed; empty if it did not.
    caught: str
    # What was seen without it: it should be nothing.
    false_alarm: str

    @property
    def is_good(self) -> bool:
        return bool(self.caught) and not self.false_alarm


def _at(*names: str) -> tuple[Point, ...]:
    return tuple(point for point in POINTS if point.name in names)


def _none_dies(*cast: Part) -> tuple[Point, ...]:
    return (Point("none dies", "", cast, "none dies"),)


TRIALS: Final = [
    Trial("settle before journal", _at("edge.told", "edge.settling")),
    Trial("journal after relay", _at("edge.relayed")),
    Trial("void when settle is unanswered", _at("metering.settle.read", "metering.settle.written")),
    Trial("void when the stream broke", _at("router.passed_on")),
    Trial("slot freed before ack", _at("edge.settling")),
    Trial("deadline shorter than stream life", _none_dies(parts.SLOW, parts.SLOW), settings=SHORT_LIVES),
    Trial(
        "life counted from the reserve reply",
        _none_dies(_LONG, _LONG),
        settings={**SHORT_LIVES, "LEGATO_HOLD_GRACE_S": "1"},
        misfortunes=("reserve is answered late",),
    ),
    Trial("slot reuse, write number restarts", _at("edge.reserved", "edge.counted", "edge.relayed")),
    Trial("slot written after reserve", _at("edge.reserved", "edge.routed")),
    Trial(
        "relay while extend is under way",
        _none_dies(parts.OUTGROWS, parts.OUTGROWS),
        misfortunes=("a router that never asks for more",),
        # For the prompt and some 2,500 tokens: three of six pieces.
        credit_nanos=550_000,
    ),
    Trial("one journal copy", _at("edge.torn")),
    Trial("two processes on one journal", _at("edge.counted", "edge.relayed"), edges=2),
    Trial("old journal pages after a reboot", _at("edge, machine rebooted"), settings=SHORT_LIVES),
    Trial("settle beyond a spend limit", _at("metering.settle.read, at a spend limit")),
    Trial("limit that counts what was released", _at("edge.sealed, at a spend limit")),
    Trial("payment booked under a new id", _at("payments.booked"), has_months=True),
    Trial("credit that pays nothing owed", _at("metering.settle.read, credit is owed"), has_months=True),
    Trial("ids of pruned credits forgotten", _at("metering.pruning.marked"), has_months=True),
    Trial("entries deleted before they are archived", _at("metering.pruning.deleted"), has_months=True),
]


async def try_out(forks: Forks, trial: Trial, dice: random.Random, silent_rounds: int = SILENT_ROUNDS) -> Result:
    false_alarm = await play(forks, trial, trial.misfortunes, silent_rounds, WAIT_TIMEOUT_S, dice)
    caught = await play(forks, trial, (*trial.misfortunes, trial.bug), MOST_ROUNDS, SHORT_TIMEOUT_S, dice)
    return Result(trial.bug, caught, false_alarm)


async def play(
    forks: Forks, trial: Trial, changes: tuple[str, ...], rounds: int, timeout_s: float, dice: random.Random
) -> str:
    """The first violation, if there is one."""
    async with Provider() as provider:
        harness = ForkedHarness(
            forks,
            provider,
            edges=trial.edges,
            settings=trial.settings,
            changes=changes,
            has_months=trial.has_months,
        )
        try:
            await harness.start()
            stage = await Stage.prepare(harness, trial.credit_nanos, timeout_s)
            for number in range(1, rounds + 1):
                outcome = await stage.play(trial.points[number % len(trial.points)], dice.getrandbits(32))
                for violation in outcome.violations:
                    return f"{violation.kind} at {outcome.point.name}, round {number}: {violation.what}"
                if trial.credit_nanos != CREDIT_NANOS:
                    stage = await Stage.prepare(harness, trial.credit_nanos, timeout_s)
        finally:
            await harness.stop()
    return ""


async def try_directed(bug: str) -> Result:
    """Mistakes that no kill brings to light: here the story is told step by step."""
    scenario = SCENARIOS[bug]
    return Result(bug, await scenario(with_bug=True), await scenario(with_bug=False))
