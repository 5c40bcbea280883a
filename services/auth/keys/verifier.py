"""Verifies API keys and playground tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from services.auth import checks, key_format
from services.auth.parts import Domain, Parts
from services.auth.records.keys import Holder, KeyState
from services.auth.store.epochs import find_refused_keys
from services.auth.store.keys import find_holder
from services.chassis.errors import LegatoError, Reason

# One message for malformed, unknown, revoked, expired and guessed keys: it gives no hint for guessing.
REFUSAL: Final = "This API key is not valid."

SUSPENDED: Final = "This account is suspended."


@dataclass(frozen=True, slots=True)
class Verified:
    holder: Holder
    # Read together with the holder.
    epoch: int
    digest_key: bytes = field(repr=False)
    # False if another replica would answer differently, because peppers are being rotated.
    may_be_remembered: bool


class Verifier(Domain):
    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.verified = 0
        self.refused = 0

    async def verify(self, api_key: str, *, accepts_tokens: bool = False) -> Verified:
        """Verifies a key or, for callers that know what those are, a playground token."""
        try:
            verified = await self._verify(api_key, accepts_tokens=accepts_tokens)
        except LegatoError:
            self.refused += 1
            raise
        self.verified += 1
        return verified

    async def _verify(self, api_key: str, *, accepts_tokens: bool) -> Verified:
        key = key_format.parse(api_key)
        if key is None or (key.is_token and not accepts_tokens):
            raise LegatoError(Reason.KEY_INVALID, REFUSAL)
        key_id, is_token = key.key_id, key.is_token
        holder, epoch = await self._database.read(find_holder, key_id, is_token=is_token)
        is_genuine = self._peppers.recognise(key, holder.digest if holder else None)
        if holder is not None and not self._peppers.has(holder.digest.pepper_version):
            # Not the caller's fault: keys of that version are refused until its pepper is configured again.
            self._log.warning("key.pepper_missing", key_id=key_id, version=holder.digest.pepper_version)
        if holder is None or not is_genuine or holder.key.state_at(self.now_us()) is not KeyState.ACTIVE:
            raise LegatoError(Reason.KEY_INVALID, REFUSAL)
        if holder.is_suspended:
            # Checked last, so that only the key's owner learns of the suspension.
            raise LegatoError(Reason.ACCOUNT_SUSPENDED, SUSPENDED)
        may_be_remembered = self._peppers.agree_with(holder.noted_peppers, holder.digest.pepper_version)
        return Verified(holder, epoch, self._peppers.digest_key(holder.key.account_id), may_be_remembered)

    async def find_refused(self, key_ids: Sequence[str]) -> list[str]:
        """Returns those that are revoked or unknown, or whose account is suspended."""
        asked = checks.key_ids(key_ids)
        possible = [key_id for key_id in asked if checks.is_id(key_id)]
        refused = await self._database.read(find_refused_keys, possible)
        return [*refused, *(key_id for key_id in asked if not checks.is_id(key_id))]
