"""Lets members manage keys of their account: owners all of them, members those that they created."""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from services.auth import checks, key_format, paging
from services.auth.audit.log import AuditLog
from services.auth.changes import HOLDS_EVERYWHERE_AFTER_S, GivenLimits, Sleep
from services.auth.keys.key_admin import IssuedKey
from services.auth.paging import Position
from services.auth.peppers import Peppers
from services.auth.records.accounts import ALL_CLASSES, NO_LIMITS, ClassAllowance, KeyLimits
from services.auth.records.keys import Key, Scope
from services.auth.records.times import to_micros
from services.auth.store import Connection
from services.auth.store import keys as stored
from services.auth.store import users as stored_users
from services.auth.store.accounts import lock_account
from services.auth.store.keys import ALL_KEYS, KeyChoice
from services.chassis.access_tokens import Access, AccountRole
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import role_missing
from services.chassis.timing.deadlines import Clock

# Begins the token of a page before another.
_BACKWARDS: Final = "~"
_FORM_ID: Final = re.compile("[0-9A-Za-z_-]{0,100}")


@dataclass(frozen=True, slots=True)
class ShownKey:
    key: Key
    created_by_name: str
    may_change: bool


class KeyPage(NamedTuple):
    items: list[ShownKey]
    # Both empty where the list ends.
    next_token: str
    previous_token: str
    # Those that were also asked for, whatever page they are on; in no order.
    also: list[ShownKey]


class IdentifiedKey(NamedTuple):
    key: ShownKey
    # The one that it replaces, and the one that replaces it.
    replaced: ShownKey | None
    replaced_by: ShownKey | None


class KeyTemplate(NamedTuple):
    """The properties of a new key."""

    name: str
    scopes: tuple[Scope, ...]
    limits: KeyLimits
    allowed_classes: ClassAllowance
    replaces_key_id: str | None = None


class AccountKeys:
    def __init__(
        self,
        database: Database,
        peppers: Peppers,
        clock: Clock,
        audit: AuditLog,
        service_limits: KeyLimits = NO_LIMITS,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Prepares it; `service_limits` are what a key has without limits of its own, where there are any."""
        self._database = database
        self._peppers = peppers
        self._clock = clock
        self._audit = audit
        self._service_limits = service_limits
        self._sleep = sleep

    async def create(
        self,
        by: Access,
        name: str,
        scopes: Iterable[Scope | None],
        days: int | None,
        limits: GivenLimits,
        form_id: str,
        allowed_classes: ClassAllowance = ALL_CLASSES,
    ) -> tuple[ShownKey, str]:
        """Returns a new key and its secret; the secret is empty if the form has created one before."""
        template = KeyTemplate(
            checks.key_name(name), checks.scopes(scopes), limits.checked()(NO_LIMITS), allowed_classes
        )
        return await self._issue(by, "key.created", lambda connection: template, days, form_id)

    async def rotate(self, by: Access, key_id: str, days: int | None, form_id: str) -> tuple[ShownKey, str]:
        """Returns a new key like an existing one, which stays valid."""

        def like(connection: Connection) -> KeyTemplate:
            before = self._own(connection, by, key_id)
            return KeyTemplate(before.name, before.scopes, before.limits, before.allowed_classes, key_id)

        return await self._issue(by, "key.rotated", like, days, form_id)

    async def rename(self, by: Access, key_id: str, name: str) -> ShownKey:
        checked = checks.key_name(name)
        return await self._change(by, "key.renamed", key_id, lambda key: replace(key, name=checked), waits=False)

    async def update(
        self, by: Access, key_id: str, limits: GivenLimits, allowed_classes: ClassAllowance | None = None
    ) -> ShownKey:
        """Changes a key's limits, and the classes it may use unless they are None."""
        change_limits = limits.checked()

        def change(key: Key) -> Key:
            classes = key.allowed_classes if allowed_classes is None else allowed_classes
            return replace(key, limits=change_limits(key.limits), allowed_classes=classes)

        return await self._change(by, "key.updated", key_id, change, waits=True)

    async def revoke(self, by: Access, key_id: str) -> ShownKey:
        """Revokes a key; returns when every edge refuses it."""
        now_us = to_micros(self._clock.now())
        return await self._change(
            by, "key.revoked", key_id, lambda key: replace(key, revoked_at_us=key.revoked_at_us or now_us), waits=True
        )

    async def list_page(
        self,
        by: Access,
        page_size: int,
        page_token: str,
        choice: KeyChoice = ALL_KEYS,
        also_key_ids: Sequence[str] = (),
    ) -> KeyPage:
        size, also_ids = paging.page_size(page_size), checks.key_ids(also_key_ids, "also_key_ids")
        is_backwards = page_token.startswith(_BACKWARDS)
        position = paging.page_token(page_token.removeprefix(_BACKWARDS))
        asked = choice._replace(newest_first=choice.newest_first != is_backwards)

        def look(connection: Connection) -> KeyPage:
            found = stored.list_keys(connection, by.account_id, position, size + 1, asked) or []
            items, has_more = found[:size], len(found) > size
            shown = self._shown(connection, by, [*items, *stored.find_keys(connection, by.account_id, also_ids)])
            page, also = shown[: len(items)], shown[len(items) :]
            if is_backwards:
                page.reverse()
            has_next, has_previous = (True, has_more) if is_backwards else (has_more, position is not None)
            return KeyPage(
                page,
                _token(page[-1]) if page and has_next else "",
                _BACKWARDS + _token(page[0]) if page and has_previous else "",
                also,
            )

        return await self._database.read(look)

    async def identify(self, by: Access, key_id: str) -> IdentifiedKey:
        def look(connection: Connection) -> IdentifiedKey:
            key = self._of_account(connection, by, key_id)
            replaced = stored.find_key(connection, key.replaces_key_id) if key.replaces_key_id else None
            successor = stored.find_successor(connection, key_id)
            shown = self._shown(connection, by, [each for each in (key, replaced, successor) if each is not None])
            by_id = {each.key.key_id: each for each in shown}
            replaces = by_id.get(key.replaces_key_id) if key.replaces_key_id else None
            return IdentifiedKey(by_id[key_id], replaces, by_id[successor.key_id] if successor else None)

        return await self._database.read(look)

    async def attest(self, by: Access, key_id: str) -> Access:
        """Returns claims that also name a key of the account, for services that do not know whose a key is."""

        def look(connection: Connection) -> Access:
            key = self._of_account(connection, by, key_id)
            # Owners decide what playgrounds may spend, though they cannot change their keys.
            if by.role is not AccountRole.OWNER and not _may_change(by, key):
                raise role_missing()
            return replace(by, key_id=key.key_id, replaced_key_id=key.replaces_key_id or "")

        return await self._database.read_briefly(look)

    async def _issue(
        self,
        by: Access,
        action: str,
        like: Callable[[Connection], KeyTemplate],
        days: int | None,
        form_id: str,
    ) -> tuple[ShownKey, str]:
        if not _FORM_ID.fullmatch(form_id):
            raise LegatoError(Reason.REQUEST_INVALID, "A form's id has up to 100 letters and digits.", param="form_id")
        now, secret = self._clock.now(), key_format.mint()
        expires_at_us = checks.expires_at_us(now, days)

        def issue(connection: Connection) -> tuple[ShownKey, str]:
            account = lock_account(connection, by.account_id)
            if account is None:
                raise checks.not_found("account")
            if stored_users.role_in(connection, by.account_id, by.user_id) < AccountRole.MEMBER:
                # Removed a moment ago, when the keys that they had were revoked.
                raise role_missing()
            before = stored.find_key_of_form(connection, by.account_id, form_id) if form_id else None
            if before is not None:
                return self._shown(connection, by, [before])[0], ""
            template = like(connection)
            self._require_within(template.limits, account.limits)
            if template.replaces_key_id is None:
                # A rotated key stays what it is: what the account no longer allows, it cannot use either way.
                checks.require_classes_within(template.allowed_classes, account.allowed_classes)
            digest = self._peppers.digest(secret)
            key = Key(
                key_id=secret.key_id,
                account_id=by.account_id,
                name=template.name,
                scopes=template.scopes,
                created_at_us=to_micros(now),
                expires_at_us=expires_at_us,
                revoked_at_us=None,
                pepper_version=digest.pepper_version,
                limits=template.limits,
                created_by=by.user_id,
                replaces_key_id=template.replaces_key_id,
                allowed_classes=template.allowed_classes,
            )
            stored.add_key(connection, key, digest, form_id or None)
            shown = self._shown(connection, by, [key])[0]
            self._audit.append(connection, action, by, account_id=by.account_id, object_id=key.key_id)
            return shown, IssuedKey(key, secret).secret.reveal()

        return await self._database.write(issue)

    async def _change(
        self, by: Access, action: str, key_id: str, change: Callable[[Key], Key], *, waits: bool
    ) -> ShownKey:
        checks.id_of("key", key_id)

        def apply(connection: Connection) -> ShownKey:
            account = lock_account(connection, by.account_id)
            before = self._own(connection, by, key_id)
            after = stored.change_key(connection, key_id, change)
            if account is None or after is None:
                raise checks.not_found("key")
            if after.limits != before.limits:
                self._require_within(after.limits, account.limits)
            if after.allowed_classes != before.allowed_classes:
                checks.require_classes_within(after.allowed_classes, account.allowed_classes)
            shown = self._shown(connection, by, [after])[0]
            self._audit.append(connection, action, by, account_id=by.account_id, object_id=key_id)
            return shown

        shown = await self._database.write(apply)
        if waits:
            await self._sleep(HOLDS_EVERYWHERE_AFTER_S)
        return shown

    def _own(self, connection: Connection, by: Access, key_id: str) -> Key:
        key = self._of_account(connection, by, key_id)
        if not _may_change(by, key):
            raise role_missing()
        return key

    def _of_account(self, connection: Connection, by: Access, key_id: str) -> Key:
        key = stored.find_key(connection, checks.id_of("key", key_id))
        if key is None or key.account_id != by.account_id:
            raise checks.not_found("key")
        return key

    def _require_within(self, limits: KeyLimits, of_account: KeyLimits) -> None:
        """Raises if a key would get more than the account or the service gives: those are the operators' to raise."""
        for own, *others in zip(limits.values, of_account.values, self._service_limits.values, strict=True):
            if own is not None and any(other is not None and own > other for other in others):
                message = "A key's limit cannot be above the account's, nor above the service's."
                raise LegatoError(Reason.REQUEST_INVALID, message)

    def _shown(self, connection: Connection, by: Access, found: list[Key]) -> list[ShownKey]:
        names = stored_users.names_of(connection, [key.created_by for key in found])
        return [ShownKey(key, names.get(key.created_by, ""), _may_change(by, key)) for key in found]


def _token(shown: ShownKey) -> str:
    return paging.to_page_token(Position(shown.key.created_at_us, shown.key.key_id))


def _may_change(by: Access, key: Key) -> bool:
    if key.playground_user_id is not None:
        return False
    return by.role is AccountRole.OWNER or (by.role is AccountRole.MEMBER and key.created_by == by.user_id)
