"""Lists the models of a class that a chat may be sent to, in the order in which they are tried.

Within a tier of several members, the turns of a conversation prefer the same one, whose prompt cache knows it. A
weighted rendezvous hash chooses it: each member is preferred by its share of the conversations, and one that comes or
goes moves only its own share. A chat whose preferred member is full, failing or slow to begin goes to the least loaded.
"""

import hashlib
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from services.router.models.circuit_breaker import BreakerState
from services.router.models.states import ClassModels, ModelState, WeightedModel

_HASH_BYTES: Final = 8
_HASHES: Final = float(1 << 8 * _HASH_BYTES)


def in_turn(models: ClassModels, key_id: str, conversation: bytes = b"") -> Iterator[ModelState]:
    """Yields the models tier by tier, but those in backoff later and those with an open circuit breaker last. These are
    tried only if no other model answered: a recent refusal is no reason to refuse a chat that no other model takes."""
    left_alone, failing = [], []
    for tier in models.tiers:
        for model_state in _members_in_turn(tier, key_id, conversation) if len(tier) > 1 else (tier[0].model_state,):
            if not model_state.breaker.may_be_asked():
                failing.append(model_state)
            elif model_state.saturation.backoff.left_s(key_id):
                left_alone.append(model_state)
            else:
                yield model_state
    yield from left_alone
    yield from failing


def continuing(candidates: Iterable[ModelState], cut: ModelState) -> Iterator[ModelState]:
    """Yields those that can continue the answer of a model that was cut; that model itself last, if it is healthy."""
    is_candidate = False
    for model_state in candidates:
        if model_state is cut:
            is_candidate = True
        elif model_state.target.continues is not None:
            yield model_state
    if is_candidate and cut.target.continues is not None and cut.breaker.state is BreakerState.CLOSED:
        yield cut


def _members_in_turn(tier: Sequence[WeightedModel], key_id: str, conversation: bytes) -> Iterator[ModelState]:
    """Yields the members of a tier as the conversation prefers them; from the first that takes no chats now, the least
    loaded before the others."""
    left = sorted(tier, key=lambda member: _distance(member, conversation))
    if not _hesitation(left[0], tier, key_id):
        yield left.pop(0).model_state
    while left:
        # Of equal ones the first, which the conversation prefers.
        chosen = min(left, key=lambda member: (_hesitation(member, tier, key_id), _load(member)))
        left.remove(chosen)
        yield chosen.model_state


def _distance(member: WeightedModel, conversation: bytes) -> float:
    """Returns an exponentially distributed number, the same on every router. That a member's is the lowest of its tier
    has the probability of its share of the weights."""
    target = member.model_state.target
    name = f"{target.provider}\n{target.model_name}".encode()
    hashed = hashlib.blake2b(name, key=conversation, digest_size=_HASH_BYTES).digest()
    return -math.log((int.from_bytes(hashed) + 1) / _HASHES) / member.weight


def _load(member: WeightedModel) -> float:
    return member.model_state.saturation.gate.running / member.weight


def _hesitation(member: WeightedModel, tier: Sequence[WeightedModel], key_id: str) -> int:
    """Returns 0 for a model that should answer soon, and more the less that is so."""
    saturation, breaker = member.model_state.saturation, member.model_state.breaker
    if not breaker.may_be_asked() or saturation.backoff.left_s(key_id):
        return 3
    if not saturation.has_room_for(key_id):
        return 2
    return 1 if breaker.is_slow_to_begin(partial(_peers_latency_s, member, tier)) else 0


def _peers_latency_s(member: WeightedModel, tier: Sequence[WeightedModel]) -> float | None:
    """Returns the usual time to the first piece of the other members of a tier."""
    medians_s = [peer.model_state.breaker.median_latency_s for peer in tier if peer is not member]
    known_s = [median_s for median_s in medians_s if median_s is not None]
    return statistics.median(known_s) if known_s else None
