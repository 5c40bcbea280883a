"""Administers accounts and keys: creates, changes, suspends and revokes them."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, Generic, TypeVar

from services.auth import checks, keys
from services.auth.records import (
    ALL_CLASSES,
    Account,
    ClassAllowance,
    Key,
    KeyLimits,
    PepperUse,
    Position,
    Scope,
    to_micros,
)
from services.auth.store import accounts as stored_accounts
from services.auth.store import keys as stored_keys
from services.auth.users.audit import AuditLog
from services.auth.users.store import Connection
from services.auth.users.store import users as stored_users
from services.chassis.access_tokens import current_access
from services.chassis.database.database import Database
from services.chassis.model_classes import DEFAULT_CLASS
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock

# Callers accept a cached key for at most 800 ms after they asked about it; the rest allows for clock drift. So long
# after a commit, nobody acts on the previous state. See docs/revocation.md.
HOLDS_EVERYWHERE_AFTER_S: Final = 0.85

# Without characters that look like another.
_ACCOUNT_ID_ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"
_ACCOUNT_ID_LENGTH: Final = 16

ItemT = TypeVar("ItemT")
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Page(Generic[ItemT]):
    items: list[ItemT]
    # Empty on the last page.
    next_token: str


@dataclass(frozen=True, slots=True)
class IssuedKey:
    key: Key
    # Shown to its owner once; it is not stored.
    secret: keys.ApiKey


@dataclass(frozen=True, slots=True)
class GivenLimits:
    """Requested changes of limits. None keeps a limit, 0 removes it."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None

    def checked(self) -> Callable[[KeyLimits], KeyLimits]:
        """Validates them; returns how to change the limits."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        kept = {name: checks.limit(name, value) for name, value in given.items() if value is not None}
        return lambda limits: replace(limits, **kept)


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
        size, after, wanted = checks.page_size(page_size), checks.page_token(page_token), checks.query(query)
        found = await self._database.read(
            lambda connection: stored_accounts.list_accounts(connection, after, size + 1, wanted)
        )
        return to_page(found, size, lambda account: Position(account.created_at_us, account.account_id))

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


class KeyAdmin:
    def __init__(
        self,
        database: Database,
        peppers: keys.Peppers,
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
        secret = keys.mint()
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
        size, after = checks.page_size(page_size), checks.page_token(page_token)
        found = await self._database.read(
            lambda connection: stored_keys.list_keys(connection, account_id, after, size + 1)
        )
        if found is None:
            raise checks.not_found("account")
        return to_page(found, size, lambda key: Position(key.created_at_us, key.key_id))

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


def to_page(found: list[ItemT], size: int, position_of: Callable[[ItemT], Position]) -> Page[ItemT]:
    """Builds a page; `found` has one item more if there is another page."""
    items = found[:size]
    return Page(items, checks.to_page_token(position_of(items[-1])) if len(found) > size else "")
