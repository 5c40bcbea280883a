"""Verifies API keys, playground tokens, and internal programs that call for an account."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Final

from services.auth.core import checks, key_format
from services.auth.core.parts import Domain, Parts, reads
from services.auth.core.store import Connection
from services.auth.keys.records import Holder, KeyState
from services.auth.keys.rules import checks as key_checks
from services.auth.keys.rules.callers import make_key, not_granted, require_grant
from services.auth.keys.store.epochs import find_refused_keys
from services.auth.keys.store.keys import find_holder, find_holder_of_caller
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

# One message for malformed, unknown, revoked, expired and guessed keys: it gives no hint for guessing.
REFUSAL: Final = Sentence("key_invalid")

SUSPENDED: Final = Sentence("account_suspended")


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
        return await self._counted(self._verify(api_key, accepts_tokens=accepts_tokens))

    async def verify_caller(self, caller: str, account_id: str) -> Verified:
        """Verifies that a program may call for an account. At its first call, this makes the key that it is counted
        under."""
        return await self._counted(self._verify_caller(caller, account_id))

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
        return self._verified(holder, epoch)

    async def _verify_caller(self, caller: str, account_id: str) -> Verified:
        holder, epoch = await self._find_caller(caller, account_id)
        if holder is None:
            await self._database.write(make_key, caller, account_id, self.now_us())
            holder, epoch = await self._find_caller(caller, account_id)
        if holder is None or holder.key.state_at(self.now_us()) is not KeyState.ACTIVE:
            raise not_granted()
        return self._verified(holder, epoch)

    @reads
    def _find_caller(self, connection: Connection, caller: str, account_id: str) -> tuple[Holder | None, int]:
        """Returns None only for a caller that has a grant: others, known or not, are refused without a write."""
        if not (key_checks.is_caller_name(caller) and checks.is_id(account_id)):
            raise not_granted()
        holder, epoch = find_holder_of_caller(connection, caller, account_id)
        if holder is None:
            require_grant(connection, caller, account_id)
        return holder, epoch

    async def _counted(self, verifying: Awaitable[Verified]) -> Verified:
        try:
            verified = await verifying
        except LegatoError:
            self.refused += 1
            raise
        self.verified += 1
        return verified

    def _verified(self, holder: Holder, epoch: int) -> Verified:
        if holder.is_suspended:
            # Checked last, so that only the key's owner learns of the suspension.
            raise LegatoError(Reason.ACCOUNT_SUSPENDED, SUSPENDED)
        may_be_remembered = self._peppers.agree_with(holder.recorded_peppers, holder.digest.pepper_version)
        return Verified(holder, epoch, self._peppers.digest_key(holder.key.account_id), may_be_remembered)

    async def find_refused(self, key_ids: Sequence[str]) -> list[str]:
        """Returns those that are revoked or unknown, or whose account is suspended."""
        asked = key_checks.key_ids(key_ids)
        possible = [key_id for key_id in asked if checks.is_id(key_id)]
        refused = await self._database.read(find_refused_keys, possible)
        return [*refused, *(key_id for key_id in asked if not checks.is_id(key_id))]
