"""Answers whose key this is."""

from dataclasses import dataclass, field
from typing import Final

from services.auth import keys, store
from services.auth.records import Holder, KeyState, to_micros
from services.chassis.clock import Clock
from services.chassis.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.log import Log

# One message for keys that are malformed, unknown, revoked, expired or guessed: the answer helps nobody to guess.
REFUSAL: Final = "This API key is not valid."


@dataclass(frozen=True, slots=True)
class Verified:
    holder: Holder
    # Read together with the holder.
    epoch: int
    digest_key: bytes = field(repr=False)


class Verifier:
    def __init__(self, database: Database, peppers: keys.Peppers, clock: Clock, log: Log) -> None:
        self._database = database
        self._peppers = peppers
        self._clock = clock
        self._log = log

    async def verify(self, api_key: str) -> Verified:
        key = keys.parse(api_key)
        if key is None:
            raise LegatoError(Reason.KEY_INVALID, REFUSAL)
        key_id = key.key_id
        holder, epoch = await self._database.read(lambda connection: store.find_holder(connection, key_id))
        is_genuine = self._peppers.recognise(key, holder.digest if holder else None)
        if holder is not None and not self._peppers.has(holder.digest.pepper_version):
            # Not the caller's fault: every key of that version is refused until its pepper is in the settings again.
            self._log.warning("key.pepper_missing", key_id=key_id, version=holder.digest.pepper_version)
        if holder is None or not is_genuine or self._state(holder) is not KeyState.ACTIVE:
            raise LegatoError(Reason.KEY_INVALID, REFUSAL)
        return Verified(holder, epoch, self._peppers.digest_key(holder.key.account_id))

    def _state(self, holder: Holder) -> KeyState:
        return holder.key.state_at(to_micros(self._clock.now()))
