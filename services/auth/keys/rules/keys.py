"""Creates, changes, revokes and lists keys, for operators and for members of an account.

Operators may touch every key. Owners touch those of their account, members those that they created themselves, and
neither gives a key more than the account has.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, NamedTuple

from legato_protos.metering.v1.spend_limits_pb2 import Spend
from services.auth.core import checks, key_format, paging
from services.auth.core.paging import Position
from services.auth.core.parts import Domain, Parts, is_operator, reads
from services.auth.core.records.accounts import ALL_CLASSES, NO_LIMITS, Account, ClassAllowance, KeyLimits
from services.auth.core.store import Connection, get
from services.auth.core.store import accounts as stored_accounts
from services.auth.core.store import users as stored_users
from services.auth.core.times import to_micros
from services.auth.keys.records import NO_SPEND_LIMITS, Key, KeySpendLimits, PepperUse, Scope
from services.auth.keys.rules import checks as key_checks
from services.auth.keys.rules.changes import key_changes
from services.auth.keys.rules.names import base_of, name_of_successor
from services.auth.keys.rules.spend_limits import SpendLimiter
from services.auth.keys.store import keys as stored
from services.auth.keys.store.keys import ALL_KEYS, KeyChoice
from services.chassis.access_tokens import Access, AccountRole
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import role_missing
from services.chassis.sentence import Sentence

# Begins the token of a page before another.
_BACKWARDS: Final = "~"
_FORM_ID: Final = re.compile("[0-9A-Za-z_-]{0,100}")


@dataclass(frozen=True, slots=True)
class ShownKey:
    key: Key
    created_by_name: str
    # Whether the caller may rename, change, rotate and revoke it.
    may_change: bool


class IssuedKey(NamedTuple):
    shown: ShownKey
    # Shown to its owner once, and not stored; empty if the form has created the key before.
    secret: str
    spend_limits: KeySpendLimits = NO_SPEND_LIMITS


class KeyPage(NamedTuple):
    items: list[ShownKey]
    # Both empty where the list ends.
    next_token: str
    previous_token: str
    # Those that were also asked for, whatever page they are on; in no order.
    also: list[ShownKey]


class FoundKey(NamedTuple):
    shown: ShownKey
    account: Account
    # The one that it replaces, and the one that replaces it.
    replaced: ShownKey | None
    replaced_by: ShownKey | None


class KeyTemplate(NamedTuple):
    """The properties of a new key."""

    name: str
    scopes: tuple[Scope, ...] = ()
    limits: KeyLimits = NO_LIMITS
    allowed_classes: ClassAllowance = ALL_CLASSES
    replaces_key_id: str | None = None


# Limits what a key may spend that is created next, by its id; returns the limits.
LimitSpending = Callable[[str], Awaitable[KeySpendLimits]]


class Keys(Domain):
    def __init__(self, parts: Parts, limiter: SpendLimiter) -> None:
        super().__init__(parts)
        self._limiter = limiter
        self.service_limits = parts.service_limits

    async def create(
        self,
        by: Access | None,
        account_id: str,
        name: str,
        *,
        scopes: Iterable[Scope | None] = (),
        expires_after_days: int | None = None,
        limits: Mapping[str, int] = {},
        allowed_classes: ClassAllowance = ALL_CLASSES,
        spend_limits: Mapping[str, int] = {},
        form_id: str = "",
    ) -> IssuedKey:
        """Creates a key with all that limits it. Without spend limits, metering may be away."""
        template = KeyTemplate(
            checks.key_name(name),
            key_checks.scopes(scopes),
            replace(NO_LIMITS, **checks.limits(limits)),
            allowed_classes,
        )

        def limit(key_id: str) -> Awaitable[KeySpendLimits]:
            return self._limiter.limit_new(account_id, key_id, limits_given)

        limits_given = key_checks.spend_limits(spend_limits)
        limiting = limit if limits_given != NO_SPEND_LIMITS else None
        return await self._issue(
            by, "key.created", account_id, lambda connection: template, limiting, expires_after_days, form_id
        )

    async def rotate(
        self,
        by: Access | None,
        account_id: str,
        key_id: str,
        *,
        expires_after_days: int | None = None,
        form_id: str = "",
    ) -> IssuedKey:
        """Returns a new key like an existing one, which stays valid; both count for the same spend limits. Its name has
        a number, by which lists and reports tell the two apart."""

        def like(connection: Connection) -> KeyTemplate:
            before = self._find(connection, by, key_id, account_id)
            require_change(by, before)
            # A key without a name goes by its id.
            named = before.name or before.key_id
            name = name_of_successor(named, stored.names_like(connection, account_id, base_of(named)))
            return KeyTemplate(name, before.scopes, before.limits, before.allowed_classes, key_id)

        def share(new_key_id: str) -> Awaitable[KeySpendLimits]:
            return self._limiter.share(account_id, new_key_id, key_id)

        return await self._issue(by, "key.rotated", account_id, like, share, expires_after_days, form_id)

    async def rename(self, by: Access | None, key_id: str, name: str) -> ShownKey:
        checked = checks.key_name(name)
        return await self._change(by, "key.renamed", key_id, lambda key: replace(key, name=checked))

    async def update(
        self,
        by: Access | None,
        key_id: str,
        limits: Mapping[str, int],
        allowed_classes: ClassAllowance | None = None,
    ) -> ShownKey:
        """Changes a key's limits, and the classes it may use unless they are None; returns when that is in effect on
        every edge."""
        checked = checks.limits(limits)

        def change(key: Key) -> Key:
            classes = key.allowed_classes if allowed_classes is None else allowed_classes
            return replace(key, limits=replace(key.limits, **checked), allowed_classes=classes)

        shown = await self._change(by, "key.updated", key_id, change)
        await self._hold_everywhere()
        return shown

    async def revoke(self, by: Access | None, key_id: str) -> ShownKey:
        """Revokes a key; returns when every edge refuses it. If it is revoked already, its time is kept."""
        now_us = self.now_us()
        shown = await self._change(
            by, "key.revoked", key_id, lambda key: replace(key, revoked_at_us=key.revoked_at_us or now_us)
        )
        await self._hold_everywhere()
        return shown

    @reads
    def list_page(
        self,
        connection: Connection,
        by: Access | None,
        account_id: str,
        page_size: int,
        page_token: str,
        choice: KeyChoice = ALL_KEYS,
        also_key_ids: Sequence[str] = (),
    ) -> KeyPage:
        size, also_ids = paging.page_size(page_size), key_checks.key_ids(also_key_ids, "also_key_ids")
        is_backwards = page_token.startswith(_BACKWARDS)
        position = paging.page_token(page_token.removeprefix(_BACKWARDS))
        asked = choice._replace(newest_first=choice.newest_first != is_backwards)
        stored_accounts.require_account(connection, checks.id_of("account", account_id))
        found = stored.list_keys(connection, account_id, position, size + 1, asked)
        items, has_more = found[:size], len(found) > size
        shown = self._shown(connection, by, [*items, *stored.find_keys(connection, account_id, also_ids)])
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

    @reads
    def get(self, connection: Connection, by: Access | None, key_id: str) -> FoundKey:
        """Returns a key with its account, and with those that it replaces and that replace it."""
        key = self._find(connection, by, key_id)
        replaced = get(connection, Key, key.replaces_key_id) if key.replaces_key_id else None
        successor = stored.find_successor(connection, key_id)
        shown = self._shown(connection, by, [each for each in (key, replaced, successor) if each is not None])
        by_id = {each.key.key_id: each for each in shown}
        return FoundKey(
            by_id[key_id],
            stored_accounts.require_account(connection, key.account_id),
            by_id[replaced.key_id] if replaced else None,
            by_id[successor.key_id] if successor else None,
        )

    async def set_spend_limits(
        self, by: Access | None, account_id: str, key_id: str, spend_limits: Mapping[str, int]
    ) -> Spend:
        """Replaces a key's spend limits. Owners also decide what playgrounds and internal programs may spend, though
        they cannot change their keys."""
        limits = key_checks.spend_limits(spend_limits)
        key = await self._database.read(lambda connection: self._find(connection, by, key_id, account_id))
        return await self._limiter.change(by, key.account_id, key_id, limits)

    @reads
    def count_by_pepper(self, connection: Connection) -> list[PepperUse]:
        """Counts the valid keys by pepper version."""
        return stored.count_by_pepper(connection, self.now_us())

    async def _issue(
        self,
        by: Access | None,
        action: str,
        account_id: str,
        like: Callable[[Connection], KeyTemplate],
        limit: LimitSpending | None,
        expires_after_days: int | None,
        form_id: str,
    ) -> IssuedKey:
        """Creates a key in one transaction, once what `limit` does holds. Were the service to end in between, metering
        would have limits of a key that nobody has."""
        if not _FORM_ID.fullmatch(form_id):
            raise checks.refusal("form_id", Sentence("form_id_invalid"))
        now, secret = self._clock.now(), key_format.mint()
        expires_at_us = key_checks.expires_at_us(now, expires_after_days)
        checks.id_of("account", account_id)
        user_id, spend_limits = by.user_id if by else "", NO_SPEND_LIMITS

        def prepare(connection: Connection) -> KeyTemplate | IssuedKey:
            return self._prepare(connection, by, account_id, like, form_id)

        def issue(connection: Connection) -> IssuedKey:
            template = prepare(connection)
            if isinstance(template, IssuedKey):
                return template
            digest = self._peppers.digest(secret)
            key = Key(
                key_id=secret.key_id,
                account_id=account_id,
                created_at_us=to_micros(now),
                expires_at_us=expires_at_us,
                revoked_at_us=None,
                pepper_version=digest.pepper_version,
                created_by=user_id,
                **template._asdict(),
            )
            stored.add_key(connection, key, digest, form_id or None)
            shown = self._shown(connection, by, [key])[0]
            changes = key_changes(None, key, spend_limits)
            self._audit.append(connection, action, by, account_id=account_id, object_id=key.key_id, changes=changes)
            return IssuedKey(shown, secret.reveal(), spend_limits)

        if limit is not None:
            prepared = await self._database.write(prepare)
            if isinstance(prepared, IssuedKey):
                return prepared
            spend_limits = await limit(secret.key_id)
        issued = await self._database.write(issue)
        if issued.secret:
            self._log.info(action, account_id=account_id, key_id=secret.key_id)
        return issued

    def _prepare(
        self,
        connection: Connection,
        by: Access | None,
        account_id: str,
        like: Callable[[Connection], KeyTemplate],
        form_id: str,
    ) -> KeyTemplate | IssuedKey:
        """Returns what a new key is to be, or the one that the form has created before; raises if the caller may not
        create it."""
        account = stored_accounts.lock_account(connection, account_id)
        user_id = by.user_id if by else ""
        if not is_operator(by) and stored_users.role_in(connection, account_id, user_id) < AccountRole.MEMBER:
            # Removed a moment ago, when the keys that they had were revoked.
            raise role_missing()
        before = stored.find_key_of_form(connection, account_id, form_id) if form_id else None
        if before is not None:
            return IssuedKey(self._shown(connection, by, [before])[0], "")
        template = like(connection)
        self._require_limits_within(by, template.limits, account.limits)
        if template.replaces_key_id is None:
            # A rotated key stays what it is: what the account no longer allows, it cannot use either way.
            key_checks.require_classes_within(template.allowed_classes, account.allowed_classes)
        return template

    async def _change(self, by: Access | None, action: str, key_id: str, change: Callable[[Key], Key]) -> ShownKey:
        def apply(connection: Connection) -> ShownKey:
            found = self._find(connection, by, key_id)
            if not is_operator(by):
                require_change(by, found)
            account = stored_accounts.lock_account(connection, found.account_id)
            before = stored.lock_key(connection, key_id)
            if before is None:
                raise checks.not_found("key")
            after = change(before)
            if after.limits != before.limits:
                self._require_limits_within(by, after.limits, account.limits)
            if after.allowed_classes != before.allowed_classes:
                key_checks.require_classes_within(after.allowed_classes, account.allowed_classes)
            stored.put_key(connection, before, after)
            shown = self._shown(connection, by, [after])[0]
            changes = key_changes(before, after)
            self._audit.append(connection, action, by, account_id=account.account_id, object_id=key_id, changes=changes)
            return shown

        shown = await self._database.write(apply)
        self._log.info(action, account_id=shown.key.account_id, key_id=key_id)
        return shown

    def _find(self, connection: Connection, by: Access | None, key_id: str, account_id: str = "") -> Key:
        """Returns a key; members find only those of their account, or of the given one."""
        key = get(connection, Key, checks.id_of("key", key_id))
        within = account_id or ("" if by is None or is_operator(by) else by.account_id)
        if key is None or within not in ("", key.account_id):
            raise checks.not_found("key")
        return key

    def _require_limits_within(self, by: Access | None, limits: KeyLimits, of_account: KeyLimits) -> None:
        """Raises if a key would get more than the account or the service gives: those are the operators' to raise."""
        names = [field.name for field in fields(KeyLimits)]
        for name, own, *others in zip(names, limits.values, of_account.values, self.service_limits.values, strict=True):
            is_above = own is not None and any(other is not None and own > other for other in others)
            if is_above and not is_operator(by):
                raise LegatoError(Reason.REQUEST_INVALID, Sentence("key_limit_above_account"), param=name)

    def _shown(self, connection: Connection, by: Access | None, found: list[Key]) -> list[ShownKey]:
        names = stored_users.names_of(connection, [key.created_by for key in found])
        return [ShownKey(key, names.get(key.created_by, ""), may_change(by, key)) for key in found]


def may_change(by: Access | None, key: Key) -> bool:
    """Returns whether a caller may rename, change, rotate and revoke a key of an account that they act in."""
    if not key.has_secret:
        return False
    if by is None or is_operator(by) or by.role is AccountRole.OWNER:
        return True
    return by.role is AccountRole.MEMBER and key.created_by == by.user_id


def require_change(by: Access | None, key: Key) -> None:
    if not may_change(by, key):
        raise role_missing()


def _token(shown: ShownKey) -> str:
    return paging.to_page_token(Position(shown.key.created_at_us, shown.key.key_id))
