"""Implements the RPCs of users.proto, other than those of accounts: converts messages to calls, and back."""

from typing import Any

import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from protos.auth.v1 import users_pb2 as pb
from protos.auth.v1 import users_pb2_grpc as pb_grpc
from protos.type.v1 import access_token_pb2
from services.auth.paging import Page
from services.auth.records.audit import AuditEvent, Outcome
from services.auth.records.times import hour_of
from services.auth.records.users import Client, Membership, Passkey, SignInMethod, User, UserSession, UserSummary
from services.auth.servicers.auth import to_account
from services.auth.sign_in.own_user import OwnUser
from services.auth.sign_in.password_sign_in import PasswordSignIn
from services.auth.sign_in.sign_in import SignIn
from services.auth.users.sessions import Sessions, SignedIn, expires_at_us
from services.auth.users.users import UserAdmin, required_access
from services.chassis.access_tokens import AccountRole
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import STEP_UP_VALID_US
from services.chassis.rpc.callers import Role, current_role

Context = grpc.aio.ServicerContext[Any, Any]

_METHOD_TO_PROTO = {
    SignInMethod.PASSKEY: pb.SIGN_IN_METHOD_PASSKEY,
    SignInMethod.LINK: pb.SIGN_IN_METHOD_LINK,
    SignInMethod.RECOVERY_CODE: pb.SIGN_IN_METHOD_RECOVERY_CODE,
    SignInMethod.INVITATION: pb.SIGN_IN_METHOD_INVITATION,
    SignInMethod.PASSWORD: pb.SIGN_IN_METHOD_PASSWORD,
    SignInMethod.OIDC: pb.SIGN_IN_METHOD_OIDC,
}
_OUTCOME_TO_PROTO = {Outcome.DONE: pb.AUDIT_OUTCOME_DONE, Outcome.REFUSED: pb.AUDIT_OUTCOME_REFUSED}
# Noted before they are done: a booking that fails was requested all the same.
_ACTION_NAMES: dict[int, str] = {
    pb.OPERATOR_ACTION_GRANT_CREDIT: "credit.grant_requested",
    pb.OPERATOR_ACTION_ADJUST_CREDIT: "credit.adjustment_requested",
    pb.OPERATOR_ACTION_RELOAD_ROUTES: "routes.reload_requested",
    pb.OPERATOR_ACTION_AUDIT_LEDGER: "ledger.audit_requested",
    pb.OPERATOR_ACTION_SET_SPEND_LIMITS: "spend_limits.change_requested",
}


class SignInServicer(pb_grpc.SignInServiceServicer):
    def __init__(self, sign_in: SignIn, passwords: PasswordSignIn, sessions: Sessions) -> None:
        self._sign_in = sign_in
        self._passwords = passwords
        self._sessions = sessions

    async def StartPasskeySignIn(
        self, request: pb.StartPasskeySignInRequest, context: Context
    ) -> pb.StartPasskeySignInResponse:
        challenge_id, options = await self._sign_in.start_passkey(request.origin, to_client(request.client))
        return pb.StartPasskeySignInResponse(challenge_id=challenge_id, options_json=options)

    async def FinishPasskeySignIn(
        self, request: pb.FinishPasskeySignInRequest, context: Context
    ) -> pb.FinishPasskeySignInResponse:
        signed_in = await self._sign_in.with_passkey(
            request.challenge_id, request.credential_json, to_client(request.client)
        )
        return pb.FinishPasskeySignInResponse(signed_in=to_signed_in(signed_in))

    async def SignInWithLink(self, request: pb.SignInWithLinkRequest, context: Context) -> pb.SignInWithLinkResponse:
        signed_in = await self._sign_in.with_link(request.code, to_client(request.client))
        return pb.SignInWithLinkResponse(signed_in=to_signed_in(signed_in))

    async def SignInWithRecoveryCode(
        self, request: pb.SignInWithRecoveryCodeRequest, context: Context
    ) -> pb.SignInWithRecoveryCodeResponse:
        signed_in = await self._sign_in.with_recovery_code(request.code, to_client(request.client))
        return pb.SignInWithRecoveryCodeResponse(signed_in=to_signed_in(signed_in))

    async def GetInvitation(self, request: pb.GetInvitationRequest, context: Context) -> pb.GetInvitationResponse:
        invitation, account, inviter = await self._sign_in.get_invitation(request.code, to_client(request.client))
        return pb.GetInvitationResponse(
            account_name=account,
            invited_by=inviter,
            role=to_role(invitation.role),
            expire_time=to_timestamp(invitation.expires_at_us),
        )

    async def AcceptInvitation(
        self, request: pb.AcceptInvitationRequest, context: Context
    ) -> pb.AcceptInvitationResponse:
        signed_in, account_id = await self._sign_in.accept_invitation(
            request.code, request.name, request.session_token, to_client(request.client)
        )
        return pb.AcceptInvitationResponse(
            signed_in=to_signed_in(signed_in) if signed_in else None, account_id=account_id
        )

    async def ResolveSession(self, request: pb.ResolveSessionRequest, context: Context) -> pb.ResolveSessionResponse:
        resolved = await self._sessions.resolve(
            request.session_token, request.account_id, for_operators=current_role.get() is not Role.CONSOLE
        )
        return pb.ResolveSessionResponse(
            user=to_user(resolved.summary),
            session=_to_session(resolved.session, resolved.summary.user),
            memberships=[_to_membership(membership) for membership in resolved.memberships],
            account_id=resolved.access.account_id,
            access_token=resolved.access_token,
            access_token_expire_time=to_timestamp(resolved.access.expires_at_us),
            step_up_until_time=to_timestamp(resolved.session.authenticated_at_us + STEP_UP_VALID_US),
            new_session_token=resolved.new_token,
            account=None if resolved.account is None else to_account(resolved.account),
        )

    async def StepUp(self, request: pb.StepUpRequest, context: Context) -> pb.StepUpResponse:
        if request.HasField("password"):
            renewed = await self._passwords.step_up(
                request.session_token, request.password.password, request.password.totp_code, to_client(request.client)
            )
            return pb.StepUpResponse(signed_in=to_signed_in(renewed))
        passkey = (request.passkey.challenge_id, request.passkey.credential_json)
        proof = await self._sign_in.proof(
            passkey=passkey if request.HasField("passkey") else None,
            recovery_code=request.recovery_code,
            link_code=request.sign_in_link_code,
        )
        renewed = await self._sign_in.step_up(request.session_token, to_client(request.client), proof)
        return pb.StepUpResponse(signed_in=to_signed_in(renewed))

    async def SignOut(self, request: pb.SignOutRequest, context: Context) -> pb.SignOutResponse:
        await self._sessions.sign_out(request.session_token)
        return pb.SignOutResponse()


class UserServicer(pb_grpc.UserServiceServicer):
    def __init__(self, own_user: OwnUser, users: UserAdmin) -> None:
        self._own_user = own_user
        self._users = users

    async def UpdateUser(self, request: pb.UpdateUserRequest, context: Context) -> pb.UpdateUserResponse:
        name = request.name if request.HasField("name") else None
        return pb.UpdateUserResponse(user=to_user(await self._own_user.update(required_access(), name)))

    async def StartPasskeyRegistration(
        self, request: pb.StartPasskeyRegistrationRequest, context: Context
    ) -> pb.StartPasskeyRegistrationResponse:
        challenge_id, options = await self._own_user.start_registration(required_access(), request.origin)
        return pb.StartPasskeyRegistrationResponse(challenge_id=challenge_id, options_json=options)

    async def FinishPasskeyRegistration(
        self, request: pb.FinishPasskeyRegistrationRequest, context: Context
    ) -> pb.FinishPasskeyRegistrationResponse:
        passkey = await self._own_user.finish_registration(
            required_access(), request.challenge_id, request.credential_json, request.name
        )
        return pb.FinishPasskeyRegistrationResponse(passkey=to_passkey(passkey))

    async def ListPasskeys(self, request: pb.ListPasskeysRequest, context: Context) -> pb.ListPasskeysResponse:
        passkeys = await self._own_user.list_passkeys(required_access())
        return pb.ListPasskeysResponse(passkeys=[to_passkey(passkey) for passkey in passkeys])

    async def RenamePasskey(self, request: pb.RenamePasskeyRequest, context: Context) -> pb.RenamePasskeyResponse:
        passkey = await self._own_user.rename_passkey(required_access(), request.passkey_id, request.name)
        return pb.RenamePasskeyResponse(passkey=to_passkey(passkey))

    async def RemovePasskey(self, request: pb.RemovePasskeyRequest, context: Context) -> pb.RemovePasskeyResponse:
        await self._own_user.remove_passkey(required_access(), request.passkey_id)
        return pb.RemovePasskeyResponse()

    async def GenerateRecoveryCodes(
        self, request: pb.GenerateRecoveryCodesRequest, context: Context
    ) -> pb.GenerateRecoveryCodesResponse:
        return pb.GenerateRecoveryCodesResponse(codes=await self._own_user.generate_recovery_codes(required_access()))

    async def ListSessions(self, request: pb.ListSessionsRequest, context: Context) -> pb.ListSessionsResponse:
        access = required_access()
        found = await self._own_user.list_sessions(access)
        sessions = [_to_session(session, user) for session, user in found]
        return pb.ListSessionsResponse(sessions=sessions, current_session_id=access.session_id)

    async def EndSessions(self, request: pb.EndSessionsRequest, context: Context) -> pb.EndSessionsResponse:
        return pb.EndSessionsResponse(
            ended=await self._own_user.end_sessions(required_access(), list(request.session_ids))
        )

    async def ListMyAuditEvents(
        self, request: pb.ListMyAuditEventsRequest, context: Context
    ) -> pb.ListMyAuditEventsResponse:
        user_id = required_access().user_id
        page, names = await self._users.list_events(request.page_size, request.page_token, user_id=user_id)
        return pb.ListMyAuditEventsResponse(events=to_events(page, names), next_page_token=page.next_token)

    async def KeepResult(self, request: pb.KeepResultRequest, context: Context) -> pb.KeepResultResponse:
        return pb.KeepResultResponse(result_id=await self._own_user.keep_result(required_access(), request.sealed))

    async def TakeResult(self, request: pb.TakeResultRequest, context: Context) -> pb.TakeResultResponse:
        return pb.TakeResultResponse(sealed=await self._own_user.take_result(required_access(), request.result_id))


class UserAdminServicer(pb_grpc.UserAdminServiceServicer):
    def __init__(self, users: UserAdmin) -> None:
        self._users = users

    async def CreateUser(self, request: pb.CreateUserRequest, context: Context) -> pb.CreateUserResponse:
        summary, code, expires = await self._users.create(request.name, request.email, request.account_id, request.role)
        return pb.CreateUserResponse(user=to_user(summary), code=code, code_expire_time=to_timestamp(expires))

    async def ListUsers(self, request: pb.ListUsersRequest, context: Context) -> pb.ListUsersResponse:
        page, memberships = await self._users.list_page(
            request.page_size,
            request.page_token,
            query=request.query,
            account_id=request.account_id,
            user_id=request.user_id,
        )
        return pb.ListUsersResponse(
            users=[to_user(summary) for summary in page.items],
            next_page_token=page.next_token,
            memberships=[
                pb.UserMembership(user_id=membership.user_id, membership=_to_membership(membership))
                for membership in memberships
            ],
        )

    async def CreateSignInLink(
        self, request: pb.CreateSignInLinkRequest, context: Context
    ) -> pb.CreateSignInLinkResponse:
        code, expires = await self._users.create_link(request.user_id)
        return pb.CreateSignInLinkResponse(code=code, expire_time=to_timestamp(expires))

    async def DisableUser(self, request: pb.DisableUserRequest, context: Context) -> pb.DisableUserResponse:
        return pb.DisableUserResponse(user=to_user(await self._users.disable(request.user_id, enable=request.enable)))

    async def SetOperator(self, request: pb.SetOperatorRequest, context: Context) -> pb.SetOperatorResponse:
        summary = await self._users.set_operator(request.user_id, is_operator=request.is_operator)
        return pb.SetOperatorResponse(user=to_user(summary))

    async def ListAuditEvents(
        self, request: pb.UserAdminServiceListAuditEventsRequest, context: Context
    ) -> pb.UserAdminServiceListAuditEventsResponse:
        page, names = await self._users.list_events(
            request.page_size,
            request.page_token,
            account_id=request.account_id,
            user_id=request.user_id,
            action=request.action,
        )
        return pb.UserAdminServiceListAuditEventsResponse(
            events=to_events(page, names), next_page_token=page.next_token
        )

    async def VerifyAuditEvents(
        self, request: pb.VerifyAuditEventsRequest, context: Context
    ) -> pb.VerifyAuditEventsResponse:
        events, broken = await self._users.verify_events()
        return pb.VerifyAuditEventsResponse(events=events, broken_event_nos=broken)

    async def RecordOperatorAction(
        self, request: pb.RecordOperatorActionRequest, context: Context
    ) -> pb.RecordOperatorActionResponse:
        action = _ACTION_NAMES.get(request.action)
        if action is None:
            raise LegatoError(Reason.REQUEST_INVALID, "The action is not known.", param="action")
        await self._users.record(action, request.account_id, request.object_id)
        return pb.RecordOperatorActionResponse()


def to_timestamp(micros: int | None) -> Timestamp | None:
    if micros is None:
        return None
    timestamp = Timestamp()
    timestamp.FromMicroseconds(micros)
    return timestamp


def to_role(role: AccountRole) -> access_token_pb2.AccountRole.ValueType:
    return access_token_pb2.AccountRole.ValueType(role)


def to_user(summary: UserSummary) -> pb.User:
    user = summary.user
    return pb.User(
        user_id=user.user_id,
        name=user.name,
        email=user.email,
        create_time=to_timestamp(user.created_at_us),
        is_operator=user.is_operator,
        disable_time=to_timestamp(user.disabled_at_us),
        last_seen_time=to_timestamp(user.last_seen_hour_us),
        passkeys=summary.passkeys,
        recovery_codes=summary.recovery_codes,
        has_password=summary.passwords > 0,
        identities=summary.identities,
    )


def to_events(page: Page[AuditEvent], names: dict[str, str]) -> list[pb.AuditEvent]:
    return [
        pb.AuditEvent(
            event_no=event.event_no,
            time=to_timestamp(event.occurred_at_us),
            action=event.action,
            user_id=event.user_id,
            user_name=names.get(event.user_id, ""),
            account_id=event.account_id,
            object_id=event.object_id,
            session_id=event.session_id,
            network=event.network,
            outcome=_OUTCOME_TO_PROTO[event.outcome],
        )
        for event in page.items
    ]


def to_client(client: pb.Client) -> Client:
    return Client(client.address, client.browser)


def to_signed_in(signed_in: SignedIn) -> pb.SignedIn:
    return pb.SignedIn(
        session_token=signed_in.token,
        session=_to_session(signed_in.session, signed_in.summary.user),
        user=to_user(signed_in.summary),
    )


def _to_session(session: UserSession, user: User) -> pb.Session:
    return pb.Session(
        session_id=session.session_id,
        create_time=to_timestamp(session.created_at_us),
        authenticate_time=to_timestamp(session.authenticated_at_us),
        last_seen_time=to_timestamp(hour_of(session.last_seen_us)),
        expire_time=to_timestamp(expires_at_us(session, user)),
        network=session.network,
        browser=session.browser,
        method=_METHOD_TO_PROTO[session.method],
    )


def _to_membership(membership: Membership) -> pb.Membership:
    return pb.Membership(
        account_id=membership.account_id,
        account_name=membership.account_name,
        role=to_role(membership.role),
        is_suspended=membership.is_suspended,
    )


def to_passkey(passkey: Passkey) -> pb.Passkey:
    return pb.Passkey(
        passkey_id=passkey.passkey_id,
        name=passkey.name,
        create_time=to_timestamp(passkey.created_at_us),
        last_use_time=to_timestamp(passkey.last_used_hour_us),
        is_backed_up=passkey.is_backed_up,
        rp_id=passkey.rp_id,
    )
