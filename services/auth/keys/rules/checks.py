"""Validates what requests say of keys and of those who call with them: the checks of all requests are in
services/auth/core/checks.py."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from services.auth.core.checks import refusal
from services.auth.core.records.accounts import ClassAllowance
from services.auth.core.times import to_micros
from services.auth.keys.records import KeySpendLimits, Scope
from services.chassis.money import LARGEST_BOOKING_NANOS
from services.chassis.sentence import Sentence

EXPIRY_DAYS: Final = (30, 90, 365)
KEYS_AT_ONCE_MOST: Final = 1_000
LONGEST_SEARCH: Final = 100
UNUSED_DAYS_MOST: Final = 36_500

_CALLER: Final = re.compile("[a-z0-9][a-z0-9.-]{0,99}")


def caller_name(given: str) -> str:
    if not is_caller_name(given):
        raise refusal("caller", Sentence("caller_name_invalid"))
    return given


def is_caller_name(given: str) -> bool:
    return _CALLER.fullmatch(given) is not None


def require_classes_within(of_key: ClassAllowance, of_account: ClassAllowance) -> None:
    """Raises if a key would be given a class that its account may not use."""
    beyond = [class_id for class_id in of_key.class_ids or () if class_id not in of_account]
    if beyond:
        raise refusal("allowed_classes", Sentence("classes_beyond_account", classes=", ".join(beyond)))


def scopes(given: Iterable[Scope | None]) -> tuple[Scope, ...]:
    """Validates scopes; None stands for an unknown one. It is refused: dropping it might leave none, which means
    all."""
    kept = set(given)
    if None in kept:
        raise refusal("scopes", Sentence("scope_unknown", scopes=", ".join(Scope)))
    return tuple(scope for scope in Scope if scope in kept)


def expires_at_us(created: datetime, after_days: int | None) -> int | None:
    if after_days is None:
        return None
    if after_days not in EXPIRY_DAYS:
        raise refusal("expires_after_days", Sentence("key_expiry_days", days=", ".join(map(str, EXPIRY_DAYS))))
    return to_micros(created + timedelta(days=after_days))


def unused_for_days(given: int) -> int:
    if not 0 <= given <= UNUSED_DAYS_MOST:
        raise refusal("unused_for_days", Sentence("unused_days_range", most=UNUSED_DAYS_MOST))
    return given


def search(given: str) -> str:
    if len(given) > LONGEST_SEARCH:
        raise refusal("search", Sentence("key_search_too_long", most=LONGEST_SEARCH))
    return given


def key_ids(given: Sequence[str], param: str = "key_ids") -> list[str]:
    if len(given) > KEYS_AT_ONCE_MOST:
        raise refusal(param, Sentence("keys_looked_up_most", most=KEYS_AT_ONCE_MOST))
    return list(dict.fromkeys(given))


def spend_limits(given: Mapping[str, int]) -> KeySpendLimits:
    """Validates spend limits; those that are not given are unlimited."""
    for name, nanos in given.items():
        if not 0 <= nanos <= LARGEST_BOOKING_NANOS:
            raise refusal(f"spend_limits.{name}", Sentence("spend_limit_range"))
    return KeySpendLimits(**given)
