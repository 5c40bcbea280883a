"""Grants internal programs the right to call for accounts without their keys, and revokes it.

What a program does for an account is counted under a key without a secret. That key follows the grants of its program:
it has their limits, and is revoked while there is none. So edges learn of a changed grant as they do of a changed key.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from services.auth.core import checks, paging
from services.auth.core.codes import mint_id
from services.auth.core.paging import Page, Position
from services.auth.core.parts import Domain, reads
from services.auth.core.records.accounts import NO_LIMITS, Account
from services.auth.core.store import Connection, add, get
from services.auth.core.store.accounts import lock_account, require_account
from services.auth.keys.records import CallerGrant, Key, Scope
from services.auth.keys.rules import checks as key_checks
from services.auth.keys.rules.changes import grant_changes
from services.auth.keys.store import callers as stored
from services.auth.keys.store.keys import add_key_without_secret
from services.chassis.access_tokens import Access
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

SCOPES: Final = tuple(Scope)


class Callers(Domain):
    async def grant(
        self, by: Access | None, caller: str, account_id: str, *, all_accounts: bool, limits: Mapping[str, int]
    ) -> CallerGrant:
        """Grants one account, or all of them. A grant that is there already gets these limits. Returns when that is in
        effect on every edge."""
        checked, now_us = checks.limits(limits), self.now_us()
        key_checks.caller_name(caller)
        if all_accounts == bool(account_id):
            raise checks.refusal("account_id", Sentence("grant_one_or_all"))

        def apply(connection: Connection) -> CallerGrant:
            if account_id:
                lock_account(connection, checks.id_of("account", account_id))
            grants = stored.lock_grants(connection, caller)
            before = next((grant for grant in grants if grant.account_id == account_id), None)
            granted = CallerGrant(
                before.grant_id if before else mint_id("grant"),
                caller,
                account_id,
                before.created_at_us if before and before.revoked_at_us is None else now_us,
                limits=replace(NO_LIMITS, **checked),
            )
            if before is None:
                add(connection, granted)
            else:
                stored.put_grants(connection, [granted])
            stored.apply_grant(connection, granted)
            if account_id and stored.find_caller_key(connection, caller, account_id) is None:
                _add_key(connection, granted, account_id, now_us)
            changes = grant_changes(before, granted)
            self._audit.append(
                connection, "caller.granted", by, account_id=account_id, object_id=caller, changes=changes
            )
            return granted

        granted = await self._database.write(apply)
        self._log.info("caller.granted", name=caller, account_id=account_id)
        await self._hold_everywhere()
        return granted

    async def revoke(self, by: Access | None, caller: str, account_id: str = "") -> list[CallerGrant]:
        """Revokes the grant of an account, or with an empty id all grants of a caller; returns those that it still has,
        when every edge refuses the others. If they are revoked already, their times are kept."""
        key_checks.caller_name(caller)
        now_us = self.now_us()

        def apply(connection: Connection) -> list[CallerGrant]:
            changed = stored.revoke_grants(connection, caller, account_id, now_us)
            if changed is None:
                raise checks.not_found("grant")
            revoked, good = changed
            for grant in revoked:
                self._audit.append(connection, "caller.revoked", by, account_id=grant.account_id, object_id=caller)
            return good

        remaining = await self._database.write(apply)
        self._log.info("caller.revoked", name=caller, account_id=account_id)
        await self._hold_everywhere()
        return remaining

    @reads
    def list_page(self, connection: Connection, page_size: int, page_token: str) -> Page[CallerGrant]:
        size = paging.page_size(page_size)
        found = stored.list_grants(connection, paging.page_token(page_token), size + 1)
        return paging.to_page(found, size, lambda grant: Position(grant.created_at_us, grant.grant_id))

    @reads
    def list_keys(self, connection: Connection, account_id: str) -> list[Key]:
        """Lists what the requests of callers are counted under in an account, in the order of the callers' names."""
        require_account(connection, checks.id_of("account", account_id))
        return stored.list_caller_keys(connection, account_id)


def require_grant(connection: Connection, caller: str, account_id: str, *, locks: bool = False) -> CallerGrant:
    """Returns what lets a caller call for an account; raises alike if there is no grant and no account. If it `locks`,
    neither changes before the commit."""
    account = get(connection, Account, account_id, locks=locks)
    grant = stored.find_grant(connection, caller, account_id, locks=locks) if account else None
    if grant is None:
        raise not_granted()
    return grant


def make_key(connection: Connection, caller: str, account_id: str, now_us: int) -> None:
    """Adds the key of a caller in an account, at its first call. With the account and the grant locked, a revocation
    comes before, and is seen here, or after, and sees the key."""
    grant = require_grant(connection, caller, account_id, locks=True)
    # Another replica may have added it meanwhile.
    if stored.find_caller_key(connection, caller, account_id) is None:
        _add_key(connection, grant, account_id, now_us)


def not_granted() -> LegatoError:
    return LegatoError(Reason.CALLER_NOT_GRANTED, Sentence("caller_not_granted"))


def _add_key(connection: Connection, grant: CallerGrant, account_id: str, now_us: int) -> None:
    add_key_without_secret(
        connection, account_id, grant.caller, SCOPES, now_us, caller_name=grant.caller, limits=grant.limits
    )
