"""The rule for how long a session lives."""

from typing import Final

from services.auth.core.records.users import User, UserSession
from services.auth.core.times import DAY_US, HOUR_US
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

IDLE_US: Final = 12 * HOUR_US
LIFE_US: Final = 14 * DAY_US
OPERATOR_IDLE_US: Final = HOUR_US
OPERATOR_LIFE_US: Final = 12 * HOUR_US


def session_ended() -> LegatoError:
    return LegatoError(Reason.SESSION_ENDED, Sentence("session_ended"))


def expires_at_us(session: UserSession, user: User) -> int:
    """Returns when a session ends, however much it is used."""
    return session.created_at_us + (OPERATOR_LIFE_US if user.is_operator else LIFE_US)


def is_live(session: UserSession, user: User | None, now_us: int) -> bool:
    if user is None or user.disabled_at_us is not None:
        return False
    idle_us = OPERATOR_IDLE_US if user.is_operator else IDLE_US
    return now_us < min(expires_at_us(session, user), session.last_seen_us + idle_us)
