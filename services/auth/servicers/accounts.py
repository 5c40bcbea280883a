"""Implements the RPCs of AccountService: converts messages to calls, and back. The account is the access token's, with
which the request's was compared before."""

from typing import Any

import grpc.aio

from protos.auth.v1 import users_pb2 as pb
from protos.auth.v1 import users_pb2_grpc as pb_grpc
from services.auth import checks
from services.auth.accounts.accounts import AccountAdmin
from services.auth.accounts.members import Members
from services.auth.changes import GivenLimits
from services.auth.keys.account_keys import AccountKeys, ShownKey
from services.auth.keys.playground import PlaygroundTokens
from services.auth.records.times import to_micros
from services.auth.records.users import Invitation, Member
from services.auth.servicers.auth import (
    classes_of_new_key,
    given_classes,
    given_switches,
    scopes_from_proto,
    to_account,
    to_key,
)
from services.auth.servicers.users import to_events, to_role, to_timestamp, to_user
from services.auth.store.keys import KeyChoice
from services.auth.users.sessions import Sessions
from services.auth.users.users import UserAdmin, required_access
from services.chassis.access_tokens import Access, AccountRole
from services.chassis.timing.deadlines import Clock

Context = grpc.aio.ServicerContext[Any, Any]


class AccountServicer(pb_grpc.AccountServiceServicer):
    def __init__(
        self,
        accounts: AccountAdmin,
        keys: AccountKeys,
        members: Members,
        users: UserAdmin,
        playground: PlaygroundTokens,
        sessions: Sessions,
        clock: Clock,
    ) -> None:
        self._accounts = accounts
        self._keys = keys
        self._members = members
        self._users = users
        self._playground = playground
        self._sessions = sessions
        self._clock = clock

    async def GetAccount(
        self, request: pb.AccountServiceGetAccountRequest, context: Context
    ) -> pb.AccountServiceGetAccountResponse:
        account = await self._accounts.get(required_access().account_id)
        return pb.AccountServiceGetAccountResponse(account=to_account(account))

    async def UpdateAccount(
        self, request: pb.AccountServiceUpdateAccountRequest, context: Context
    ) -> pb.AccountServiceUpdateAccountResponse:
        account = await self._accounts.update(
            required_access().account_id,
            request.preferred_class if request.HasField("preferred_class") else None,
            GivenLimits(),
            given_switches(request),
            request.name if request.HasField("name") else None,
            given_classes(request),
        )
        return pb.AccountServiceUpdateAccountResponse(account=to_account(account))

    async def CreateKey(
        self, request: pb.AccountServiceCreateKeyRequest, context: Context
    ) -> pb.AccountServiceCreateKeyResponse:
        days = request.expires_after_days if request.HasField("expires_after_days") else None
        scopes = scopes_from_proto(request.scopes)
        limits, classes = _given_limits(request), classes_of_new_key(request)
        key, secret = await self._keys.create(
            required_access(), request.name, scopes, days, limits, request.form_id, classes
        )
        return pb.AccountServiceCreateKeyResponse(key=self._to_key(key), api_key=secret)

    async def RotateKey(self, request: pb.RotateKeyRequest, context: Context) -> pb.RotateKeyResponse:
        days = request.expires_after_days if request.HasField("expires_after_days") else None
        key, secret = await self._keys.rotate(required_access(), request.key_id, days, request.form_id)
        return pb.RotateKeyResponse(key=self._to_key(key), api_key=secret)

    async def RenameKey(self, request: pb.RenameKeyRequest, context: Context) -> pb.RenameKeyResponse:
        key = await self._keys.rename(required_access(), request.key_id, request.name)
        return pb.RenameKeyResponse(key=self._to_key(key))

    async def UpdateKey(
        self, request: pb.AccountServiceUpdateKeyRequest, context: Context
    ) -> pb.AccountServiceUpdateKeyResponse:
        key = await self._keys.update(required_access(), request.key_id, _given_limits(request), given_classes(request))
        return pb.AccountServiceUpdateKeyResponse(key=self._to_key(key))

    async def RevokeKey(
        self, request: pb.AccountServiceRevokeKeyRequest, context: Context
    ) -> pb.AccountServiceRevokeKeyResponse:
        key = await self._keys.revoke(required_access(), request.key_id)
        return pb.AccountServiceRevokeKeyResponse(key=self._to_key(key))

    async def ListKeys(
        self, request: pb.AccountServiceListKeysRequest, context: Context
    ) -> pb.AccountServiceListKeysResponse:
        access = required_access()
        choice = KeyChoice(
            with_playground=request.with_playground,
            search=checks.search(request.search),
            active_at_us=to_micros(self._clock.now()) if request.only_active else None,
            created_by=access.user_id if request.only_own else request.created_by,
            newest_first=request.newest_first,
        )
        page = await self._keys.list_page(access, request.page_size, request.page_token, choice, request.also_key_ids)
        return pb.AccountServiceListKeysResponse(
            keys=[self._to_key(key) for key in page.items],
            next_page_token=page.next_token,
            previous_page_token=page.previous_token,
            also_keys=[self._to_key(key) for key in page.also],
        )

    async def IdentifyKey(self, request: pb.IdentifyKeyRequest, context: Context) -> pb.IdentifyKeyResponse:
        found = await self._keys.identify(required_access(), request.key_id)
        return pb.IdentifyKeyResponse(
            key=self._to_key(found.key),
            replaced=self._to_key(found.replaced) if found.replaced else None,
            replaced_by=self._to_key(found.replaced_by) if found.replaced_by else None,
        )

    async def CreateKeyAccessToken(
        self, request: pb.CreateKeyAccessTokenRequest, context: Context
    ) -> pb.CreateKeyAccessTokenResponse:
        access = await self._keys.attest(required_access(), request.key_id)
        return pb.CreateKeyAccessTokenResponse(access_token=self._sessions.require_signer().sign(access))

    async def ListMembers(self, request: pb.ListMembersRequest, context: Context) -> pb.ListMembersResponse:
        access = required_access()
        members, invitations = await self._members.list_all(access)
        return pb.ListMembersResponse(
            members=[_to_member(member, access) for member in members],
            invitations=[_to_invitation(invitation) for invitation in invitations],
        )

    async def InviteMember(self, request: pb.InviteMemberRequest, context: Context) -> pb.InviteMemberResponse:
        invitation, code, is_mailed = await self._members.invite(required_access(), request.email, request.role)
        return pb.InviteMemberResponse(invitation=_to_invitation(invitation), code=code, is_mailed=is_mailed)

    async def CancelInvitation(
        self, request: pb.CancelInvitationRequest, context: Context
    ) -> pb.CancelInvitationResponse:
        await self._members.cancel(required_access(), request.invitation_id)
        return pb.CancelInvitationResponse()

    async def ChangeMemberRole(
        self, request: pb.ChangeMemberRoleRequest, context: Context
    ) -> pb.ChangeMemberRoleResponse:
        access = required_access()
        member = await self._members.change_role(access, request.user_id, request.role)
        return pb.ChangeMemberRoleResponse(member=_to_member(member, access))

    async def RemoveMember(self, request: pb.RemoveMemberRequest, context: Context) -> pb.RemoveMemberResponse:
        revoked_ids = await self._members.remove(required_access(), request.user_id, request.kept_key_ids)
        return pb.RemoveMemberResponse(revoked_key_ids=revoked_ids)

    async def ListAuditEvents(
        self, request: pb.AccountServiceListAuditEventsRequest, context: Context
    ) -> pb.AccountServiceListAuditEventsResponse:
        account_id = required_access().account_id
        page, names = await self._users.list_events(request.page_size, request.page_token, account_id=account_id)
        return pb.AccountServiceListAuditEventsResponse(events=to_events(page, names), next_page_token=page.next_token)

    async def CreatePlaygroundToken(
        self, request: pb.CreatePlaygroundTokenRequest, context: Context
    ) -> pb.CreatePlaygroundTokenResponse:
        issued = await self._playground.create(required_access())
        return pb.CreatePlaygroundTokenResponse(
            playground_token=issued.secret.reveal(),
            expire_time=to_timestamp(issued.expires_at_us),
            key_id=issued.key_id,
        )

    def _to_key(self, shown: ShownKey) -> pb.AccountKey:
        return pb.AccountKey(
            key=to_key(shown.key, self._clock),
            created_by=shown.key.created_by,
            created_by_name=shown.created_by_name,
            replaces_key_id=shown.key.replaces_key_id or "",
            may_change=shown.may_change,
            is_playground=shown.key.playground_user_id is not None,
        )


def _given_limits(request: pb.AccountServiceCreateKeyRequest | pb.AccountServiceUpdateKeyRequest) -> GivenLimits:
    return GivenLimits(
        request.requests_per_minute if request.HasField("requests_per_minute") else None,
        request.tokens_per_minute if request.HasField("tokens_per_minute") else None,
        request.concurrent_requests if request.HasField("concurrent_requests") else None,
    )


def _to_member(member: Member, to: Access) -> pb.Member:
    user = to_user(member.summary)
    if to.role is not AccountRole.OWNER and user.user_id != to.user_id:
        # Addresses, and how others sign in, are for owners.
        user.email, user.passkeys, user.recovery_codes = "", 0, 0
    return pb.Member(user=user, role=to_role(member.role), join_time=to_timestamp(member.joined_at_us))


def _to_invitation(invitation: Invitation) -> pb.Invitation:
    return pb.Invitation(
        invitation_id=invitation.invitation_id,
        account_id=invitation.account_id,
        email=invitation.email,
        role=to_role(invitation.role),
        invited_by=invitation.invited_by,
        create_time=to_timestamp(invitation.created_at_us),
        expire_time=to_timestamp(invitation.expires_at_us),
    )
