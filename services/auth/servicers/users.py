"""Implements the RPCs of UserService and UserAdminService: converts messages to calls of the domain, and back."""

from protos.auth.v1 import users_pb2 as pb
from protos.auth.v1 import users_pb2_grpc as pb_grpc
from services.auth.sign_in.own_user import OwnUser
from services.auth.users.users import Users
from services.auth.wire.messages import given, required_access
from services.auth.wire.users import to_session, to_user
from services.chassis.rpc.messages import to_message, to_timestamp
from services.chassis.rpc.server import Context


class UserServicer(pb_grpc.UserServiceServicer):
    def __init__(self, own_user: OwnUser) -> None:
        self._own_user = own_user

    async def UpdateUser(self, request: pb.UpdateUserRequest, context: Context) -> pb.UpdateUserResponse:
        user = await self._own_user.update(required_access(), **given(request, "name"))
        return pb.UpdateUserResponse(user=to_user(user))

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
        return pb.FinishPasskeyRegistrationResponse(passkey=to_message(pb.Passkey, passkey))

    async def RenamePasskey(self, request: pb.RenamePasskeyRequest, context: Context) -> pb.RenamePasskeyResponse:
        passkey = await self._own_user.rename_passkey(required_access(), request.passkey_id, request.name)
        return pb.RenamePasskeyResponse(passkey=to_message(pb.Passkey, passkey))

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
        sessions = [to_session(session, user) for session, user in found]
        return pb.ListSessionsResponse(sessions=sessions, current_session_id=access.session_id)

    async def EndSessions(self, request: pb.EndSessionsRequest, context: Context) -> pb.EndSessionsResponse:
        return pb.EndSessionsResponse(
            ended=await self._own_user.end_sessions(required_access(), list(request.session_ids))
        )

    async def KeepResult(self, request: pb.KeepResultRequest, context: Context) -> pb.KeepResultResponse:
        return pb.KeepResultResponse(result_id=await self._own_user.keep_result(required_access(), request.sealed))

    async def TakeResult(self, request: pb.TakeResultRequest, context: Context) -> pb.TakeResultResponse:
        return pb.TakeResultResponse(sealed=await self._own_user.take_result(required_access(), request.result_id))


class UserAdminServicer(pb_grpc.UserAdminServiceServicer):
    def __init__(self, users: Users) -> None:
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
                pb.UserMembership(user_id=membership.user_id, membership=to_message(pb.Membership, membership))
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
