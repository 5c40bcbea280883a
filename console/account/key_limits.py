"""Rate limits of keys and accounts: the form that sets them, and which one a key has."""

from dataclasses import dataclass
from typing import Final

from console.display import words
from console.display.language import N_, _
from console.web.forms import Rules
from legato_protos.auth.v1 import auth_pb2

LIMITS: Final = {
    "requests_per_minute": N_("Requests per minute"),
    "tokens_per_minute": N_("Tokens per minute"),
    "concurrent_requests": N_("Requests at once"),
}


@dataclass(frozen=True, slots=True)
class KeyLimit:
    """One limit of a key: its own, or else the account's, or else the service's. None: there is none."""

    name: str
    own: int | None
    of_account: int | None
    of_service: int | None
    # An earlier version of auth does not tell the service's.
    is_known: bool

    @property
    def title(self) -> str:
        return _(LIMITS[self.name])

    @property
    def words(self) -> str:
        return self._inherited if self.own is None else words.number(self.own)

    @property
    def source(self) -> str:
        if self.own is not None:
            return _("Set on this key")
        return _("The service's default") if self.of_account is None else _("The account's limit")

    @property
    def hint(self) -> str:
        """Says what an empty field means."""
        if self.of_account is None and self.of_service is None and self.is_known:
            return _("Empty: unlimited (the service's default).")
        if self.of_account is not None:
            return _("Empty: %(limit)s (the account's limit).", limit=self._inherited)
        return _("Empty: %(limit)s (the service's default).", limit=self._inherited)

    @property
    def _inherited(self) -> str:
        number = self.of_service if self.of_account is None else self.of_account
        if number is not None:
            return words.number(number)
        return _("Unlimited") if self.is_known else _("Not known")


def limits_of(key: auth_pb2.Key, account: auth_pb2.Account) -> list[KeyLimit]:
    """Returns what limits a key, or with an empty key what limits a new one."""
    is_known = account.HasField("default_limits")
    service = account.default_limits
    return [
        KeyLimit(name, _limit_of(key, name), _limit_of(account, name), _limit_of(service, name), is_known)
        for name in LIMITS
    ]


def _limit_of(owner: auth_pb2.Key | auth_pb2.Account | auth_pb2.RateLimits, name: str) -> int | None:
    return getattr(owner, name) if owner.HasField(name) else None  # type: ignore[arg-type]


def limits_in(rules: Rules) -> dict[str, int]:
    """Reads the limits of a form; 0 for an empty field."""
    return {name: rules.parse(_parse, name, _("A whole number, or nothing."), 0) for name in LIMITS}


def _parse(given: str) -> int:
    # Numbers are grouped by commas, or by spaces of some kind.
    digits = "".join(given.replace(",", " ").split())
    if not digits.isdecimal() or len(digits) > 9:
        raise ValueError
    return int(digits)
