"""Faults of the lines between an edge and the auths while keys are revoked."""

import random
from typing import Final

from tests.support.fault_proxy import CUT, STALL, Delay, Direction, FaultProxy

NONE: Final = "none"
CUT_ONE: Final = "one line cut"
STALL_ONE: Final = "one line stalled"
DELAY: Final = "delay up to 2 s"
CUT_OFF: Final = "both lines down"
AUTH_KILLED: Final = "an auth killed"

# Of one edge. That an auth is killed happens to all edges at once.
OF_EDGES: Final = (NONE, CUT_ONE, STALL_ONE, DELAY, CUT_OFF)
FAULTS: Final = (*OF_EDGES, AUTH_KILLED)

LONGEST_DELAY_S: Final = 2.0


def begin(fault: str, lines: list[FaultProxy], dice: random.Random) -> None:
    """`lines` are those of one edge, to each auth one."""
    one = dice.choice(lines)
    if fault == CUT_ONE:
        one.set(CUT)
    elif fault == STALL_ONE:
        one.set(STALL, *_directions(dice))
    elif fault == DELAY:
        directions = _directions(dice)
        for line in lines if dice.random() < 0.7 else [one]:
            delay_s = dice.uniform(0.02, LONGEST_DELAY_S)
            line.set(Delay(delay_s, jitter_s=dice.uniform(0, LONGEST_DELAY_S - delay_s)), *directions)
    elif fault == CUT_OFF:
        for line in lines:
            line.set(dice.choice([CUT, STALL]))


def _directions(dice: random.Random) -> tuple[Direction, ...]:
    return dice.choice([("up",), ("down",), ("up", "down")])
