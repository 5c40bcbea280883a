"""Rate limits of keys and accounts: the form that sets them, and which one a key has."""

from dataclasses import dataclass
from typing import Final

from console.web.forms import Rules
from legato_protos.auth.v1 import auth_pb2

LIMITS: Final = {
    "requests_per_minute": "Requests per minute",
    "tokens_per_minute": "Tokens per minute",
    "concurrent_requests": "Requests at once",
}


@dataclass(frozen=True, slots=True)
class LimitInEffect:
    """A limit in effect, and who set it."""

    name: str
    title: str
    # The key's own; None: it has none.
    own: int | None
    words: str
    source: str


def limit_in_effect(name: str, key: auth_pb2.Key, account: auth_pb2.Account) -> LimitInEffect:
    own = getattr(key, name) if key.HasField(name) else None  # type: ignore[arg-type]
    if own is not None:
        return LimitInEffect(name, LIMITS[name], own, f"{own:,}", "Set on this key")
    if account.HasField(name):  # type: ignore[arg-type]
        return LimitInEffect(name, LIMITS[name], None, f"{getattr(account, name):,}", "The account's limit")
    return LimitInEffect(name, LIMITS[name], None, "Default", "The service's default")


def limits_in(rules: Rules) -> dict[str, int]:
    """Reads the limits of a form; 0 for an empty field."""
    return {name: rules.parse(_parse, name, "A whole number, or nothing.", 0) for name in LIMITS}


def _parse(given: str) -> int:
    digits = given.replace(",", "").replace(" ", "")
    if not digits.isdecimal() or len(digits) > 9:
        raise ValueError
    return int(digits)
