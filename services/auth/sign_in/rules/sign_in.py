"""Signs users in: by passkey, by the code of a link, by a recovery code, by an invitation, or by another proof.

All failures are one error. They are counted by the client's address and limited; successes are not counted. Every
transaction locks the user's row before what belongs to the user, so that no two of them wait for each other.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeVar, cast

from services.auth.core import checks, codes
from services.auth.core.parts import Domain, Parts
from services.auth.core.records.accounts import Account
from services.auth.core.records.audit import Outcome
from services.auth.core.records.users import SignInMethod, User
from services.auth.core.store import Connection, add, get
from services.auth.core.store import users as stored_users
from services.auth.core.store.accounts import lock_account
from services.auth.sign_in.records import Client, Invitation, UserSummary
from services.auth.sign_in.rules.mail import Mail
from services.auth.sign_in.rules.passkeys import PasskeyRefused, Passkeys
from services.auth.sign_in.rules.sessions import Sessions, SignedIn
from services.auth.sign_in.store import codes as stored_codes
from services.auth.sign_in.store import rate_limits
from services.auth.sign_in.store import sessions as stored_sessions
from services.chassis.access_tokens import Access
from services.chassis.errors import LegatoError, Reason
from services.chassis.load.gcra import Rate
from services.chassis.sentence import Sentence

# Per address. After ten wrong codes within a minute, a client waits some seconds.
FAILURES: Final = Rate(per_minute=10, burst=10)
# Each writes a row that is kept for five minutes.
STARTS: Final = Rate(per_minute=60, burst=60)

# Per address of mail, known or not.
MAILS: Final = Rate(per_minute=1, burst=3)


class Proved(NamedTuple):
    user_id: str
    method: SignInMethod
    # What was used and can be used in this way no more, of what the user has several.
    used_id: str = ""


# A proof within a transaction. None: it proves nothing. It locks the user first.
Proof = Callable[[Connection], Proved | None]
# A bucket's name and its rate.
Limit = tuple[str, Rate]
# With these, the user's other sessions go on; a user who needs a code may have lost a device that is still signed in.
KEEPS_SESSIONS: Final = (SignInMethod.PASSKEY, SignInMethod.PASSWORD, SignInMethod.OIDC)
ResultT = TypeVar("ResultT")


def sign_in_failed() -> LegatoError:
    """The one message for unknown, used, expired and mistyped codes: it gives no hint for guessing."""
    return LegatoError(Reason.SIGN_IN_FAILED, Sentence("sign_in_failed"))


def require_other_way(summary: UserSummary) -> None:
    """Raises if nothing is left to sign in with, of what there was before one way was removed. Call it with the user
    locked."""
    if summary.ways < 2:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("last_sign_in_method"))


class SignIn(Domain):
    def __init__(self, parts: Parts, sessions: Sessions, passkeys: Passkeys, mail: Mail) -> None:
        super().__init__(parts)
        self._sessions = sessions
        self._passkeys = passkeys
        self._mail = mail

    @property
    def sends_links(self) -> bool:
        return self._mail.is_offered

    async def mail_link(self, email: str, client: Client) -> None:
        """Sends a link to who has this address; whether a user has it shows neither in the response nor in its
        time."""
        address = checks.email(email)
        if not address or not self._mail.is_offered:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("email_invalid"), param="email")
        await self.start(client, lambda _: True, [(self.limit_name("mail", address), MAILS)])
        self._mail.send_link(address)

    async def mail_code(self, by: Access, client: Client) -> None:
        """Sends a code to the user of a session, who then proves with it who they are."""
        user = await self._database.read(get, User, by.user_id)
        if user is None or not user.email or not self._mail.is_offered:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("code_address_missing"))
        await self.start(client, lambda _: True, [(self.limit_name("mail", user.email), MAILS)])
        self._mail.send_code(user)

    async def start_passkey(self, origin: str, client: Client) -> tuple[str, str]:
        """Returns a challenge's id and the options for the browser, as JSON."""
        await self._passkeys.load()
        return await self.start(client, partial(self._passkeys.start_sign_in, origin=origin, now_us=self.now_us()))

    async def start(
        self, client: Client, act: Callable[[Connection], ResultT], limits: Sequence[Limit] = ()
    ) -> ResultT:
        """Runs what begins a sign-in in a transaction, unless the client began too many."""
        self._sessions.require_signer()
        now_ns = self.now_us() * 1000
        taken_from = [(self.limit_name("start address", client.limited_as), STARTS), *limits]

        def start(connection: Connection) -> tuple[int, ResultT | None]:
            for limit in taken_from:
                if wait_ns := rate_limits.take(connection, *limit, now_ns):
                    return wait_ns, None
            return 0, act(connection)

        wait_ns, started = await self._database.write(start)
        if wait_ns:
            raise _too_many(wait_ns)
        return cast(ResultT, started)

    async def step_up(self, token: str, client: Client, proof: Proof, limits: Sequence[Limit] = ()) -> SignedIn:
        """Proves again who the user is, and replaces the session's token."""

        def prove(connection: Connection) -> SignedIn | None:
            known = self._sessions.find(connection, token)
            if known is not None:
                get(connection, User, known[1].user_id, locks=True)
            session, user = self._sessions.require(connection, token, locks=True)
            proved = proof(connection)
            is_user = proved is not None and proved.user_id == user.user_id
            renewed = self._sessions.renew(connection, session, user) if is_user else None
            outcome = Outcome.DONE if is_user else Outcome.REFUSED
            by = replace(session, network=client.network)
            action = f"session.stepped_up.{proved.method.value}" if proved and is_user else "session.stepped_up"
            self._audit.append(connection, action, by, object_id=proved.used_id if proved else "", outcome=outcome)
            return renewed

        return await self.attempt(client, prove, limits)

    async def proof(
        self, *, passkey: tuple[str, str] | None = None, recovery_code: str = "", link_code: str = ""
    ) -> Proof:
        if passkey is not None:
            await self._passkeys.load()
            return self._passkey_proof(*passkey)
        kind, code = (codes.RECOVERY, recovery_code) if recovery_code else (codes.LINK, link_code)
        digests = self._peppers.digests_of_code(kind, codes.plain(code))

        def prove(connection: Connection) -> Proved | None:
            if recovery_code:
                used = stored_codes.use_recovery_code(connection, digests)
                return Proved(used[0], SignInMethod.RECOVERY_CODE, used[1]) if used else None
            user_id = stored_codes.use_link(connection, digests, self.now_us())
            return Proved(user_id, SignInMethod.LINK, user_id) if user_id else None

        return prove

    async def get_invitation(self, code: str, client: Client) -> tuple[Invitation, str, str]:
        """Returns an invitation, with the names of its account and of who invites. Consumes nothing."""

        def look(connection: Connection) -> tuple[Invitation, str, str] | None:
            digests = self._peppers.digests_of_code(codes.INVITATION, codes.plain(code))
            invitation = stored_codes.find_invitation(connection, digests, self.now_us())
            account = get(connection, Account, invitation.account_id) if invitation else None
            if invitation is None or account is None:
                return None
            names = stored_users.names_of(connection, [invitation.invited_by])
            return invitation, account.name, names.get(invitation.invited_by, "")

        return await self.attempt(client, look)

    async def accept_invitation(self, code: str, name: str, token: str, client: Client) -> tuple[SignedIn | None, str]:
        """Consumes an invitation, for the session's user or for a new one. Returns the account too."""
        self._sessions.require_signer()
        checked_name = "" if token else checks.name(name)

        def accept(connection: Connection) -> tuple[SignedIn | None, str] | None:
            found = self._sessions.require(connection, token) if token else None
            now_us = self.now_us()
            digests = self._peppers.digests_of_code(codes.INVITATION, codes.plain(code))
            invitation = stored_codes.use_invitation(connection, digests, now_us)
            if invitation is None:
                return None
            lock_account(connection, invitation.account_id)
            if found is None:
                user = User(codes.mint_id("user"), checked_name, invitation.email, now_us)
                add(connection, user)
            else:
                user = found[1]
            opened = self._sessions.open(connection, user, SignInMethod.INVITATION, client) if found is None else None
            session = opened.session if opened else found[0] if found else None
            self.join(connection, invitation, user, client, session.session_id if session else "")
            return opened, invitation.account_id

        return await self.attempt(client, accept)

    def join(
        self, connection: Connection, invitation: Invitation, user: User, client: Client, session_id: str = ""
    ) -> None:
        """Makes a user a member, as an accepted invitation says."""
        role = stored_users.role_in(connection, invitation.account_id, user.user_id)
        if not role:
            stored_users.add_member(connection, invitation.account_id, user.user_id, invitation.role, self.now_us())
        elif role < invitation.role:
            stored_users.change_role(connection, invitation.account_id, user.user_id, invitation.role)
        stored_sessions.request_new_tokens(connection, user.user_id)
        self._audit.append(
            connection,
            "invitation.accepted",
            user_id=user.user_id,
            account_id=invitation.account_id,
            object_id=invitation.invitation_id,
            session_id=session_id,
            network=client.network,
        )

    async def by_proof(self, proof: Proof, client: Client, limits: Sequence[Limit] = ()) -> SignedIn:
        self._sessions.require_signer()

        def sign_in(connection: Connection) -> SignedIn | None:
            proved = proof(connection)
            user = get(connection, User, proved.user_id, locks=True) if proved else None
            if proved is None or user is None:
                return None
            return self.open(connection, user, proved.method, client, used_id=proved.used_id)

        return await self.attempt(client, sign_in, limits)

    def open(
        self,
        connection: Connection,
        user: User,
        method: SignInMethod,
        client: Client,
        authenticated_at_us: int | None = None,
        *,
        used_id: str = "",
    ) -> SignedIn | None:
        """Opens a session for a user who has proved who they are, unless they are disabled."""
        if user.disabled_at_us is not None:
            self._audit.append(
                connection,
                "user.signed_in",
                user_id=user.user_id,
                object_id=used_id,
                network=client.network,
                outcome=Outcome.REFUSED,
            )
            return None
        if method not in KEEPS_SESSIONS:
            stored_sessions.end_sessions(connection, user.user_id)
        opened = self._sessions.open(connection, user, method, client, authenticated_at_us)
        self._audit.append(connection, f"user.signed_in.{method.value}", opened.session, object_id=used_id)
        return opened

    async def require_allowed(self, client: Client, limits: Sequence[Limit] = ()) -> None:
        """Raises after too many failures. Takes no write: a flood of attempts must not hold up revocations."""
        now_ns = self.now_us() * 1000

        def look(connection: Connection) -> int:
            return max(rate_limits.wait_ns(connection, *limit, now_ns) for limit in self._limits(client, limits))

        wait_ns = await self._database.read(look)
        if wait_ns:
            raise _too_many(wait_ns)

    async def attempt(
        self, client: Client, act: Callable[[Connection], ResultT | None], limits: Sequence[Limit] = ()
    ) -> ResultT:
        """Runs `act` in a transaction, unless there were too many failures. None is one, and is counted."""
        await self.require_allowed(client, limits)
        now_ns, taken_from = self.now_us() * 1000, self._limits(client, limits)

        def attempt(connection: Connection) -> tuple[int, ResultT | None]:
            for number, limit in enumerate(taken_from):
                wait_ns = rate_limits.take(connection, *limit, now_ns)
                if wait_ns:
                    for earlier in taken_from[:number]:
                        rate_limits.give_back(connection, *earlier, now_ns)
                    return wait_ns, None
            done = act(connection)
            if done is not None:
                for limit in taken_from:
                    rate_limits.give_back(connection, *limit, now_ns)
            return 0, done

        wait_ns, done = await self._database.write(attempt)
        if wait_ns:
            raise _too_many(wait_ns)
        if done is None:
            self._log.info("sign_in.failed")
            raise sign_in_failed()
        return done

    def _limits(self, client: Client, further: Sequence[Limit]) -> list[Limit]:
        """Lists what an attempt is taken from, always in the same order."""
        return [(self.limit_name("failure address", client.limited_as), FAILURES), *further]

    def limit_name(self, kind: str, limited: str) -> str:
        return self._peppers.digest_code(kind, limited).hex()

    def _passkey_proof(self, challenge_id: str, credential_json: str) -> Proof:
        def prove(connection: Connection) -> Proved | None:
            try:
                passkey = self._passkeys.verify(connection, challenge_id, credential_json, self.now_us())
            except PasskeyRefused:
                return None
            return Proved(passkey.user_id, SignInMethod.PASSKEY, passkey.use_id)

        return prove


def _too_many(wait_ns: int) -> LegatoError:
    return LegatoError(Reason.TOO_MANY_SIGN_INS, Sentence("sign_in_attempts"), retry_after_s=wait_ns / 1e9)
