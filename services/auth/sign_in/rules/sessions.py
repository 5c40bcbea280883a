"""Opens, resolves and ends sessions."""

from dataclasses import dataclass, field, replace
from typing import Final

from legato_protos.type.v1.method_access_pb2 import TokenRule
from services.auth.core import codes
from services.auth.core.parts import Domain, Parts, reads, writes
from services.auth.core.records.users import SignInMethod, User, UserSession
from services.auth.core.session_life import LIFE_US, is_live, session_ended
from services.auth.core.store import Connection, get
from services.auth.core.store import users as stored_users
from services.auth.core.times import hour_of
from services.auth.sign_in.records import Client, UserSummary
from services.auth.sign_in.store import sessions as stored
from services.auth.sign_in.store.ways import summarise
from services.chassis.access_tokens import Access, AccessTokenSigner
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import require_role
from services.chassis.sentence import Sentence

# A use is written this often, and not at each page.
SEEN_EVERY_US: Final = 60_000_000
# How long a replaced token still works, for requests that the browser sent before it had the new one.
PREVIOUS_VALID_US: Final = 30_000_000


@dataclass(frozen=True, slots=True)
class SignedIn:
    token: str = field(repr=False)
    session: UserSession
    summary: UserSummary


class Sessions(Domain):
    def __init__(self, parts: Parts, signer: AccessTokenSigner | None) -> None:
        """Prepares it; without a signer, users cannot sign in."""
        super().__init__(parts)
        self._signer = signer

    def require_signer(self) -> AccessTokenSigner:
        if self._signer is None:
            raise LegatoError(Reason.ENDPOINT_NOT_OFFERED, Sentence("sign_in_not_set_up"))
        return self._signer

    def open(
        self,
        connection: Connection,
        user: User,
        method: SignInMethod,
        client: Client,
        authenticated_at_us: int | None = None,
    ) -> SignedIn:
        """Opens a session for a user who has proved who they are, at another time than now if one is given."""
        now_us, token = self.now_us(), codes.mint_session_token()
        session = UserSession(
            session_id=codes.mint_id("ses"),
            user_id=user.user_id,
            created_at_us=now_us,
            authenticated_at_us=now_us if authenticated_at_us is None else min(now_us, authenticated_at_us),
            last_seen_us=now_us,
            network=client.network,
            browser=client.browser_name,
            method=method,
        )
        digest = self._peppers.digest_code(codes.SESSION, token)
        stored.add_session(connection, session, digest, now_us - LIFE_US)
        stored_users.record_seen(connection, user.user_id, hour_of(now_us))
        [summary] = summarise(connection, [user])
        return SignedIn(token, session, summary)

    def find(self, connection: Connection, token: str, *, locks: bool = False) -> tuple[UserSession, User] | None:
        """Finds a session that has not ended, and its user."""
        session = stored.find_session(connection, self._digests(token), self.now_us(), locks=locks)
        user = None if session is None else get(connection, User, session.user_id)
        if session is None or user is None or not is_live(session, user, self.now_us()):
            return None
        return session, user

    def require(self, connection: Connection, token: str, *, locks: bool = False) -> tuple[UserSession, User]:
        """Finds a session and its user; raises if the session has ended."""
        found = self.find(connection, token, locks=locks)
        if found is None:
            raise session_ended()
        return found

    def renew(self, connection: Connection, session: UserSession, user: User) -> SignedIn:
        """Records that the user has proved again who they are. The token before no longer works."""
        now_us, token = self.now_us(), codes.mint_session_token()
        values = {"authenticated_at_us": now_us, "last_seen_us": now_us, "replace_due": False}
        digest = self._peppers.digest_code(codes.SESSION, token)
        stored.change_session(connection, session.session_id, digest=digest, previous_digest=None, **values)
        [summary] = summarise(connection, [user])
        return SignedIn(token, replace(session, authenticated_at_us=now_us, last_seen_us=now_us), summary)

    async def record_use(self, session: UserSession, token: str) -> str:
        """Records the use, at most once a minute. Returns a new token where one is due."""
        now_us = self.now_us()
        is_seen = now_us - session.last_seen_us < SEEN_EVERY_US
        if is_seen and not session.replace_due:
            return ""
        new_token = codes.mint_session_token() if session.replace_due else ""

        def record(connection: Connection) -> bool:
            stored.change_session(connection, session.session_id, last_seen_us=now_us)
            stored_users.record_seen(connection, session.user_id, hour_of(now_us))
            digest = self._peppers.digest_code(codes.SESSION, new_token)
            return bool(new_token) and stored.replace_token(
                connection, session.session_id, self._digests(token), digest, now_us + PREVIOUS_VALID_US
            )

        return new_token if await self._database.write(record) else ""

    @writes
    def sign_out(self, connection: Connection, token: str) -> None:
        """Ends a session; an unknown one has ended already."""
        session = stored.find_session(connection, self._digests(token), self.now_us())
        if session is not None:
            stored.end_sessions(connection, session.user_id, [session.session_id])
            self._audit.append(connection, "user.signed_out", session)

    @reads
    def confirm(self, connection: Connection, access: Access, rule: TokenRule) -> Access:
        """Checks that what a token claims is still so, for auth's own methods: a session that has ended, a user who
        was disabled or removed, or a lower role takes effect at once here, and not after the token's minute."""
        session = get(connection, UserSession, access.session_id)
        user = get(connection, User, access.user_id)
        if session is None or user is None or not is_live(session, user, self.now_us()):
            raise session_ended()
        confirmed = replace(
            access,
            role=stored_users.role_in(connection, access.account_id, user.user_id),
            is_operator=access.is_operator and user.is_operator,
            authenticated_at_us=min(access.authenticated_at_us, session.authenticated_at_us),
        )
        require_role(confirmed, rule)
        return confirmed

    def _digests(self, token: str) -> list[bytes]:
        return self._peppers.digests_of_code(codes.SESSION, token)
