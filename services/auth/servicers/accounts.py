"""Implements the RPCs of AccountAdminService and AccountService: converts messages to calls of the domain, and back.

The account of a console's request was compared with its access token's before, unless an operator calls.
"""

from protos.auth.v1 import auth_pb2, auth_pb2_grpc
from protos.auth.v1 import users_pb2 as pb
from protos.auth.v1 import users_pb2_grpc as pb_grpc
from services.auth.accounts.accounts import Accounts
from services.auth.accounts.members import Members
from services.auth.keys.playground import PlaygroundTokens
from services.auth.records.accounts import Account
from services.auth.records.users import Member
from services.auth.wire.messages import LIMITS, SWITCHES, from_allowance, given, given_classes, required_access
from services.auth.wire.users import to_user
from services.chassis.access_tokens import Access, AccountRole, current_access
from services.chassis.rpc.messages import to_message, to_timestamp
from services.chassis.rpc.server import Context


class AccountAdminServicer(auth_pb2_grpc.AccountAdminServiceServicer):
    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def CreateAccount(
        self, request: auth_pb2.CreateAccountRequest, context: Context
    ) -> auth_pb2.CreateAccountResponse:
        account = await self._accounts.create(current_access.get(), request.name)
        return auth_pb2.CreateAccountResponse(account=to_account(account))

    async def GetAccount(self, request: auth_pb2.GetAccountRequest, context: Context) -> auth_pb2.GetAccountResponse:
        return auth_pb2.GetAccountResponse(account=to_account(await self._accounts.get(request.account_id)))

    async def ListAccounts(
        self, request: auth_pb2.ListAccountsRequest, context: Context
    ) -> auth_pb2.ListAccountsResponse:
        page = await self._accounts.list_page(request.page_size, request.page_token, request.query)
        return auth_pb2.ListAccountsResponse(accounts=map(to_account, page.items), next_page_token=page.next_token)

    async def UpdateAccount(
        self, request: auth_pb2.UpdateAccountRequest, context: Context
    ) -> auth_pb2.UpdateAccountResponse:
        account = await self._accounts.update(
            current_access.get(),
            request.account_id,
            allowed_classes=given_classes(request),
            limits=given(request, *LIMITS),
            grounding=given(request, *SWITCHES),
            **given(request, "name", "preferred_class"),
        )
        return auth_pb2.UpdateAccountResponse(account=to_account(account))

    async def SuspendAccount(
        self, request: auth_pb2.SuspendAccountRequest, context: Context
    ) -> auth_pb2.SuspendAccountResponse:
        account = await self._accounts.suspend(current_access.get(), request.account_id)
        return auth_pb2.SuspendAccountResponse(account=to_account(account))

    async def ResumeAccount(
        self, request: auth_pb2.ResumeAccountRequest, context: Context
    ) -> auth_pb2.ResumeAccountResponse:
        account = await self._accounts.resume(current_access.get(), request.account_id)
        return auth_pb2.ResumeAccountResponse(account=to_account(account))


class AccountServicer(pb_grpc.AccountServiceServicer):
    def __init__(self, members: Members, playground: PlaygroundTokens) -> None:
        self._members = members
        self._playground = playground

    async def ListMembers(self, request: pb.ListMembersRequest, context: Context) -> pb.ListMembersResponse:
        access = required_access()
        members, invitations = await self._members.list_all(access)
        return pb.ListMembersResponse(
            members=[_to_member(member, access) for member in members],
            invitations=[to_message(pb.Invitation, invitation) for invitation in invitations],
        )

    async def InviteMember(self, request: pb.InviteMemberRequest, context: Context) -> pb.InviteMemberResponse:
        invitation, code, is_mailed = await self._members.invite(required_access(), request.email, request.role)
        return pb.InviteMemberResponse(invitation=to_message(pb.Invitation, invitation), code=code, is_mailed=is_mailed)

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

    async def CreatePlaygroundToken(
        self, request: pb.CreatePlaygroundTokenRequest, context: Context
    ) -> pb.CreatePlaygroundTokenResponse:
        issued = await self._playground.create(required_access())
        return pb.CreatePlaygroundTokenResponse(
            playground_token=issued.secret.reveal(),
            expire_time=to_timestamp(issued.expires_at_us),
            key_id=issued.key_id,
        )


def to_account(account: Account) -> auth_pb2.Account:
    auto_class = account.allowed_classes.auto_class(account.preferred_class)
    allowed = from_allowance(account.allowed_classes)
    parts = account, account.limits, account.grounding
    return to_message(auth_pb2.Account, *parts, auto_class=auto_class, allowed_classes=allowed)


def _to_member(member: Member, to: Access) -> pb.Member:
    user = to_user(member.summary)
    if to.role is not AccountRole.OWNER and user.user_id != to.user_id:
        # Addresses, and how others sign in, are for owners.
        user.email, user.passkeys, user.recovery_codes = "", 0, 0
    return to_message(pb.Member, member, user=user)
