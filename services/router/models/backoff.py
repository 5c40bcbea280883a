"""Tracks the `retry-after` of a model's server: for the key that met it, and for all keys once the server refuses
several accounts in a row.

A refusal may concern only the prompts of one customer, and a `retry-after` is a guess, and sometimes wrong. So while it
lasts, chats that no other model takes are let through: as many as were running when the server refused one more, and
probes beyond that, the fewer the more refusals come in a row. The first chat that is accepted ends the backoff.

Pure except for the clock: no task, no timer, no lock. Used by a single event loop.
"""

import math
from typing import Final

from services.chassis.timing.deadlines import Clock

LONGEST_BACKOFF_S: Final = 60.0
# A server refuses immediately, so a probe that is not refused for this long was accepted, even if its answer takes much
# longer.
ACCEPTED_AFTER_S: Final = 1.0
# Refusals of fewer accounts may be due to what these send.
SEVERAL_ACCOUNTS: Final = 3
# Simultaneous probes after a single refusal; each further one halves them.
MOST_PROBES: Final = 128
LEAST_PROBES: Final = 2
# More accounts than this lower the number of probes no further.
_MOST_ACCOUNTS: Final = 8


class Backoff:
    """One backoff: of a key, or of all keys."""

    __slots__ = ("_accepted", "_clock", "_most_probes", "_probes", "_until_s", "refusals")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s = -math.inf
        # How many chats were running when one more was refused.
        self._accepted = 0
        # When those without an outcome were sent, oldest first.
        self._probes: dict[object, float] = {}
        self._most_probes = MOST_PROBES
        # Since a chat was last accepted.
        self.refusals = 0

    @property
    def left_s(self) -> float:
        """Remaining time of the backoff, in seconds."""
        now_s = self._clock.elapsed_s()
        if self._probes and now_s - next(iter(self._probes.values())) >= ACCEPTED_AFTER_S:
            self.end()
        return max(0.0, self._until_s - now_s)

    def refused(self, retry_after_s: float, running: int, in_a_row: int) -> None:
        """Records a refusal, the last of so many in a row; `running` counts the other chats."""
        self._accepted = min(self._accepted, running) if self.left_s else running
        self._until_s = max(self._until_s, self._clock.elapsed_s() + min(retry_after_s, LONGEST_BACKOFF_S))
        self._most_probes = max(LEAST_PROBES, MOST_PROBES >> (in_a_row - 1))
        self.refusals += 1

    def has_room(self, running: int) -> bool:
        return not self.left_s or running < self._accepted or len(self._probes) < self._most_probes

    def send(self, running: int, probe: object) -> bool:
        """Records a chat being sent, after `has_room`. Returns whether it is a probe."""
        if not self.left_s or running < self._accepted:
            return False
        self._probes[probe] = self._clock.elapsed_s()
        return True

    def over(self, probe: object) -> None:
        """Clears a probe, whatever its outcome, so that another chat may probe."""
        self._probes.pop(probe, None)

    def end(self) -> None:
        self._until_s = -math.inf
        self.refusals = 0
        self._probes.clear()


class ModelBackoff:
    """The backoffs of one model."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The key refused longest ago comes first. Empty unless the server has refused a chat.
        self._by_key: dict[str, Backoff] = {}
        self._for_all = Backoff(clock)
        # Accounts refused since a chat was last accepted, with the end of the time that the server asked for.
        self._refused_accounts: dict[str, float] = {}

    def left_s(self, key_id: str) -> float:
        """Remaining time for chats of this key, in seconds."""
        if not self._by_key:
            return 0.0
        own = self._by_key.get(key_id)
        return max(self._for_all.left_s, 0.0 if own is None else own.left_s)

    @property
    def is_on(self) -> bool:
        """Returns whether the server has refused a chat lately."""
        return bool(self._by_key)

    def refusals(self, key_id: str) -> int:
        """Returns how many refusals concern this key: each further one raises it."""
        own = self._by_key.get(key_id)
        return self._for_all.refusals + (0 if own is None else own.refusals)

    def refused(self, retry_after_s: float, key_id: str, account_id: str, running: int, running_of_key: int) -> None:
        """Records that the server refused a chat of this key; `running` counts the others."""
        own = self._by_key.pop(key_id, None)
        if own is None or not own.left_s:
            own = Backoff(self._clock)
        self._forget_expired()
        self._by_key[key_id] = own
        own.refused(retry_after_s, running_of_key, own.refusals + 1)
        accounts = self._refused_accounts
        if len(accounts) >= SEVERAL_ACCOUNTS and not self._for_all.left_s:
            accounts.clear()
        now_s = self._clock.elapsed_s()
        accounts[account_id] = now_s + min(retry_after_s, LONGEST_BACKOFF_S)
        for expired in [account for account, until_s in accounts.items() if until_s <= now_s]:
            del accounts[expired]
        if len(accounts) > _MOST_ACCOUNTS:
            del accounts[next(iter(accounts))]
        if len(accounts) >= SEVERAL_ACCOUNTS:
            self._for_all.refused(retry_after_s, running, len(accounts))

    def has_room(self, key_id: str, running: int, running_of_key: int) -> bool:
        if not self._by_key:
            return True
        own = self._by_key.get(key_id)
        return (own is None or own.has_room(running_of_key)) and self._for_all.has_room(running)

    def send(self, key_id: str, running: int, running_of_key: int) -> object | None:
        """Records a chat being sent, after `has_room`; `running` counts the others. Returns what identifies it if it
        is a probe."""
        if not self._by_key:
            return None
        probe = object()
        own = self._by_key.get(key_id)
        is_probe = own is not None and own.send(running_of_key, probe)
        return probe if self._for_all.send(running, probe) or is_probe else None

    def accepted(self, key_id: str) -> None:
        """Ends the backoff of this key, and that of all keys."""
        if not self._by_key:
            return
        self._by_key.pop(key_id, None)
        self._refused_accounts.clear()
        self._for_all.end()

    def over(self, key_id: str, probe: object) -> None:
        """Clears a probe, whatever its outcome."""
        self._for_all.over(probe)
        if key_id in self._by_key:
            self._by_key[key_id].over(probe)

    def _forget_expired(self) -> None:
        while self._by_key:
            key_id = next(iter(self._by_key))
            if self._by_key[key_id].left_s:
                return
            del self._by_key[key_id]
