"""Divides the places that a model has for concurrent chats among the routers: pure functions.

Each router has a row for each limit. Its `places` are the most chats that it may be running, and their sum is never
raised above the limit. Only a router lowers what it holds, and says so with its next call
(docs/decisions/0093-one-limit-for-all-routers.md).
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from services.chassis.errors import LegatoError, Reason

# From when a router sent its call, by its own clock.
LEASE_US: Final = 5_000_000
# Routers call more often than that, unless metering was away or the clock was moved.
LONGEST_GAP_US: Final = 3_000_000
# Within this time after such a gap, all routers that live have called.
RETURN_US: Final = 15_000_000
# How long the same routers have the places that cannot be divided evenly.
TURN_US: Final = 60_000_000
# A router may hold one place more than it wants, and this share of them.
SPARE_SHARE: Final = 4


class ShareHolder(NamedTuple):
    """A router that calls."""

    holder_id: str
    # A process that began there earlier is its predecessor, and has ended.
    instance: str
    began_at_us: int
    sequence: int


class ShareClaim(NamedTuple):
    limit_name: str
    limit: int
    held: int
    wanted: int


class ModelShare(msgspec.Struct, frozen=True):
    """A router's share of a limit. Fields are the columns of the table."""

    limit_name: str
    holder_id: str
    instance: str
    began_at_us: int
    sequence: int
    # What its routes say.
    told_limit: int
    # What it may use, and what it may be using: more, until its chats have ended.
    ceiling: int
    places: int
    wanted: int
    renewed_at_us: int
    # When its places are free, if it does not call before.
    kept_until_us: int

    def is_live(self, now_us: int) -> bool:
        return now_us <= self.renewed_at_us + LEASE_US


def renew(
    rows: Sequence[ModelShare], holder: ShareHolder, claim: ShareClaim, now_us: int, kept_us: int
) -> tuple[ModelShare, list[ModelShare]]:
    """Returns the caller's share of a limit, and all of them. `rows` are those of this limit so far; `kept_us` is how
    long the places of a router that does not call are kept."""
    before = next((row for row in rows if row.holder_id == holder.holder_id), None)
    if before is not None and holder.sequence <= before.sequence:
        if holder.sequence < before.sequence:
            raise LegatoError(Reason.REQUEST_INVALID, "A later call has been answered.", param="sequence")
        return before, list(rows)
    others = [row for row in _kept(rows, holder, now_us, kept_us) if row is not before]
    live = [row for row in others if row.is_live(now_us)]
    limit = min(claim.limit, *(row.told_limit for row in live)) if live else claim.limit
    available = max(0, limit - sum(row.places for row in others if not row.is_live(now_us)))
    wants = {row.holder_id: row.wanted for row in live} | {holder.holder_id: min(claim.wanted, limit)}
    fair = fair_shares(available, wants, now_us // TURN_US)[holder.holder_id]
    free = max(0, limit - sum(row.places for row in others))
    ceiling = min(fair + _spare(available, wants, claim.wanted), free)
    places = max(claim.held, ceiling)
    own = ModelShare(
        claim.limit_name,
        *holder,
        told_limit=claim.limit,
        ceiling=ceiling,
        places=places,
        wanted=min(claim.wanted, limit),
        renewed_at_us=now_us,
        # Kept without places, too: a delayed call must not begin anew.
        kept_until_us=now_us + (kept_us if places else LEASE_US),
    )
    return own, [*others, own]


def is_contended(rows: Sequence[ModelShare], now_us: int) -> bool:
    """Returns whether routers want more than there is."""
    live = [row for row in rows if row.is_live(now_us)]
    kept = sum(row.places for row in rows if not row.is_live(now_us))
    return bool(live) and sum(row.wanted for row in live) + kept > min(row.told_limit for row in live)


def fair_shares(places: int, wants: Mapping[str, int], turn: int = 0) -> dict[str, int]:
    """Divides the places so that none gets more than it wants, and a smaller share is raised before a larger one. What
    cannot be divided evenly goes to others with each turn."""
    shares = dict.fromkeys(wants, 0)
    unmet = sorted(each for each in wants if wants[each] > 0)
    while places and unmet:
        each_gets = places // len(unmet)
        if not each_gets:
            first = turn % len(unmet)
            for each in [*unmet[first:], *unmet[:first]][:places]:
                shares[each] += 1
            break
        for each in unmet:
            added = min(each_gets, wants[each] - shares[each])
            shares[each] += added
            places -= added
        unmet = [each for each in unmet if shares[each] < wants[each]]
    return shares


def _spare(available: int, wants: Mapping[str, int], wanted: int) -> int:
    """Returns the places beyond what is wanted, so that not every chat waits for a call."""
    unwanted = max(0, available - sum(wants.values())) // len(wants)
    return min(unwanted, 1 + wanted // SPARE_SHARE) if wanted else 0


def _kept(rows: Sequence[ModelShare], holder: ShareHolder, now_us: int, kept_us: int) -> list[ModelShare]:
    """Returns the shares that still count."""
    since_us = now_us - max((row.renewed_at_us for row in rows), default=now_us)
    if not 0 <= since_us <= LONGEST_GAP_US:
        rows = [_after_gap(row, now_us, kept_us) for row in rows]
    rows = [
        msgspec.structs.replace(row, kept_until_us=min(row.kept_until_us, row.renewed_at_us + LEASE_US))
        if row.instance == holder.instance and row.began_at_us < holder.began_at_us
        else row
        for row in rows
    ]
    return [row for row in rows if row.kept_until_us > now_us and row.holder_id != holder.holder_id]


def _after_gap(row: ModelShare, now_us: int, kept_us: int) -> ModelShare:
    """Returns a share that its router could not renew, or whose times are of a clock that was moved."""
    return msgspec.structs.replace(
        row,
        renewed_at_us=min(row.renewed_at_us, now_us),
        kept_until_us=min(max(row.kept_until_us, now_us + RETURN_US), now_us + max(kept_us, RETURN_US)),
    )
