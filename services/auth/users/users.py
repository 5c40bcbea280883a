"""Administers users, for the command line and for operators."""

from collections.abc import Callable
from typing import Final

from services.auth import checks, paging
from services.auth.paging import Page, Position
from services.auth.parts import Domain
from services.auth.records.times import DAY_US
from services.auth.records.users import Membership, User, UserSummary
from services.auth.store import Connection
from services.auth.store import audit as stored_audit
from services.auth.store import codes as stored_codes
from services.auth.store import sessions as stored_sessions
from services.auth.store import users as stored
from services.auth.store.accounts import lock_account
from services.auth.users import codes
from services.chassis.access_tokens import current_access
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import require_recent

LINK_VALID_US: Final = 600_000_000
FIRST_LINK_VALID_US: Final = 7 * DAY_US


class Users(Domain):
    async def create(self, name: str, email: str, account_id: str, role: int) -> tuple[UserSummary, str, int]:
        """Returns a new user, and the code of a sign-in link with its expiry."""
        now_us, by, code = self.now_us(), current_access.get(), codes.mint_code()
        user = User(codes.mint_id("user"), checks.name(name), checks.email(email), now_us)
        wanted = checks.role(role) if account_id else None

        def create(connection: Connection) -> UserSummary:
            if wanted is not None:
                lock_account(connection, checks.id_of("account", account_id))
            # Two that create the same user at once look one after the other. A unique index would be too strict: an
            # invited user may have the address of another, as neither is verified.
            stored_audit.read_head(connection, locks=True)
            if user.email and stored.has_email(connection, user.email):
                raise checks.refusal("email", "There is a user with this email address already.")
            stored.add_user(connection, user)
            if wanted is not None:
                stored.add_member(connection, account_id, user.user_id, wanted, now_us)
            self._put_link(connection, user.user_id, code, now_us + FIRST_LINK_VALID_US)
            self._audit.append(connection, "user.created", by, account_id=account_id, object_id=user.user_id)
            return UserSummary(user)

        return await self._database.write(create), code, now_us + FIRST_LINK_VALID_US

    async def list_page(
        self, page_size: int, page_token: str, *, query: str = "", account_id: str = "", user_id: str = ""
    ) -> tuple[Page[UserSummary], list[Membership]]:
        """Lists users with their memberships: all, or those whom every given filter fits."""
        size, after, wanted = paging.page_size(page_size), paging.page_token(page_token), checks.query(query)

        def look(connection: Connection) -> tuple[Page[UserSummary], list[Membership]]:
            found = stored.list_users(connection, after, size + 1, wanted, account_id=account_id, user_id=user_id)
            summaries = stored.summarise(connection, found)
            page = paging.to_page(summaries, size, lambda item: Position(item.user.created_at_us, item.user.user_id))
            return page, stored.memberships_of(connection, [item.user.user_id for item in page.items])

        return await self._database.read(look)

    async def create_link(self, user_id: str) -> tuple[str, int]:
        """Returns the code of a sign-in link, and its expiry."""
        now_us, by, code = self.now_us(), current_access.get(), codes.mint_code()

        def create(connection: Connection) -> None:
            if self._user(connection, user_id).disabled_at_us is not None:
                raise LegatoError(Reason.REQUEST_INVALID, "This user is disabled.")
            self._put_link(connection, user_id, code, now_us + LINK_VALID_US)
            self._audit.append(connection, "sign_in_link.created", by, object_id=user_id)

        await self._database.write(create)
        return code, now_us + LINK_VALID_US

    async def disable(self, user_id: str, *, enable: bool) -> UserSummary:
        """Disables a user and ends their sessions; or enables them again."""

        def change(connection: Connection, user: User) -> None:
            disabled_at_us = None if enable else user.disabled_at_us or self.now_us()
            stored.change_user(connection, user_id, disabled_at_us=disabled_at_us)
            if not enable:
                stored_sessions.end_sessions(connection, user_id)
                stored_codes.remove_link(connection, user_id)

        return await self._change("user.enabled" if enable else "user.disabled", user_id, change, grants=enable)

    async def set_operator(self, user_id: str, *, is_operator: bool) -> UserSummary:
        """Makes a user an operator, or no longer one."""

        def change(connection: Connection, user: User) -> None:
            stored.change_user(connection, user_id, is_operator=is_operator)
            stored_sessions.request_new_tokens(connection, user_id)

        action = "user.made_operator" if is_operator else "user.no_longer_operator"
        return await self._change(action, user_id, change, grants=is_operator)

    async def _change(
        self, action: str, user_id: str, change: Callable[[Connection, User], None], *, grants: bool
    ) -> UserSummary:
        """Changes a user. What grants access needs a recent proof. The last operator stays one and can sign in, unless
        the command line, which can make another, says otherwise."""
        by = current_access.get()
        if grants and by is not None:
            require_recent(by, self.now_us())

        def apply(connection: Connection) -> UserSummary:
            if not grants and by is not None and stored.lock_operators(connection) == [user_id]:
                message = "The last operator stays: make another user an operator first."
                raise LegatoError(Reason.REQUEST_INVALID, message)
            change(connection, self._user(connection, user_id))
            [summary] = stored.summarise(connection, [self._user(connection, user_id)])
            self._audit.append(connection, action, by, object_id=user_id)
            return summary

        return await self._database.write(apply)

    def _put_link(self, connection: Connection, user_id: str, code: str, expires_at_us: int) -> None:
        digest = self._peppers.digest_code(codes.LINK, codes.plain(code))
        stored_codes.put_link(connection, user_id, digest, expires_at_us)

    def _user(self, connection: Connection, user_id: str) -> User:
        return stored.require_user(connection, checks.id_of("user", user_id), locks=True)
