"""Implements the RPCs of AccountAdminService for members: manages them and invitations, and creates playground tokens.

The account of the request was compared with that of the access token before."""

from collections.abc import Sequence
from typing import Final

from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.core import checks, codes
from services.auth.core.messages import required_access
from services.auth.core.parts import Domain, Parts, reads, writes
from services.auth.core.store import Connection
from services.auth.core.store import users as stored
from services.auth.core.store.accounts import lock_account
from services.auth.core.times import DAY_US
from services.auth.keys.rules import checks as key_checks
from services.auth.keys.rules.playground import PlaygroundTokens
from services.auth.keys.store import keys as stored_keys
from services.auth.keys.store.playground import end_tokens_of_member
from services.auth.people.records import Member
from services.auth.people.rules import role_change
from services.auth.people.store import count_members, list_members
from services.auth.sign_in.messages import to_user
from services.auth.sign_in.records import Invitation
from services.auth.sign_in.rules.mail import Mail
from services.auth.sign_in.store import codes as stored_codes
from services.auth.sign_in.store import rate_limits
from services.auth.sign_in.store.sessions import request_new_tokens
from services.chassis.access_tokens import Access, AccountRole
from services.chassis.changes import Change
from services.chassis.errors import LegatoError, Reason
from services.chassis.load.gcra import Rate
from services.chassis.rpc.access_check import role_missing
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message, to_timestamp
from services.chassis.sentence import Sentence

INVITATION_VALID_US: Final = 7 * DAY_US
MEMBERS_MOST: Final = 1_000
# Per account. Further ones are passed on by hand.
MAILED_INVITATIONS: Final = Rate(per_minute=1, burst=50)


class MemberMethods(Domain):
    def __init__(self, parts: Parts, mail: Mail, playground: PlaygroundTokens) -> None:
        super().__init__(parts)
        self._mail = mail
        self._playground = playground

    @reads
    def ListMembers(
        self, connection: Connection, request: pb.ListMembersRequest, context: Context
    ) -> pb.ListMembersResponse:
        """Lists members and, for owners, open invitations."""
        by = required_access()
        members = list_members(connection, by.account_id, MEMBERS_MOST)
        is_owner = by.role is AccountRole.OWNER
        invited = stored_codes.list_invitations(connection, by.account_id, self.now_us()) if is_owner else []
        return pb.ListMembersResponse(
            members=[_to_member(member, by) for member in members],
            invitations=[to_message(pb.Invitation, invitation) for invitation in invited],
        )

    async def InviteMember(self, request: pb.InviteMemberRequest, context: Context) -> pb.InviteMemberResponse:
        by, now_us, code = required_access(), self.now_us(), codes.mint_code()
        invitation = Invitation(
            invitation_id=codes.mint_id("inv"),
            account_id=by.account_id,
            email=checks.email(request.email),
            role=checks.role(request.role),
            invited_by=by.user_id,
            created_at_us=now_us,
            expires_at_us=now_us + INVITATION_VALID_US,
        )

        def add(connection: Connection) -> tuple[str, str] | None:
            account = lock_account(connection, by.account_id)
            waiting = len(stored_codes.list_invitations(connection, by.account_id, now_us))
            if count_members(connection, by.account_id) + waiting >= MEMBERS_MOST:
                raise LegatoError(Reason.REQUEST_INVALID, Sentence("members_most", most=MEMBERS_MOST))
            digest = self._peppers.digest_code(codes.INVITATION, codes.plain(code))
            stored_codes.add_invitation(connection, invitation, digest)
            names = stored.names_of(connection, [by.user_id])
            # Taken from the account's limit, so that no account sends mail to the world through us.
            is_mailed = bool(invitation.email) and self._mail.is_offered
            limit = (f"mail {by.account_id}", MAILED_INVITATIONS)
            is_mailed = is_mailed and not rate_limits.take(connection, *limit, now_us * 1000)
            self._append(connection, "member.invited", by, invitation.invitation_id, role_change(None, invitation.role))
            return (account.name, names.get(by.user_id, "")) if is_mailed else None

        names = await self._database.write(add)
        if names is not None:
            self._mail.invite(invitation.email, code, *names)
        shown = to_message(pb.Invitation, invitation)
        return pb.InviteMemberResponse(invitation=shown, code=code, is_mailed=names is not None)

    @writes
    def CancelInvitation(
        self, connection: Connection, request: pb.CancelInvitationRequest, context: Context
    ) -> pb.CancelInvitationResponse:
        by, invitation_id = required_access(), request.invitation_id
        if not stored_codes.cancel_invitations(connection, by.account_id, invitation_id=invitation_id):
            raise checks.not_found("invitation")
        self._append(connection, "invitation.cancelled", by, invitation_id)
        return pb.CancelInvitationResponse()

    @writes
    def ChangeMemberRole(
        self, connection: Connection, request: pb.ChangeMemberRoleRequest, context: Context
    ) -> pb.ChangeMemberRoleResponse:
        by, user_id, role = required_access(), request.user_id, checks.role(request.role)
        before = self._require_other_owner(connection, by.account_id, user_id, stays=role is AccountRole.OWNER)
        stored.change_role(connection, by.account_id, user_id, role)
        request_new_tokens(connection, user_id)
        if role is AccountRole.VIEWER:
            end_tokens_of_member(connection, by.account_id, user_id)
        action = f"member.role_changed.{role.name.lower()}"
        self._append(connection, action, by, user_id, role_change(before, role))
        members = list_members(connection, by.account_id, MEMBERS_MOST)
        changed = next(member for member in members if member.summary.user.user_id == user_id)
        return pb.ChangeMemberRoleResponse(member=_to_member(changed, by))

    async def RemoveMember(self, request: pb.RemoveMemberRequest, context: Context) -> pb.RemoveMemberResponse:
        """Removes a member and revokes the keys that they made, but for those that are kept; returns which were
        revoked, when every edge refuses them. Only owners remove others, and keep keys."""
        by, user_id, kept_ids = required_access(), request.user_id, set(request.kept_key_ids)
        if by.role is not AccountRole.OWNER and (user_id != by.user_id or kept_ids):
            raise role_missing()
        key_checks.key_ids(request.kept_key_ids, "kept_key_ids")

        def remove(connection: Connection) -> list[str]:
            role = self._require_other_owner(connection, by.account_id, user_id, stays=False)
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
            self._append(connection, "member.removed", by, user_id, role_change(role, None))
            for key_id in revoked_ids:
                self._append(connection, "key.revoked", by, key_id)
            return revoked_ids

        revoked_ids = await self._database.write(remove)
        if revoked_ids:
            await self._hold_everywhere()
        return pb.RemoveMemberResponse(revoked_key_ids=revoked_ids)

    async def CreatePlaygroundToken(
        self, request: pb.CreatePlaygroundTokenRequest, context: Context
    ) -> pb.CreatePlaygroundTokenResponse:
        issued = await self._playground.create(required_access())
        return pb.CreatePlaygroundTokenResponse(
            playground_token=issued.secret.reveal(),
            expire_time=to_timestamp(issued.expires_at_us),
            key_id=issued.key_id,
        )

    def _require_other_owner(
        self, connection: Connection, account_id: str, user_id: str, *, stays: bool
    ) -> AccountRole:
        """Returns the role of a member; raises if there is no such one, or if the account would be left without an
        owner."""
        lock_account(connection, account_id)
        role = stored.role_in(connection, account_id, user_id)
        if not role:
            raise checks.not_found("member")
        owners = count_members(connection, account_id, AccountRole.OWNER)
        if role is AccountRole.OWNER and not stays and owners < 2:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("account_keeps_owner"))
        return role

    def _append(
        self, connection: Connection, action: str, by: Access, object_id: str, changes: Sequence[Change] = ()
    ) -> None:
        self._audit.append(connection, action, by, account_id=by.account_id, object_id=object_id, changes=changes)


def _to_member(member: Member, to: Access) -> pb.Member:
    user = to_user(member.summary)
    if to.role is not AccountRole.OWNER and user.user_id != to.user_id:
        # Addresses, and how others sign in, are for owners.
        user.email, user.passkeys, user.recovery_codes = "", 0, 0
    return to_message(pb.Member, member, user=user)
