"""Administers accounts and keys: creates, changes, suspends and revokes them."""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from services.auth import checks, paging
from services.auth.audit.log import AuditLog
from services.auth.changes import HOLDS_EVERYWHERE_AFTER_S, GivenLimits, Sleep
from services.auth.paging import Page, Position
from services.auth.records.accounts import Account, ClassAllowance
from services.auth.records.times import to_micros
from services.auth.store import Connection
from services.auth.store import accounts as stored_accounts
from services.chassis.access_tokens import current_access
from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock
from services.rules.model_classes import DEFAULT_CLASS

# Without characters that look like another.
_ACCOUNT_ID_ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"
_ACCOUNT_ID_LENGTH: Final = 16


class AccountAdmin:
    def __init__(
        self, database: Database, audit: AuditLog, clock: Clock, log: Log, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._database = database
        self._audit = audit
        self._clock = clock
        self._log = log
        self._sleep = sleep

    async def create(self, name: str) -> Account:
        account = Account(
            account_id="acct_" + "".join(secrets.choice(_ACCOUNT_ID_ALPHABET) for _ in range(_ACCOUNT_ID_LENGTH)),
            name=checks.name(name),
            created_at_us=to_micros(self._clock.now()),
            preferred_class=DEFAULT_CLASS,
        )
        by = current_access.get()

        def add(connection: Connection) -> None:
            stored_accounts.add_account(connection, account)
            self._audit.append(connection, "account.created", by, account_id=account.account_id)

        await self._database.write(add)
        self._log.info("account.created", account_id=account.account_id)
        return account

    async def get(self, account_id: str) -> Account:
        checks.id_of("account", account_id)
        account = await self._database.read_briefly(
            lambda connection: stored_accounts.find_account(connection, account_id)
        )
        if account is None:
            raise checks.not_found("account")
        return account

    async def list_page(self, page_size: int, page_token: str, query: str = "") -> Page[Account]:
        size, after, wanted = paging.page_size(page_size), paging.page_token(page_token), checks.query(query)
        found = await self._database.read(
            lambda connection: stored_accounts.list_accounts(connection, after, size + 1, wanted)
        )
        return paging.to_page(found, size, lambda account: Position(account.created_at_us, account.account_id))

    async def update(
        self,
        account_id: str,
        preferred_class: str | None,
        limits: GivenLimits,
        grounding: Mapping[str, bool],
        name: str | None = None,
        allowed_classes: ClassAllowance | None = None,
    ) -> Account:
        """Updates an account; None keeps a field, as does a switch missing in `grounding`. Returns when the change is
        in effect on every edge."""
        if preferred_class is not None:
            checks.preferred_class(preferred_class)
        change_limits = limits.checked()
        checked_name = None if name is None else checks.name(name)

        def change(account: Account) -> Account:
            return replace(
                account,
                name=account.name if checked_name is None else checked_name,
                preferred_class=account.preferred_class if preferred_class is None else preferred_class,
                limits=change_limits(account.limits),
                grounding=replace(account.grounding, **grounding),
                allowed_classes=account.allowed_classes if allowed_classes is None else allowed_classes,
            )

        return await self._change("account.updated", account_id, change)

    async def suspend(self, account_id: str) -> Account:
        """Suspends an account; returns when every edge refuses its keys. If it is suspended already, its time is
        kept."""
        now_us = to_micros(self._clock.now())

        def suspended(account: Account) -> Account:
            return account if account.suspended_at_us is not None else replace(account, suspended_at_us=now_us)

        return await self._change("account.suspended", account_id, suspended)

    async def resume(self, account_id: str) -> Account:
        """Resumes an account; returns when every edge accepts its keys again."""
        return await self._change("account.resumed", account_id, lambda account: replace(account, suspended_at_us=None))

    async def _change(self, event: str, account_id: str, change: Callable[[Account], Account]) -> Account:
        checks.id_of("account", account_id)
        by = current_access.get()

        def apply(connection: Connection) -> Account | None:
            account = stored_accounts.change_account(connection, account_id, change)
            if account is not None:
                self._audit.append(connection, event, by, account_id=account_id, object_id=account_id)
            return account

        account = await self._database.write(apply)
        if account is None:
            raise checks.not_found("account")
        self._log.info(event, account_id=account_id)
        # Even if nothing changed: another caller may have made the change a moment ago.
        await self._sleep(HOLDS_EVERYWHERE_AFTER_S)
        return account
