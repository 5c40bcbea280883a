"""Creates playground tokens: what a signed-in user's browser calls the edge with.

A token is good for chats and the list of models, for fifteen minutes, and no longer than its session: whatever ends
that, or takes the user's role, ends the token on every edge, as if a key were revoked. All tokens of one member in one
account are counted under one key, which has no secret.
"""

from dataclasses import asdict, dataclass, field
from typing import Final

from services.auth.core import key_format
from services.auth.core.key_format import ApiKey
from services.auth.core.parts import Domain, writes
from services.auth.core.records.users import User, UserSession
from services.auth.core.session_life import expires_at_us, is_live, session_ended
from services.auth.core.store import Connection, add, get
from services.auth.core.store import users as stored_users
from services.auth.core.store.accounts import lock_account
from services.auth.core.times import DAY_US
from services.auth.keys.records import Key, PlaygroundToken, Scope
from services.auth.keys.store import playground as stored
from services.auth.keys.store.keys import add_key_without_secret
from services.chassis.access_tokens import Access, AccountRole
from services.chassis.rpc.access_check import role_missing

TOKEN_VALID_US: Final = 15 * 60 * 1_000_000
KEY_NAME: Final = "Playground"
# The least that a playground needs.
SCOPES: Final = (Scope.INFERENCE, Scope.MODELS)
# More than all tabs of a browser need; asking for more loses the oldest.
TOKENS_PER_SESSION_MOST: Final = 100
# Longer than any answer runs.
FORGOTTEN_AFTER_US: Final = DAY_US


@dataclass(frozen=True, slots=True)
class IssuedToken:
    secret: ApiKey = field(repr=False)
    expires_at_us: int
    key_id: str


class PlaygroundTokens(Domain):
    @writes
    def create(self, connection: Connection, by: Access) -> IssuedToken:
        """Creates a token. With the account and the session locked, whatever would end it comes before, and is seen
        here, or after, and sees it."""
        secret, now_us = key_format.mint(is_token=True), self.now_us()
        lock_account(connection, by.account_id)
        session = get(connection, UserSession, by.session_id, locks=True)
        user = get(connection, User, by.user_id)
        if session is None or user is None or not is_live(session, user, now_us):
            raise session_ended()
        if stored_users.role_in(connection, by.account_id, by.user_id) < AccountRole.MEMBER:
            raise role_missing()
        key = self._key(connection, by, now_us)
        stored.forget_expired(connection, key.key_id, now_us - FORGOTTEN_AFTER_US)
        is_first = not stored.has_tokens(connection, key.key_id, session.session_id)
        expires = min(now_us + TOKEN_VALID_US, expires_at_us(session, user))
        token = PlaygroundToken(
            token_id=secret.key_id,
            **asdict(self._peppers.digest(secret)),
            key_id=key.key_id,
            session_id=session.session_id,
            created_at_us=now_us,
            expires_at_us=expires,
        )
        # No edge can have cached it: the epoch stays.
        add(connection, token)
        stored.end_all_but_newest(connection, session.session_id, TOKENS_PER_SESSION_MOST)
        if is_first:
            # Not each token: a page that stays open gets another every few minutes.
            self._audit.append(connection, "playground.opened", by, account_id=by.account_id, object_id=key.key_id)
        return IssuedToken(secret, expires, key.key_id)

    def _key(self, connection: Connection, by: Access, now_us: int) -> Key:
        """Returns what the member's requests are counted under."""
        found = stored.find_playground_key(connection, by.account_id, by.user_id)
        if found is not None:
            return found
        whose = {"created_by": by.user_id, "playground_user_id": by.user_id}
        return add_key_without_secret(connection, by.account_id, KEY_NAME, SCOPES, now_us, **whose)
