"""The expiry of new keys: what forms offer, and which of that another key has."""

from typing import Final

from console.display.language import N_
from console.display.words import time_of
from legato_protos.auth.v1 import auth_pb2

NEVER: Final = "never"
EXPIRIES: Final = {"30": N_("In 30 days"), "90": N_("In 90 days"), "365": N_("In a year"), NEVER: N_("Never")}


def days_of(expiry: str) -> int | None:
    return int(expiry) if expiry in EXPIRIES and expiry != NEVER else None


def expiry_of(key: auth_pb2.Key) -> str:
    """Returns what a key was created with."""
    if not key.HasField("expire_time"):
        return NEVER
    days = str((time_of(key.expire_time) - time_of(key.create_time)).days)
    return days if days in EXPIRIES else "90"
