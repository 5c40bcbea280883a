"""Administers users, for the command line and for operators, and reads the audit log."""

from typing import Final

from services.auth import checks, paging
from services.auth.audit.log import AuditLog
from services.auth.paging import Page, Position
from services.auth.peppers import Peppers
from services.auth.records.audit import AuditEvent
from services.auth.records.times import DAY_US, to_micros
from services.auth.records.users import Membership, User, UserSummary
from services.auth.store import Connection
from services.auth.store import audit as stored_audit
from services.auth.store import codes as stored_codes
from services.auth.store import sessions as stored_sessions
from services.auth.store import users as stored
from services.auth.store.accounts import lock_account
from services.auth.users import codes
from services.chassis.access_tokens import Access, current_access
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import require_recent
from services.chassis.timing.deadlines import Clock

LINK_VALID_US: Final = 600_000_000
FIRST_LINK_VALID_US: Final = 7 * DAY_US


class UserAdmin:
    def __init__(self, database: Database, peppers: Peppers, clock: Clock, audit: AuditLog) -> None:
        self._database = database
        self._peppers = peppers
        self._clock = clock
        self._audit = audit

    async def create(self, name: str, email: str, account_id: str, role: int) -> tuple[UserSummary, str, int]:
        """Returns a new user, and the code of a sign-in link with its expiry."""
        now_us, by, code = self._now_us(), current_access.get(), codes.mint_code()
        user = User(codes.mint_id("user"), checks.name(name), checks.email(email), now_us)
        wanted = checks.role(role) if account_id else None

        def create(connection: Connection) -> UserSummary:
            if wanted is not None and lock_account(connection, checks.id_of("account", account_id)) is None:
                raise checks.not_found("account")
            # Two that create the same user at once look one after the other. A unique index would be too strict:
            # whoever accepts an invitation may have somebody else's address, as nobody has verified either.
            stored_audit.lock_head(connection)
            if user.email and stored.has_email(connection, user.email):
                message = "There is a user with this email address already."
                raise LegatoError(Reason.REQUEST_INVALID, message, param="email")
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
        now_us, by, code = self._now_us(), current_access.get(), codes.mint_code()

        def create(connection: Connection) -> None:
            if self._user(connection, user_id).disabled_at_us is not None:
                raise LegatoError(Reason.REQUEST_INVALID, "This user is disabled.")
            self._put_link(connection, user_id, code, now_us + LINK_VALID_US)
            self._audit.append(connection, "sign_in_link.created", by, object_id=user_id)

        await self._database.write(create)
        return code, now_us + LINK_VALID_US

    async def disable(self, user_id: str, *, enable: bool) -> UserSummary:
        """Disables a user and ends their sessions; or enables them again."""
        now_us, by = self._now_us(), current_access.get()
        if enable and by is not None:
            require_recent(by, now_us)

        def disable(connection: Connection) -> UserSummary:
            if not enable and by is not None:
                self._keep_an_operator(connection, user_id)
            user = self._user(connection, user_id)
            disabled_at_us = None if enable else user.disabled_at_us or now_us
            stored.change_user(connection, user_id, disabled_at_us=disabled_at_us)
            if not enable:
                stored_sessions.end_sessions(connection, user_id)
                stored_codes.remove_link(connection, user_id)
            summary = stored.summarise(connection, [self._user(connection, user_id)])[0]
            self._audit.append(connection, "user.enabled" if enable else "user.disabled", by, object_id=user_id)
            return summary

        return await self._database.write(disable)

    async def set_operator(self, user_id: str, *, is_operator: bool) -> UserSummary:
        """Makes a user an operator, or no longer one. The last operator stays one, unless the command line, which can
        make another, says otherwise."""
        by = current_access.get()
        if is_operator and by is not None:
            require_recent(by, self._now_us())

        def change(connection: Connection) -> UserSummary:
            if not is_operator and by is not None:
                self._keep_an_operator(connection, user_id)
            self._user(connection, user_id)
            stored.change_user(connection, user_id, is_operator=is_operator)
            stored_sessions.request_new_tokens(connection, user_id)
            summary = stored.summarise(connection, [self._user(connection, user_id)])[0]
            action = "user.made_operator" if is_operator else "user.no_longer_operator"
            self._audit.append(connection, action, by, object_id=user_id)
            return summary

        return await self._database.write(change)

    async def list_events(
        self, page_size: int, page_token: str, *, account_id: str = "", user_id: str = "", action: str = ""
    ) -> tuple[Page[AuditEvent], dict[str, str]]:
        """Lists audit events, the newest first, with the names of their users: all, or those that every filter fits."""
        size, after = paging.page_size(page_size), paging.page_token(page_token)

        def look(connection: Connection) -> tuple[Page[AuditEvent], dict[str, str]]:
            before = None if after is None else after.created_at_us
            found = stored_audit.list_events(
                connection, before, size + 1, account_id=account_id, user_id=user_id, action=action
            )
            names = stored.names_of(connection, [event.user_id for event in found])
            return paging.to_page(found, size, lambda event: Position(event.event_no, "event")), names

        return await self._database.read(look)

    async def record(self, action: str, account_id: str, object_id: str) -> None:
        """Notes what an operator is about to do in another service."""
        by = current_access.get()
        if object_id:
            checks.id_of("booking", object_id.replace("-", "_"))

        def append(connection: Connection) -> None:
            # Metering knows no accounts, only balances: a mistyped id would create credit that no account has.
            if account_id and lock_account(connection, checks.id_of("account", account_id)) is None:
                raise checks.not_found("account")
            self._audit.append(connection, action, by, account_id=account_id, object_id=object_id)

        await self._database.write(append)

    async def verify_events(self) -> tuple[int, list[int]]:
        return await self._database.read(self._audit.verify)

    def _put_link(self, connection: Connection, user_id: str, code: str, expires_at_us: int) -> None:
        digest = self._peppers.digest_code(codes.LINK, codes.plain(code))
        stored_codes.put_link(connection, user_id, digest, expires_at_us)

    def _keep_an_operator(self, connection: Connection, user_id: str) -> None:
        """Raises if nobody else could administer the service after this."""
        if stored.lock_operators(connection) == [user_id]:
            message = "The last operator stays: make somebody else an operator first."
            raise LegatoError(Reason.REQUEST_INVALID, message)

    def _user(self, connection: Connection, user_id: str) -> User:
        user = stored.find_user(connection, checks.id_of("user", user_id), locks=True)
        if user is None:
            raise checks.not_found("user")
        return user

    def _now_us(self) -> int:
        return to_micros(self._clock.now())


def required_access() -> Access:
    """Returns the access of the current call; raises on a socket without a console, where no call has any."""
    from services.chassis.access_tokens import access_invalid

    access = current_access.get()
    if access is None:
        raise access_invalid()
    return access
