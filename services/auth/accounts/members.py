"""Manages the members of an account, and its invitations."""

import asyncio
from collections.abc import Sequence
from typing import Final

from services.auth import checks
from services.auth.audit.log import AuditLog
from services.auth.changes import HOLDS_EVERYWHERE_AFTER_S, Sleep
from services.auth.peppers import Peppers
from services.auth.records.times import DAY_US, to_micros
from services.auth.records.users import Invitation, Member
from services.auth.store import Connection, rate_limits
from services.auth.store import codes as stored_codes
from services.auth.store import keys as stored_keys
from services.auth.store import users as stored
from services.auth.store.accounts import lock_account
from services.auth.store.playground import end_tokens_of_member
from services.auth.store.sessions import request_new_tokens
from services.auth.users import codes
from services.auth.users.mail import Mail
from services.chassis.access_tokens import Access, AccountRole
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.load.gcra import Rate
from services.chassis.rpc.access_check import role_missing
from services.chassis.timing.deadlines import Clock

INVITATION_VALID_US: Final = 7 * DAY_US
MEMBERS_MOST: Final = 1_000
# Per account. Further ones are passed on by hand.
MAILED_INVITATIONS: Final = Rate(per_minute=1, burst=50)


class Members:
    def __init__(
        self,
        database: Database,
        peppers: Peppers,
        clock: Clock,
        audit: AuditLog,
        mail: Mail,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._database = database
        self._sleep = sleep
        self._peppers = peppers
        self._clock = clock
        self._audit = audit
        self._mail = mail

    async def list_all(self, by: Access) -> tuple[list[Member], list[Invitation]]:
        """Lists members and, for owners, open invitations."""
        now_us, account_id = to_micros(self._clock.now()), by.account_id

        def look(connection: Connection) -> tuple[list[Member], list[Invitation]]:
            members = stored.list_members(connection, account_id, MEMBERS_MOST)
            is_owner = by.role is AccountRole.OWNER
            return members, stored_codes.list_invitations(connection, account_id, now_us) if is_owner else []

        return await self._database.read(look)

    async def invite(self, by: Access, email: str, role: int) -> tuple[Invitation, str, bool]:
        """Returns an invitation, its code, and whether it is mailed."""
        now_us, code = to_micros(self._clock.now()), codes.mint_code()
        invitation = Invitation(
            invitation_id=codes.mint_id("inv"),
            account_id=by.account_id,
            email=checks.email(email),
            role=checks.role(role),
            invited_by=by.user_id,
            created_at_us=now_us,
            expires_at_us=now_us + INVITATION_VALID_US,
        )

        def add(connection: Connection) -> tuple[str, str] | None:
            account = lock_account(connection, by.account_id)
            waiting = len(stored_codes.list_invitations(connection, by.account_id, now_us))
            if stored.count_members(connection, by.account_id) + waiting >= MEMBERS_MOST:
                raise LegatoError(Reason.REQUEST_INVALID, f"An account has at most {MEMBERS_MOST:,} members.")
            digest = self._peppers.digest_code(codes.INVITATION, codes.plain(code))
            stored_codes.add_invitation(connection, invitation, digest)
            names = stored.names_of(connection, [by.user_id])
            is_mailed = bool(invitation.email and account and self._mail.is_offered and self._may_mail(connection, by))
            self._append(connection, "member.invited", by, invitation.invitation_id)
            return (account.name, names.get(by.user_id, "")) if account and is_mailed else None

        names = await self._database.write(add)
        if names is not None:
            self._mail.invite(invitation.email, code, *names)
        return invitation, code, names is not None

    def _may_mail(self, connection: Connection, by: Access) -> bool:
        """Takes a message from the account's limit, so that nobody sends mail to the world through us."""
        now_ns = to_micros(self._clock.now()) * 1000
        return not rate_limits.take(connection, f"mail {by.account_id}", MAILED_INVITATIONS, now_ns)

    async def cancel(self, by: Access, invitation_id: str) -> None:
        def cancel(connection: Connection) -> None:
            if not stored_codes.cancel_invitation(connection, by.account_id, invitation_id):
                raise checks.not_found("invitation")
            self._append(connection, "invitation.cancelled", by, invitation_id)

        await self._database.write(cancel)

    async def change_role(self, by: Access, user_id: str, role: int) -> Member:
        wanted = checks.role(role)

        def change(connection: Connection) -> Member:
            self._require_other_owner(connection, by.account_id, user_id, stays=wanted is AccountRole.OWNER)
            stored.change_role(connection, by.account_id, user_id, wanted)
            request_new_tokens(connection, user_id)
            if wanted is AccountRole.VIEWER:
                end_tokens_of_member(connection, by.account_id, user_id)
            self._append(connection, "member.role_changed", by, user_id)
            members = stored.list_members(connection, by.account_id, MEMBERS_MOST)
            return next(member for member in members if member.summary.user.user_id == user_id)

        return await self._database.write(change)

    async def remove(self, by: Access, user_id: str, kept_key_ids: Sequence[str] = ()) -> list[str]:
        """Removes a member and revokes the keys that they made, but for those that are kept; returns which were
        revoked, when every edge refuses them. Only owners remove others, and keep keys."""
        if by.role is not AccountRole.OWNER and (user_id != by.user_id or kept_key_ids):
            raise role_missing()
        kept_ids, now_us = set(checks.key_ids(kept_key_ids, "kept_key_ids")), to_micros(self._clock.now())

        def remove(connection: Connection) -> list[str]:
            self._require_other_owner(connection, by.account_id, user_id, stays=False)
            # Keys are locked before the epoch, which ending tokens raises.
            made_ids = stored_keys.lock_keys_made_by(connection, by.account_id, user_id)
            if not kept_ids <= set(made_ids):
                raise checks.not_found("key")
            stored.remove_member(connection, by.account_id, user_id)
            # Whoever was removed could otherwise come back by an invitation of their own.
            stored_codes.cancel_invitations_by(connection, by.account_id, user_id)
            end_tokens_of_member(connection, by.account_id, user_id)
            revoked_ids = [key_id for key_id in made_ids if key_id not in kept_ids]
            stored_keys.revoke_keys(connection, revoked_ids, now_us)
            self._append(connection, "member.removed", by, user_id)
            for key_id in revoked_ids:
                self._append(connection, "key.revoked", by, key_id)
            return revoked_ids

        revoked_ids = await self._database.write(remove)
        if revoked_ids:
            await self._sleep(HOLDS_EVERYWHERE_AFTER_S)
        return revoked_ids

    def _require_other_owner(self, connection: Connection, account_id: str, user_id: str, *, stays: bool) -> None:
        """Raises if there is no such member, or if the account would be left without an owner."""
        lock_account(connection, account_id)
        role = stored.role_in(connection, account_id, user_id)
        if not role:
            raise checks.not_found("member")
        owners = stored.count_members(connection, account_id, AccountRole.OWNER)
        if role is AccountRole.OWNER and not stays and owners < 2:
            raise LegatoError(Reason.REQUEST_INVALID, "An account keeps at least one owner.")

    def _append(self, connection: Connection, action: str, by: Access, object_id: str) -> None:
        self._audit.append(connection, action, by, account_id=by.account_id, object_id=object_id)
