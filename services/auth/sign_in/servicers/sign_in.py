"""Implements the RPCs of SignInService: signs users in by what proves who they are, and resolves their sessions."""

from typing import Final

from legato_protos.auth.v1 import credentials_pb2_grpc as pb_grpc
from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.core.messages import to_account
from services.auth.core.parts import Parts, reads
from services.auth.core.records.accounts import Account
from services.auth.core.records.users import Membership, UserSession
from services.auth.core.store import Connection, get
from services.auth.core.store import users as stored_users
from services.auth.core.times import DAY_US
from services.auth.keys.records import Key
from services.auth.keys.store import keys as stored_keys
from services.auth.sign_in.messages import to_client, to_session, to_signed_in, to_user
from services.auth.sign_in.records import UserSummary
from services.auth.sign_in.rules.oidc_sign_in import OidcSignIn
from services.auth.sign_in.rules.password_sign_in import PasswordSignIn
from services.auth.sign_in.rules.sessions import Sessions
from services.auth.sign_in.rules.sign_in import Proof, SignIn
from services.auth.sign_in.servicers.credentials import SignInMethods
from services.auth.sign_in.store.ways import summarise
from services.chassis.access_tokens import Access, AccountRole, expiry_us
from services.chassis.rpc.access_check import STEP_UP_VALID_US
from services.chassis.rpc.callers import Context, Role, current_role
from services.chassis.rpc.messages import to_message, to_timestamp

# For so long, pages tell of a key that expired while it was used.
EXPIRED_KEYS_SHOWN_US: Final = 7 * DAY_US
EXPIRED_KEYS_MOST: Final = 20


class SignInServicer(SignInMethods, pb_grpc.SignInServiceServicer):
    def __init__(
        self, parts: Parts, sign_in: SignIn, passwords: PasswordSignIn, oidc: OidcSignIn, sessions: Sessions
    ) -> None:
        super().__init__(parts, sign_in, passwords, oidc)
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
        """Resolves a token to its user, with an access token for one of the user's accounts."""
        signer, token = self._sessions.require_signer(), request.session_token
        session, summary, memberships, account, expired = await self._look_up(token, request.account_id)
        new_token = await self._sessions.record_use(session, token)
        is_operator = current_role.get() is not Role.CONSOLE and summary.user.is_operator
        account_id = account.account_id if account else ""
        access = Access(
            user_id=session.user_id,
            session_id=session.session_id,
            account_id=account_id,
            role=next((held.role for held in memberships if held.account_id == account_id), AccountRole.NONE),
            is_operator=is_operator,
            authenticated_at_us=session.authenticated_at_us,
            expires_at_us=expiry_us(self.now_us()),
        )
        return pb.ResolveSessionResponse(
            user=to_user(summary),
            session=to_session(session, summary.user),
            memberships=[to_message(pb.Membership, held) for held in memberships],
            account_id=account_id,
            access_token=signer.sign(access),
            access_token_expire_time=to_timestamp(access.expires_at_us),
            step_up_until_time=to_timestamp(session.authenticated_at_us + STEP_UP_VALID_US),
            new_session_token=new_token,
            account=None if account is None else to_account(account, self._service_limits),
            expired_keys=[
                pb.ExpiredKey(key_id=key.key_id, name=key.name, expire_time=to_timestamp(key.expires_at_us or 0))
                for key in expired
            ],
        )

    @reads
    def _look_up(
        self, connection: Connection, token: str, account_id: str
    ) -> tuple[UserSession, UserSummary, list[Membership], Account | None, list[Key]]:
        session, user = self._sessions.require(connection, token)
        [summary] = summarise(connection, [user])
        memberships = stored_users.memberships_of(connection, [user.user_id])
        # The account that is asked for, or else the first.
        chosen = sorted(memberships, key=lambda held: held.account_id != account_id)[:1]
        if not chosen:
            return session, summary, memberships, None, []
        [own] = chosen
        account = get(connection, Account, own.account_id)
        now_us, maker = self.now_us(), user.user_id if own.role is AccountRole.MEMBER else ""
        since_us = now_us - EXPIRED_KEYS_SHOWN_US
        expired = stored_keys.list_expired(connection, own.account_id, since_us, now_us, EXPIRED_KEYS_MOST, maker)
        return session, summary, memberships, account, expired

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
