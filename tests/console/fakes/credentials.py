"""What the console asks auth about passwords, authenticator apps and identities of an issuer."""

from typing import Any

from protos.auth.v1 import credentials_pb2
from protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from tests.console.clock import ago

PASSWORD = "correct horse battery staple"
MAILED_CODE = "M4WQ-9KDT-X2RN-7VHJ-C8ZP"
TOTP_SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
ISSUER_URL = "https://login.example.ca/authorize?state=state-1"


def sign_in_failed() -> LegatoError:
    return LegatoError(Reason.SIGN_IN_FAILED, "This did not sign you in. Ask for a new link, or try another way.")


class CredentialFakes:
    """A part of `Fakes`, which signs users in and asks for recent proof."""

    passkeys: list[pb.Passkey]

    def signed_in(self) -> pb.SignedIn:
        raise NotImplementedError

    def require_recent(self) -> None:
        raise NotImplementedError

    def reset_credentials(self) -> None:
        self.methods = credentials_pb2.GetSignInMethodsResponse()
        self.credentials = credentials_pb2.GetCredentialsResponse()
        self.has_password = False
        self.mailed_codes = 0
        self.issuer_url = ISSUER_URL

    def GetSignInMethods(self, request: Any) -> Any:
        return self.methods

    def SendSignInLink(self, request: Any) -> Any:
        return credentials_pb2.SendSignInLinkResponse()

    def StartOidcSignIn(self, request: Any) -> Any:
        return credentials_pb2.StartOidcSignInResponse(authorization_url=self.issuer_url, browser_token="browser-1")

    def FinishOidcSignIn(self, request: Any) -> Any:
        if (request.state, request.code, request.browser_token) != ("state-1", "code-1", "browser-1"):
            raise sign_in_failed()
        return credentials_pb2.FinishOidcSignInResponse(signed_in=self.signed_in())

    def GetCredentials(self, request: Any) -> Any:
        answer = credentials_pb2.GetCredentialsResponse(methods=self.methods, passkeys=self.passkeys)
        answer.MergeFrom(self.credentials)
        return answer

    def SetPassword(self, request: Any) -> Any:
        self.require_recent()
        if len(request.password) < 15:
            raise LegatoError(Reason.REQUEST_INVALID, "A password must have at least 15 characters.")
        self.credentials.password_set_time.CopyFrom(ago())
        return credentials_pb2.SetPasswordResponse()

    def RemovePassword(self, request: Any) -> Any:
        self.has_password = False
        return credentials_pb2.RemovePasswordResponse()

    def StartTotp(self, request: Any) -> Any:
        self.require_recent()
        uri = f"otpauth://totp/Legato:ada%40example.ca?secret={TOTP_SECRET}&issuer=Legato"
        return credentials_pb2.StartTotpResponse(challenge_id="totp_1", secret=TOTP_SECRET, uri=uri)

    def SetTotp(self, request: Any) -> Any:
        if request.code != "123456":
            raise LegatoError(Reason.REQUEST_INVALID, "This is not the code that the app shows now.")
        self.has_password = True
        return credentials_pb2.SetTotpResponse()

    def StartOidcLink(self, request: Any) -> Any:
        self.require_recent()
        return credentials_pb2.StartOidcLinkResponse(authorization_url=self.issuer_url, browser_token="browser-1")

    def SendStepUpCode(self, request: Any) -> Any:
        self.mailed_codes += 1
        return credentials_pb2.SendStepUpCodeResponse()

    def RemoveOidcIdentity(self, request: Any) -> Any:
        return credentials_pb2.RemoveOidcIdentityResponse()
