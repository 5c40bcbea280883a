"""Creates, changes, suspends and resumes accounts: for operators, and for owners what is theirs to set."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from services.auth import checks, paging
from services.auth.paging import Page, Position
from services.auth.parts import Domain, is_operator, reads
from services.auth.records.accounts import Account, ClassAllowance
from services.auth.store import Connection
from services.auth.store import accounts as stored
from services.auth.users.codes import mint_id
from services.chassis.access_tokens import Access
from services.chassis.rpc.access_check import role_missing
from services.rules.model_classes import DEFAULT_CLASS


class Accounts(Domain):
    async def create(self, by: Access | None, name: str) -> Account:
        account = Account(mint_id("acct"), checks.name(name), self.now_us(), DEFAULT_CLASS)

        def add(connection: Connection) -> None:
            stored.add_account(connection, account)
            self._audit.append(connection, "account.created", by, account_id=account.account_id)

        await self._database.write(add)
        self._log.info("account.created", account_id=account.account_id)
        return account

    @reads
    def get(self, connection: Connection, account_id: str) -> Account:
        return stored.require_account(connection, checks.id_of("account", account_id))

    async def list_page(self, page_size: int, page_token: str, query: str = "") -> Page[Account]:
        size, after, wanted = paging.page_size(page_size), paging.page_token(page_token), checks.query(query)
        found = await self._database.read(lambda connection: stored.list_accounts(connection, after, size + 1, wanted))
        return paging.to_page(found, size, lambda account: Position(account.created_at_us, account.account_id))

    async def update(
        self,
        by: Access | None,
        account_id: str,
        *,
        name: str | None = None,
        preferred_class: str | None = None,
        allowed_classes: ClassAllowance | None = None,
        limits: Mapping[str, int] = {},
        grounding: Mapping[str, bool] = {},
    ) -> Account:
        """Changes what is given; returns when that is in effect on every edge. Limits are the operators' to change."""
        if limits and not is_operator(by):
            raise role_missing()
        given = {
            "name": None if name is None else checks.name(name),
            "preferred_class": None if preferred_class is None else checks.preferred_class(preferred_class),
            "allowed_classes": allowed_classes,
        }
        changes: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
        checked_limits = checks.limits(limits)

        def change(account: Account) -> Account:
            return replace(
                account,
                limits=replace(account.limits, **checked_limits),
                grounding=replace(account.grounding, **grounding),
                **changes,
            )

        return await self._change(by, "account.updated", account_id, change)

    async def suspend(self, by: Access | None, account_id: str) -> Account:
        """Suspends an account; returns when every edge refuses its keys. If it is suspended already, its time is
        kept."""
        now_us = self.now_us()
        return await self._change(
            by,
            "account.suspended",
            account_id,
            lambda account: replace(account, suspended_at_us=account.suspended_at_us or now_us),
        )

    async def resume(self, by: Access | None, account_id: str) -> Account:
        """Resumes an account; returns when every edge accepts its keys again."""
        return await self._change(
            by, "account.resumed", account_id, lambda account: replace(account, suspended_at_us=None)
        )

    async def _change(
        self, by: Access | None, event: str, account_id: str, change: Callable[[Account], Account]
    ) -> Account:
        checks.id_of("account", account_id)

        def apply(connection: Connection) -> Account:
            account = stored.change_account(connection, account_id, change)
            self._audit.append(connection, event, by, account_id=account_id, object_id=account_id)
            return account

        account = await self._database.write(apply)
        self._log.info(event, account_id=account_id)
        await self._hold_everywhere()
        return account
