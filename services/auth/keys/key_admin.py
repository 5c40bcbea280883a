"""Administers keys for operators: creates, changes and revokes them."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from services.auth import checks, key_format, paging
from services.auth.audit.log import AuditLog
from services.auth.changes import HOLDS_EVERYWHERE_AFTER_S, GivenLimits, Sleep
from services.auth.paging import Page, Position
from services.auth.peppers import Peppers
from services.auth.records.accounts import ALL_CLASSES, Account, ClassAllowance
from services.auth.records.keys import Key, PepperUse, Scope
from services.auth.records.times import to_micros
from services.auth.store import Connection
from services.auth.store import accounts as stored_accounts
from services.auth.store import keys as stored_keys
from services.auth.store import users as stored_users
from services.chassis.access_tokens import current_access
from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock


@dataclass(frozen=True, slots=True)
class IssuedKey:
    key: Key
    # Shown to its owner once; it is not stored.
    secret: key_format.ApiKey


class KeyAdmin:
    def __init__(
        self,
        database: Database,
        peppers: Peppers,
        audit: AuditLog,
        clock: Clock,
        log: Log,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._database = database
        self._audit = audit
        self._peppers = peppers
        self._clock = clock
        self._log = log
        self._sleep = sleep

    async def create(
        self,
        account_id: str,
        name: str,
        scopes: Iterable[Scope | None] = (),
        expires_after_days: int | None = None,
        allowed_classes: ClassAllowance = ALL_CLASSES,
    ) -> IssuedKey:
        now, by = self._clock.now(), current_access.get()
        secret = key_format.mint()
        digest = self._peppers.digest(secret)
        key = Key(
            key_id=secret.key_id,
            account_id=checks.id_of("account", account_id),
            name=checks.key_name(name),
            scopes=checks.scopes(scopes),
            created_at_us=to_micros(now),
            expires_at_us=checks.expires_at_us(now, expires_after_days),
            revoked_at_us=None,
            pepper_version=digest.pepper_version,
            created_by=by.user_id if by else "",
            allowed_classes=allowed_classes,
        )

        def add(connection: Connection) -> bool:
            account = stored_accounts.lock_account(connection, account_id)
            if account is not None:
                checks.require_classes_within(allowed_classes, account.allowed_classes)
            is_added = stored_keys.add_key(connection, key, digest)
            if is_added:
                self._audit.append(connection, "key.created", by, account_id=account_id, object_id=key.key_id)
            return is_added

        if not await self._database.write(add):
            raise checks.not_found("account")
        self._log.info("key.created", account_id=account_id, key_id=key.key_id)
        return IssuedKey(key, secret)

    async def list_page(self, account_id: str, page_size: int, page_token: str) -> Page[Key]:
        checks.id_of("account", account_id)
        size, after = paging.page_size(page_size), paging.page_token(page_token)
        found = await self._database.read(
            lambda connection: stored_keys.list_keys(connection, account_id, after, size + 1)
        )
        if found is None:
            raise checks.not_found("account")
        return paging.to_page(found, size, lambda key: Position(key.created_at_us, key.key_id))

    async def get(self, key_id: str) -> tuple[Key, Account, str]:
        """Returns a key, its account, and the name of the user who created it, if one did."""
        checks.id_of("key", key_id)

        def look(connection: Connection) -> tuple[Key, Account, str] | None:
            key = stored_keys.find_key(connection, key_id)
            account = None if key is None else stored_accounts.find_account(connection, key.account_id)
            if key is None or account is None:
                return None
            return key, account, stored_users.names_of(connection, [key.created_by]).get(key.created_by, "")

        found = await self._database.read(look)
        if found is None:
            raise checks.not_found("key")
        return found

    async def update(self, key_id: str, limits: GivenLimits, allowed_classes: ClassAllowance | None = None) -> Key:
        """Changes a key's limits, and the classes it may use unless they are None; returns when that is in effect on
        every edge."""
        change_limits = limits.checked()

        def change(key: Key) -> Key:
            classes = key.allowed_classes if allowed_classes is None else allowed_classes
            return replace(key, limits=change_limits(key.limits), allowed_classes=classes)

        return await self._change("key.updated", key_id, change)

    async def revoke(self, key_id: str) -> Key:
        """Revokes a key; returns when every edge refuses it. If it is revoked already, its time is kept."""
        now_us = to_micros(self._clock.now())

        def revoked(key: Key) -> Key:
            return key if key.revoked_at_us is not None else replace(key, revoked_at_us=now_us)

        return await self._change("key.revoked", key_id, revoked)

    async def count_by_pepper(self) -> list[PepperUse]:
        """Counts the valid keys by pepper version."""
        now_us = to_micros(self._clock.now())
        return await self._database.read(lambda connection: stored_keys.count_by_pepper(connection, now_us))

    async def _change(self, event: str, key_id: str, change: Callable[[Key], Key]) -> Key:
        checks.id_of("key", key_id)
        by = current_access.get()

        def apply(connection: Connection) -> Key | None:
            before = stored_keys.find_key(connection, key_id)
            key = stored_keys.change_key(connection, key_id, change)
            if key is not None and before is not None and key.allowed_classes != before.allowed_classes:
                account = stored_accounts.find_account(connection, key.account_id)
                checks.require_classes_within(key.allowed_classes, account.allowed_classes if account else ALL_CLASSES)
            if key is not None:
                self._audit.append(connection, event, by, account_id=key.account_id, object_id=key_id)
            return key

        key = await self._database.write(apply)
        if key is None:
            raise checks.not_found("key")
        self._log.info(event, account_id=key.account_id, key_id=key_id)
        # Even if nothing changed: another caller may have made the change a moment ago.
        await self._sleep(HOLDS_EVERYWHERE_AFTER_S)
        return key
