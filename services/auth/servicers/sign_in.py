"""Implements the RPCs of SignInService: converts messages to calls of the domain, and back."""

from protos.auth.v1 import users_pb2 as pb
from protos.auth.v1 import users_pb2_grpc as pb_grpc
from services.auth.servicers.accounts import to_account
from services.auth.sign_in.password_sign_in import PasswordSignIn
from services.auth.sign_in.sign_in import Proof, SignIn
from services.auth.users.sessions import Sessions
from services.auth.wire.users import to_client, to_session, to_signed_in, to_user
from services.chassis.rpc.access_check import STEP_UP_VALID_US
from services.chassis.rpc.callers import Role, current_role
from services.chassis.rpc.messages import to_message, to_timestamp
from services.chassis.rpc.server import Context


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

    async def SignIn(self, request: pb.SignInRequest, context: Context) -> pb.SignInResponse:
        client, password = to_client(request.client), request.proof.password
        if request.proof.HasField("password"):
            signed_in = await self._passwords.sign_in(password.email, password.password, password.totp_code, client)
        else:
            signed_in = await self._sign_in.by_proof(await self._proof(request.proof), client)
        return pb.SignInResponse(signed_in=to_signed_in(signed_in))

    async def StepUp(self, request: pb.StepUpRequest, context: Context) -> pb.StepUpResponse:
        token, client, password = request.session_token, to_client(request.client), request.proof.password
        if request.proof.HasField("password"):
            renewed = await self._passwords.step_up(token, password.password, password.totp_code, client)
        else:
            renewed = await self._sign_in.step_up(token, client, await self._proof(request.proof))
        return pb.StepUpResponse(signed_in=to_signed_in(renewed))

    async def GetInvitation(self, request: pb.GetInvitationRequest, context: Context) -> pb.GetInvitationResponse:
        invitation, account, inviter = await self._sign_in.get_invitation(request.code, to_client(request.client))
        return to_message(pb.GetInvitationResponse, invitation, account_name=account, invited_by=inviter)

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
            session=to_session(resolved.session, resolved.summary.user),
            memberships=[to_message(pb.Membership, held) for held in resolved.memberships],
            account_id=resolved.access.account_id,
            access_token=resolved.access_token,
            access_token_expire_time=to_timestamp(resolved.access.expires_at_us),
            step_up_until_time=to_timestamp(resolved.session.authenticated_at_us + STEP_UP_VALID_US),
            new_session_token=resolved.new_token,
            account=None if resolved.account is None else to_account(resolved.account),
        )

    async def SignOut(self, request: pb.SignOutRequest, context: Context) -> pb.SignOutResponse:
        await self._sessions.sign_out(request.session_token)
        return pb.SignOutResponse()

    async def _proof(self, proof: pb.Proof) -> Proof:
        """Returns what proves who the user is, other than a password."""
        passkey = (proof.passkey.challenge_id, proof.passkey.credential_json)
        return await self._sign_in.proof(
            passkey=passkey if proof.HasField("passkey") else None,
            recovery_code=proof.recovery_code,
            link_code=proof.sign_in_link_code,
        )
