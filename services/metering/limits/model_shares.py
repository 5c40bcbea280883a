"""Divides the places that a model has for concurrent chats among the routers.

Each router has a share of each limit. Its `places` are the most chats that it may be running, and their sum is never
raised above the limit. Only a router lowers what it holds, and says so with its next call
(docs/decisions/0116-shares-of-model-limits-beside-the-rate-limits.md).
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.chassis.timing.deadlines import Clock

# How long a share is kept that its router does not renew.
KEPT_S: Final = 10.0
# Routers call more often than that, unless they could not, or the clock was moved.
LONGEST_GAP_S: Final = 3.0
# Within this time, routers have called that a store does not know, because it is new or was away.
LEARNING_S: Final = 2.0
# A router may hold one place more than it wants, and this part of them, so that not every chat waits for a call.
SPARE_PART: Final = 4
# How long the same routers have the places that cannot be divided evenly.
TURN_S: Final = 60


class ShareClaim(NamedTuple):
    limit_name: str
    limit: int
    # The most chats that run until an answer allows more.
    held: int
    # The most chats that ran or waited lately.
    wanted: int


class RenewedShare(NamedTuple):
    limit_name: str
    places: int
    # All routers together want more than there is.
    is_contended: bool


class ModelShareStore(Protocol):
    async def renew(self, router_id: str, sequence: int, claims: Sequence[ShareClaim]) -> list[RenewedShare]:
        """Renews a router's shares. Refuses a call that a later one of the router has overtaken."""
        ...


class ModelShare(msgspec.Struct, frozen=True):
    """One router's part of one limit."""

    limit: int
    places: int
    wanted: int
    sequence: int
    kept_until_s: float


class ModelShares(msgspec.Struct):
    """The shares of all routers, at times of whichever clock it is given."""

    # Not all routers that hold places were known then.
    learning_since_s: float
    called_s: float
    # By limit and router.
    shares: dict[str, dict[str, ModelShare]] = {}

    @classmethod
    def starting_at(cls, now_s: float) -> "ModelShares":
        return cls(learning_since_s=now_s, called_s=now_s)

    def renew(self, router_id: str, sequence: int, claims: Sequence[ShareClaim], now_s: float) -> list[RenewedShare]:
        self._forget_lost_routers(now_s)
        return [self._renew(router_id, sequence, claim, now_s) for claim in claims]

    def _renew(self, router_id: str, sequence: int, claim: ShareClaim, now_s: float) -> RenewedShare:
        others = self.shares.setdefault(claim.limit_name, {})
        if router_id in others and sequence <= others[router_id].sequence:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("call_overtaken"), param="sequence")
        others.pop(router_id, None)
        # While the routes change, the lowest counts.
        limit = min([claim.limit, *(share.limit for share in others.values())])
        wants = {each: min(share.wanted, limit) for each, share in others.items()} | {
            router_id: min(claim.wanted, limit)
        }
        unwanted = limit - sum(wants.values())
        fair = fair_shares(limit, wants, int(now_s // TURN_S))[router_id]
        spare = min(1 + claim.wanted // SPARE_PART, max(0, unwanted) // len(wants)) if claim.wanted else 0
        free = max(0, limit - sum(share.places for share in others.values()))
        ceiling = min(fair + spare, free)
        if 0 <= now_s - self.learning_since_s < LEARNING_S:
            ceiling = min(ceiling, claim.held)
        places = max(claim.held, ceiling)
        if places or claim.wanted:
            others[router_id] = ModelShare(claim.limit, places, claim.wanted, sequence, now_s + KEPT_S)
        return RenewedShare(claim.limit_name, ceiling, unwanted < 0)

    def _forget_lost_routers(self, now_s: float) -> None:
        since_s = now_s - self.called_s
        # Time in which no router called counts for none of them.
        added_s = 0.0 if 0 <= since_s <= LONGEST_GAP_S else since_s
        self.called_s = now_s
        for limit_name, shares in list(self.shares.items()):
            kept = {
                router_id: msgspec.structs.replace(share, kept_until_s=share.kept_until_s + added_s)
                for router_id, share in shares.items()
                if share.kept_until_s + added_s > now_s
            }
            if kept:
                self.shares[limit_name] = kept
            else:
                del self.shares[limit_name]


def fair_shares(limit: int, wants: Mapping[str, int], turn: int) -> dict[str, int]:
    """Divides a limit so that no router gets more than it wants, and a smaller share is raised before a larger one.
    What cannot be divided evenly goes to others with each turn."""
    shares = {}
    order = sorted(wants, key=lambda router_id: (wants[router_id], sha256(f"{turn} {router_id}".encode()).digest()))
    for number, router_id in enumerate(order):
        shares[router_id] = min(wants[router_id], limit // (len(order) - number))
        limit -= shares[router_id]
    return shares


class LocalModelShares:
    """Keeps the shares in memory, for the routers that call this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shares = ModelShares.starting_at(clock.now().timestamp())

    async def renew(self, router_id: str, sequence: int, claims: Sequence[ShareClaim]) -> list[RenewedShare]:
        return self._shares.renew(router_id, sequence, claims, self._clock.now().timestamp())
