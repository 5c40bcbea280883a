"""Manages the members of an account, and its invitations."""

from collections.abc import Sequence
from typing import Final

from services.auth import checks
from services.auth.parts import Domain, Parts, reads, writes
from services.auth.records.times import DAY_US
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
from services.chassis.errors import LegatoError, Reason
from services.chassis.load.gcra import Rate
from services.chassis.rpc.access_check import role_missing

INVITATION_VALID_US: Final = 7 * DAY_US
MEMBERS_MOST: Final = 1_000
# Per account. Further ones are passed on by hand.
MAILED_INVITATIONS: Final = Rate(per_minute=1, burst=50)


class Members(Domain):
    def __init__(self, parts: Parts, mail: Mail) -> None:
        super().__init__(parts)
        self._mail = mail

    @reads
    def list_all(self, connection: Connection, by: Access) -> tuple[list[Member], list[Invitation]]:
        """Lists members and, for owners, open invitations."""
        members = stored.list_members(connection, by.account_id, MEMBERS_MOST)
        is_owner = by.role is AccountRole.OWNER
        return members, stored_codes.list_invitations(connection, by.account_id, self.now_us()) if is_owner else []

    async def invite(self, by: Access, email: str, role: int) -> tuple[Invitation, str, bool]:
        """Returns an invitation, its code, and whether it is mailed."""
        now_us, code = self.now_us(), codes.mint_code()
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
            # Taken from the account's limit, so that no account sends mail to the world through us.
            is_mailed = bool(invitation.email) and self._mail.is_offered
            limit = (f"mail {by.account_id}", MAILED_INVITATIONS)
            is_mailed = is_mailed and not rate_limits.take(connection, *limit, now_us * 1000)
            self._append(connection, "member.invited", by, invitation.invitation_id)
            return (account.name, names.get(by.user_id, "")) if is_mailed else None

        names = await self._database.write(add)
        if names is not None:
            self._mail.invite(invitation.email, code, *names)
        return invitation, code, names is not None

    @writes
    def cancel(self, connection: Connection, by: Access, invitation_id: str) -> None:
        if not stored_codes.cancel_invitations(connection, by.account_id, invitation_id=invitation_id):
            raise checks.not_found("invitation")
        self._append(connection, "invitation.cancelled", by, invitation_id)

    @writes
    def change_role(self, connection: Connection, by: Access, user_id: str, role: int) -> Member:
        wanted = checks.role(role)
        self._require_other_owner(connection, by.account_id, user_id, stays=wanted is AccountRole.OWNER)
        stored.change_role(connection, by.account_id, user_id, wanted)
        request_new_tokens(connection, user_id)
        if wanted is AccountRole.VIEWER:
            end_tokens_of_member(connection, by.account_id, user_id)
        self._append(connection, "member.role_changed", by, user_id)
        members = stored.list_members(connection, by.account_id, MEMBERS_MOST)
        return next(member for member in members if member.summary.user.user_id == user_id)

    async def remove(self, by: Access, user_id: str, kept_key_ids: Sequence[str] = ()) -> list[str]:
        """Removes a member and revokes the keys that they made, but for those that are kept; returns which were
        revoked, when every edge refuses them. Only owners remove others, and keep keys."""
        if by.role is not AccountRole.OWNER and (user_id != by.user_id or kept_key_ids):
            raise role_missing()
        kept_ids = set(checks.key_ids(kept_key_ids, "kept_key_ids"))

        def remove(connection: Connection) -> list[str]:
            self._require_other_owner(connection, by.account_id, user_id, stays=False)
            # Keys are locked before the epoch, which ending tokens raises.
            made_ids = stored_keys.lock_keys_made_by(connection, by.account_id, user_id)
            if not kept_ids <= set(made_ids):
                raise checks.not_found("key")
            stored.remove_member(connection, by.account_id, user_id)
            # A removed member could otherwise come back by an invitation of their own.
            stored_codes.cancel_invitations(connection, by.account_id, invited_by=user_id)
            end_tokens_of_member(connection, by.account_id, user_id)
            revoked_ids = [key_id for key_id in made_ids if key_id not in kept_ids]
            stored_keys.revoke_keys(connection, revoked_ids, self.now_us())
            self._append(connection, "member.removed", by, user_id)
            for key_id in revoked_ids:
                self._append(connection, "key.revoked", by, key_id)
            return revoked_ids

        revoked_ids = await self._database.write(remove)
        if revoked_ids:
            await self._hold_everywhere()
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
