"""Signs users in: by passkey, by the code of a link, by a recovery code, or by an invitation.

All failures are one error. They are counted by the client's address and limited; successes are not counted.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from services.auth import checks
from services.auth.keys import Peppers
from services.auth.store.accounts import find_account, lock_account
from services.auth.users import codes
from services.auth.users.audit import AuditLog
from services.auth.users.passkeys import PasskeyRefused, Passkeys
from services.auth.users.records import Client, Invitation, Outcome, SignInMethod, User
from services.auth.users.sessions import Sessions, SignedIn, session_ended
from services.auth.users.store import Connection, rate_limits
from services.auth.users.store import codes as stored_codes
from services.auth.users.store import sessions as stored_sessions
from services.auth.users.store import users as stored_users
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.load.gcra import Rate
from services.chassis.telemetry.log import Log

# Per address. Whoever types a code wrongly ten times within a minute waits some seconds.
FAILURES: Final = Rate(per_minute=10, burst=10)
# Each writes a row that is kept for five minutes.
STARTS: Final = Rate(per_minute=60, burst=60)

# A proof within a transaction: whom it is of, and by what. None: it proves nothing.
Proof = Callable[[Connection], tuple[str, SignInMethod] | None]
ResultT = TypeVar("ResultT")


def sign_in_failed() -> LegatoError:
    """The one message for unknown, used, expired and mistyped codes: it gives no hint for guessing."""
    return LegatoError(Reason.SIGN_IN_FAILED, "That did not work. It may have been used before, or have expired.")


class SignIn:
    def __init__(
        self, database: Database, peppers: Peppers, sessions: Sessions, passkeys: Passkeys, audit: AuditLog, log: Log
    ) -> None:
        self._database = database
        self._peppers = peppers
        self._sessions = sessions
        self._passkeys = passkeys
        self._audit = audit
        self._log = log

    async def start_passkey(self, origin: str, client: Client) -> tuple[str, str]:
        """Returns a challenge's id and the options for the browser, as JSON."""
        self._sessions.require_signer()
        await self._passkeys.load()
        now_us, name = self._sessions.now_us(), self._limit_name("start", client)

        def start(connection: Connection) -> tuple[str, str] | int:
            wait_ns = rate_limits.take(connection, name, STARTS, now_us * 1000)
            return wait_ns or self._passkeys.start_sign_in(connection, origin, now_us)

        started = await self._database.write(start)
        if isinstance(started, int):
            raise _too_many(started)
        return started

    async def with_passkey(self, challenge_id: str, credential_json: str, client: Client) -> SignedIn:
        await self._passkeys.load()
        return await self._sign_in(self._passkey_proof(challenge_id, credential_json), client)

    async def with_link(self, code: str, client: Client) -> SignedIn:
        return await self._sign_in(self._link_proof(code), client)

    async def with_recovery_code(self, code: str, client: Client) -> SignedIn:
        return await self._sign_in(self._recovery_proof(code), client)

    async def step_up(self, token: str, client: Client, proof: Proof) -> SignedIn:
        """Proves again who the user is, and replaces the session's token."""
        await self._passkeys.load()

        def prove(connection: Connection) -> SignedIn | None:
            found = self._sessions.find(connection, token, locks=True)
            if found is None:
                raise session_ended()
            session, user = found
            proved = proof(connection)
            is_user = proved is not None and proved[0] == user.user_id
            renewed = self._sessions.renew(connection, session, user) if is_user else None
            self._audit.append(
                connection,
                "session.stepped_up",
                user_id=user.user_id,
                session_id=session.session_id,
                network=client.network,
                outcome=Outcome.DONE if is_user else Outcome.REFUSED,
            )
            return renewed

        return await self._attempt(client, prove)

    def proof(self, *, passkey: tuple[str, str] | None = None, recovery_code: str = "", link_code: str = "") -> Proof:
        if passkey is not None:
            return self._passkey_proof(*passkey)
        return self._recovery_proof(recovery_code) if recovery_code else self._link_proof(link_code)

    async def get_invitation(self, code: str, client: Client) -> tuple[Invitation, str, str]:
        """Returns an invitation, with the names of its account and of who invites. Consumes nothing."""

        def look(connection: Connection) -> tuple[Invitation, str, str] | None:
            digests = self._peppers.digests_of_code(codes.INVITATION, codes.plain(code))
            invitation = stored_codes.find_invitation(connection, digests, self._sessions.now_us())
            account = find_account(connection, invitation.account_id) if invitation else None
            if invitation is None or account is None:
                return None
            names = stored_users.names_of(connection, [invitation.invited_by])
            return invitation, account.name, names.get(invitation.invited_by, "")

        return await self._attempt(client, look)

    async def accept_invitation(self, code: str, name: str, token: str, client: Client) -> tuple[SignedIn | None, str]:
        """Consumes an invitation, for the session's user or for a new one. Returns the account too."""
        self._sessions.require_signer()
        checked_name = "" if token else checks.name(name)

        def accept(connection: Connection) -> tuple[SignedIn | None, str] | None:
            found = self._sessions.find(connection, token) if token else None
            if token and found is None:
                raise session_ended()
            now_us = self._sessions.now_us()
            digests = self._peppers.digests_of_code(codes.INVITATION, codes.plain(code))
            invitation = stored_codes.use_invitation(connection, digests, now_us)
            if invitation is None or lock_account(connection, invitation.account_id) is None:
                return None
            if found is None:
                user = User(codes.mint_id("user"), checked_name, invitation.email, now_us)
                stored_users.add_user(connection, user)
            else:
                user = found[1]
            self._join(connection, invitation, user, now_us)
            opened = None if found else self._sessions.open(connection, user, SignInMethod.INVITATION, client)
            self._audit.append(
                connection,
                "invitation.accepted",
                user_id=user.user_id,
                account_id=invitation.account_id,
                object_id=invitation.invitation_id,
                session_id=opened.session.session_id if opened else found[0].session_id if found else "",
                network=client.network,
            )
            return opened, invitation.account_id

        return await self._attempt(client, accept)

    def _join(self, connection: Connection, invitation: Invitation, user: User, now_us: int) -> None:
        role = stored_users.role_in(connection, invitation.account_id, user.user_id)
        if not role:
            stored_users.add_member(connection, invitation.account_id, user.user_id, invitation.role, now_us)
        elif role < invitation.role:
            stored_users.change_role(connection, invitation.account_id, user.user_id, invitation.role)
        stored_sessions.request_new_tokens(connection, user.user_id)

    async def _sign_in(self, proof: Proof, client: Client) -> SignedIn:
        self._sessions.require_signer()

        def sign_in(connection: Connection) -> SignedIn | None:
            proved = proof(connection)
            user = stored_users.find_user(connection, proved[0], locks=True) if proved else None
            if proved is None or user is None:
                return None
            if user.disabled_at_us is not None:
                network, refused = client.network, Outcome.REFUSED
                self._audit.append(connection, "user.signed_in", user_id=user.user_id, network=network, outcome=refused)
                return None
            if proved[1] is not SignInMethod.PASSKEY:
                # Whoever needs a code may have lost a device that is still signed in.
                stored_sessions.end_sessions(connection, user.user_id)
            opened = self._sessions.open(connection, user, proved[1], client)
            self._audit.append(
                connection,
                f"user.signed_in.{proved[1].value}",
                user_id=user.user_id,
                session_id=opened.session.session_id,
                network=client.network,
            )
            return opened

        return await self._attempt(client, sign_in)

    async def _attempt(self, client: Client, act: Callable[[Connection], ResultT | None]) -> ResultT:
        """Runs `act` in a transaction, unless there were too many failures. None is one, and is counted."""
        now_ns, name = self._sessions.now_us() * 1000, self._limit_name("failure", client)
        # Refused without a write: a flood of attempts must not hold up revocations.
        wait_ns = await self._database.read(lambda connection: rate_limits.wait_ns(connection, name, FAILURES, now_ns))
        if wait_ns:
            raise _too_many(wait_ns)

        def attempt(connection: Connection) -> tuple[int, ResultT | None]:
            wait_ns = rate_limits.take(connection, name, FAILURES, now_ns)
            if wait_ns:
                return wait_ns, None
            done = act(connection)
            if done is not None:
                rate_limits.give_back(connection, name, FAILURES, now_ns)
            return 0, done

        wait_ns, done = await self._database.write(attempt)
        if wait_ns:
            raise _too_many(wait_ns)
        if done is None:
            self._log.info("sign_in.failed")
            raise sign_in_failed()
        return done

    def _limit_name(self, kind: str, client: Client) -> str:
        return self._peppers.digest_code(f"{kind} address", client.limited_as).hex()

    def _link_proof(self, code: str) -> Proof:
        digests = self._peppers.digests_of_code(codes.LINK, codes.plain(code))

        def prove(connection: Connection) -> tuple[str, SignInMethod] | None:
            user_id = stored_codes.use_link(connection, digests, self._sessions.now_us())
            return (user_id, SignInMethod.LINK) if user_id else None

        return prove

    def _recovery_proof(self, code: str) -> Proof:
        digests = self._peppers.digests_of_code(codes.RECOVERY, codes.plain(code))

        def prove(connection: Connection) -> tuple[str, SignInMethod] | None:
            user_id = stored_codes.use_recovery_code(connection, digests)
            return (user_id, SignInMethod.RECOVERY_CODE) if user_id else None

        return prove

    def _passkey_proof(self, challenge_id: str, credential_json: str) -> Proof:
        def prove(connection: Connection) -> tuple[str, SignInMethod] | None:
            try:
                passkey = self._passkeys.verify(connection, challenge_id, credential_json, self._sessions.now_us())
            except PasskeyRefused:
                return None
            return passkey.user_id, SignInMethod.PASSKEY

        return prove


def _too_many(wait_ns: int) -> LegatoError:
    message = "Too many attempts from your network. Please wait a moment."
    return LegatoError(Reason.TOO_MANY_SIGN_INS, message, retry_after_s=wait_ns / 1e9)
