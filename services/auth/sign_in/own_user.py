"""Lets users manage how they sign in, and their sessions."""

from typing import Final

from services.auth import checks
from services.auth.parts import Domain, Parts, reads, writes
from services.auth.records.users import Challenge, ChallengeKind, Passkey, User, UserSession, UserSummary
from services.auth.sign_in.passkeys import PasskeyRefused, Passkeys
from services.auth.sign_in.sign_in import sign_in_failed
from services.auth.store import Connection
from services.auth.store import codes as stored_codes
from services.auth.store import passkeys as stored_passkeys
from services.auth.store import sessions as stored_sessions
from services.auth.store import users as stored
from services.auth.users import codes
from services.auth.users.mail import Mail
from services.auth.users.sessions import is_live
from services.chassis.access_tokens import Access
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import require_recent

RECOVERY_CODES: Final = 10
# A redirect takes a moment; a phone may be slow.
RESULT_VALID_US: Final = 300_000_000
LARGEST_RESULT_BYTES: Final = 16 * 1024


def require_other_way(summary: UserSummary) -> None:
    """Raises if nothing is left to sign in with, of what there was before one way was removed. Call it with the user
    locked."""
    if summary.ways < 2:
        message = "This is your last way to sign in. Add another one or recovery codes first."
        raise LegatoError(Reason.REQUEST_INVALID, message)


class OwnUser(Domain):
    def __init__(self, parts: Parts, passkeys: Passkeys, mail: Mail) -> None:
        super().__init__(parts)
        self._passkeys = passkeys
        self._mail = mail

    @writes
    def update(self, connection: Connection, by: Access, name: str | None = None) -> UserSummary:
        if name is not None:
            stored.change_user(connection, by.user_id, name=checks.name(name))
        return stored.summarise(connection, [stored.require_user(connection, by.user_id)])[0]

    async def start_registration(self, by: Access, origin: str) -> tuple[str, str]:
        await self._passkeys.load()

        def start(connection: Connection) -> tuple[str, str]:
            user = stored.require_user(connection, by.user_id)
            self._require_proof(connection, by, user)
            return self._passkeys.start_registration(connection, user, origin, self.now_us())

        return await self._database.write(start)

    async def finish_registration(self, by: Access, challenge_id: str, credential_json: str, name: str) -> Passkey:
        await self._passkeys.load()
        checked = checks.key_name(name) or "Passkey"

        def finish(connection: Connection) -> tuple[User, Passkey] | None:
            user, now_us = stored.require_user(connection, by.user_id, locks=True), self.now_us()
            self._require_proof(connection, by, user)
            try:
                passkey = self._passkeys.finish_registration(
                    connection, user, challenge_id, credential_json, checked, now_us
                )
            except PasskeyRefused:
                return None
            self._audit.append(connection, "passkey.added", by, object_id=passkey.passkey_id)
            return user, passkey

        made = await self._database.write(finish)
        if made is None:
            raise sign_in_failed()
        self._mail.notify(made[0], "A passkey was added to your user.")
        return made[1]

    @writes
    def rename_passkey(self, connection: Connection, by: Access, passkey_id: str, name: str) -> Passkey:
        renamed = stored_passkeys.rename_passkey(connection, by.user_id, passkey_id, checks.name(name))
        if renamed is None:
            raise checks.not_found("passkey")
        return renamed

    async def remove_passkey(self, by: Access, passkey_id: str) -> None:
        """Removes a passkey, unless no way to sign in would be left."""

        def remove(connection: Connection) -> User:
            user = stored.require_user(connection, by.user_id, locks=True)
            [summary] = stored.summarise(connection, [user])
            if not stored_passkeys.remove_passkey(connection, by.user_id, passkey_id):
                raise checks.not_found("passkey")
            require_other_way(summary)
            self._audit.append(connection, "passkey.removed", by, object_id=passkey_id)
            return user

        self._mail.notify(await self._database.write(remove), "A passkey was removed from your user.")

    async def generate_recovery_codes(self, by: Access) -> list[str]:
        made = [codes.mint_code() for _ in range(RECOVERY_CODES)]
        digests = [self._peppers.digest_code(codes.RECOVERY, codes.plain(code)) for code in made]

        def put(connection: Connection) -> User:
            user = stored.require_user(connection, by.user_id, locks=True)
            stored_codes.put_recovery_codes(connection, by.user_id, digests, self.now_us())
            self._audit.append(connection, "recovery_codes.generated", by, object_id=by.user_id)
            return user

        self._mail.notify(await self._database.write(put), "New recovery codes were made; the ones before do not work.")
        return made

    @reads
    def list_sessions(self, connection: Connection, by: Access) -> list[tuple[UserSession, User]]:
        user, now_us = stored.require_user(connection, by.user_id), self.now_us()
        found = stored_sessions.list_sessions(connection, by.user_id)
        return [(session, user) for session in found if is_live(session, user, now_us)]

    @writes
    def end_sessions(self, connection: Connection, by: Access, session_ids: list[str]) -> int:
        """Ends these sessions; none given: all others."""
        other_than = "" if session_ids else by.session_id
        ended = stored_sessions.end_sessions(connection, by.user_id, session_ids or None, other_than=other_than)
        if ended:
            self._audit.append(connection, "sessions.ended", by, object_id=ended[0])
        return len(ended)

    @writes
    def keep_result(self, connection: Connection, by: Access, sealed: bytes) -> str:
        """Keeps what the console shows once, and returns its id."""
        if len(sealed) > LARGEST_RESULT_BYTES:
            raise LegatoError(Reason.REQUEST_INVALID, "The result is too large.")
        result_id, now_us = codes.mint_id("result"), self.now_us()
        expires_at_us = now_us + RESULT_VALID_US
        kept = Challenge(result_id, by.user_id, sealed, by.session_id, expires_at_us, ChallengeKind.RESULT)
        stored_codes.add_challenge(connection, kept, now_us)
        return result_id

    @writes
    def take_result(self, connection: Connection, by: Access, result_id: str) -> bytes:
        """Returns a result to the session that kept it, once."""
        kept = stored_codes.use_challenge(connection, result_id, self.now_us(), ChallengeKind.RESULT)
        if kept is None or (kept.user_id, kept.origin) != (by.user_id, by.session_id):
            raise checks.not_found("result")
        return kept.challenge

    def _require_proof(self, connection: Connection, by: Access, user: User) -> None:
        """Raises unless the user proved lately who they are, or can prove nothing: a user without passkey, password,
        identity, recovery code and mail may add a first passkey in the session that their link opened."""
        [summary] = stored.summarise(connection, [user])
        if summary.ways or (user.email and self._mail.is_offered):
            require_recent(by, self.now_us())
