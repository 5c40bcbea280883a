"""Lists what the audit log tells operators, owners and users, and notes what operators do in other services."""

from services.auth import checks, paging
from services.auth.paging import Page, Position
from services.auth.parts import Domain, is_operator, reads
from services.auth.records.audit import AuditEvent
from services.auth.store import Connection
from services.auth.store import audit as stored
from services.auth.store.accounts import lock_account
from services.auth.store.users import names_of
from services.chassis.access_tokens import Access, AccountRole, current_access
from services.chassis.rpc.access_check import role_missing


class AuditEvents(Domain):
    async def list_page(
        self, page_size: int, page_token: str, *, account_id: str = "", user_id: str = "", action: str = ""
    ) -> tuple[Page[AuditEvent], dict[str, str]]:
        """Lists audit events, the newest first, with the names of their users: all, or those that every filter fits."""
        by, size, after = current_access.get(), paging.page_size(page_size), paging.page_token(page_token)
        if by is not None and not _may_list(by, account_id, user_id):
            raise role_missing()

        def look(connection: Connection) -> tuple[Page[AuditEvent], dict[str, str]]:
            before = None if after is None else after.created_at_us
            found = stored.list_events(
                connection, before, size + 1, account_id=account_id, user_id=user_id, action=action
            )
            names = names_of(connection, [event.user_id for event in found])
            return paging.to_page(found, size, lambda event: Position(event.event_no, "event")), names

        return await self._database.read(look)

    async def record(self, action: str, account_id: str, object_id: str) -> None:
        """Notes what an operator is about to do in another service."""
        by = current_access.get()
        if object_id:
            checks.id_of("booking", object_id.replace("-", "_"))

        def append(connection: Connection) -> None:
            # Metering knows no accounts, only balances: a mistyped id would create credit that no account has.
            if account_id:
                lock_account(connection, checks.id_of("account", account_id))
            self._audit.append(connection, action, by, account_id=account_id, object_id=object_id)

        await self._database.write(append)

    @reads
    def verify(self, connection: Connection) -> tuple[int, list[int]]:
        return self._audit.verify(connection)


def _may_list(by: Access, account_id: str, user_id: str) -> bool:
    is_owner = by.role is AccountRole.OWNER and account_id == by.account_id != ""
    return is_operator(by) or is_owner or user_id == by.user_id
