"""Implements the RPCs of signing in other than by passkey: converts messages to calls of the domain, and back."""

from legato_protos.auth.v1 import credentials_pb2 as pb
from legato_protos.auth.v1 import users_pb2
from services.auth.core.messages import required_access
from services.auth.core.parts import Domain, Parts, reads
from services.auth.core.store import Connection, get
from services.auth.sign_in.messages import to_client, to_signed_in
from services.auth.sign_in.records import Password, Totp
from services.auth.sign_in.rules import totp
from services.auth.sign_in.rules.oidc import host_of
from services.auth.sign_in.rules.oidc_sign_in import OidcSignIn
from services.auth.sign_in.rules.password_sign_in import PasswordSignIn
from services.auth.sign_in.rules.sign_in import SignIn
from services.auth.sign_in.store import credentials as stored
from services.auth.sign_in.store.passkeys import list_passkeys
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message, to_timestamp


class _Methods(Domain):
    """The base of both: says which ways to sign in there are."""

    def __init__(self, parts: Parts, sign_in: SignIn, passwords: PasswordSignIn, oidc: OidcSignIn) -> None:
        super().__init__(parts)
        self._sign_in = sign_in
        self._passwords = passwords
        self._oidc = oidc

    def _methods(self) -> pb.GetSignInMethodsResponse:
        return pb.GetSignInMethodsResponse(
            password=self._passwords.is_offered, mail=self._sign_in.sends_links, oidc_issuer=self._oidc.issuer_host
        )


class SignInMethods(_Methods):
    async def GetSignInMethods(
        self, request: pb.GetSignInMethodsRequest, context: Context
    ) -> pb.GetSignInMethodsResponse:
        return self._methods()

    async def SendSignInLink(self, request: pb.SendSignInLinkRequest, context: Context) -> pb.SendSignInLinkResponse:
        await self._sign_in.mail_link(request.email, to_client(request.client))
        return pb.SendSignInLinkResponse()

    async def StartOidcSignIn(self, request: pb.StartOidcSignInRequest, context: Context) -> pb.StartOidcSignInResponse:
        url, browser_token = await self._oidc.start(
            request.origin, to_client(request.client), request.invitation_code, again=request.again
        )
        return pb.StartOidcSignInResponse(authorization_url=url, browser_token=browser_token)

    async def FinishOidcSignIn(
        self, request: pb.FinishOidcSignInRequest, context: Context
    ) -> pb.FinishOidcSignInResponse:
        finished = await self._oidc.finish(
            request.state,
            request.code,
            request.issuer,
            request.browser_token,
            request.session_token,
            to_client(request.client),
        )
        return pb.FinishOidcSignInResponse(
            signed_in=to_signed_in(finished.signed_in) if finished.signed_in else None, account_id=finished.account_id
        )


class CredentialMethods(_Methods):
    @reads
    def GetCredentials(
        self, connection: Connection, request: pb.GetCredentialsRequest, context: Context
    ) -> pb.GetCredentialsResponse:
        """Returns all that a user can sign in with, for one page."""
        user_id = required_access().user_id
        password, app = get(connection, Password, user_id), get(connection, Totp, user_id)
        return pb.GetCredentialsResponse(
            password_set_time=to_timestamp(password.set_at_us if password else None),
            totp_set_time=to_timestamp(app.set_at_us if app else None),
            identities=[
                to_message(pb.OidcIdentity, identity, issuer=host_of(identity.issuer))
                for identity in stored.list_identities(connection, user_id)
            ],
            methods=self._methods(),
            passkeys=[to_message(users_pb2.Passkey, passkey) for passkey in list_passkeys(connection, user_id)],
        )

    async def SetPassword(self, request: pb.SetPasswordRequest, context: Context) -> pb.SetPasswordResponse:
        await self._passwords.set_password(required_access(), request.password, request.email)
        return pb.SetPasswordResponse()

    async def RemovePassword(self, request: pb.RemovePasswordRequest, context: Context) -> pb.RemovePasswordResponse:
        await self._passwords.remove_password(required_access())
        return pb.RemovePasswordResponse()

    async def StartTotp(self, request: pb.StartTotpRequest, context: Context) -> pb.StartTotpResponse:
        challenge_id, secret, uri = await self._passwords.start_totp(required_access())
        return pb.StartTotpResponse(challenge_id=challenge_id, secret=totp.as_text(secret), uri=uri)

    async def SetTotp(self, request: pb.SetTotpRequest, context: Context) -> pb.SetTotpResponse:
        await self._passwords.set_totp(required_access(), request.challenge_id, request.code)
        return pb.SetTotpResponse()

    async def StartOidcLink(self, request: pb.StartOidcLinkRequest, context: Context) -> pb.StartOidcLinkResponse:
        url, browser_token = await self._oidc.start_link(required_access(), request.origin)
        return pb.StartOidcLinkResponse(authorization_url=url, browser_token=browser_token)

    async def RemoveOidcIdentity(
        self, request: pb.RemoveOidcIdentityRequest, context: Context
    ) -> pb.RemoveOidcIdentityResponse:
        await self._oidc.remove(required_access(), request.identity_id)
        return pb.RemoveOidcIdentityResponse()

    async def SendStepUpCode(self, request: pb.SendStepUpCodeRequest, context: Context) -> pb.SendStepUpCodeResponse:
        await self._sign_in.mail_code(required_access(), to_client(request.client))
        return pb.SendStepUpCodeResponse()
