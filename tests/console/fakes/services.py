"""Services that speak the RPCs of the real ones, with one user, one account, and faults on demand."""

import json
from pathlib import Path
from typing import Any

from protos.auth.v1 import auth_pb2, credentials_pb2
from protos.auth.v1 import users_pb2 as pb
from protos.type.v1 import access_token_pb2
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.telemetry.log import Log
from tests.console.clock import ago, hence
from tests.console.fakes.credentials import MAILED_CODE, PASSWORD, CredentialFakes, sign_in_failed
from tests.console.fakes.keys import KeyFakes
from tests.console.fakes.long_names import lengthen
from tests.console.fakes.notices import NoticeFakes
from tests.console.fakes.operator_services import OperatorFakes
from tests.console.metering import ACCOUNT_ID, Metering
from tests.console.payments import Payments
from tests.console.router import Router

CODE = "K7Q2-M4XD-9PRT-W6HN"
INVITATION = "J4RS-8WQX-2MKD-V7TN"
PLAYGROUND_TOKEN = "pt-legato-0123456789abcdefZYXWVUTSRQPONMLKJIHGFEDCBA9876543checks"


class Fakes(KeyFakes, CredentialFakes, NoticeFakes):
    """The state of all services. Tests change it; `calls` are the RPCs that arrived, by name."""

    def __init__(self, folder: Path) -> None:
        """Opens real services on files of the folder."""
        self.metering = Metering(folder)
        self.payments = Payments(self.metering)
        self.router = Router(folder)
        self.grounding = self.router.grounding
        # Whatever people can name has the longest name, and one without a place to break it. Outlives `reset`.
        self.has_long_names = False
        self.reset()

    def reset(self) -> None:
        self.metering.reset()
        self.payments.reset()
        self.router.reset()
        self.calls: list[str] = []
        self.requests: list[Any] = []
        self.sessions: set[str] = set()
        self.session_count = 0
        self.used_codes: set[str] = set()
        self.fail: dict[str, LegatoError] = {}
        self.is_suspended = False
        self.has_account = True
        self.passkeys: list[pb.Passkey] = []
        self.recovery_codes = 0
        # Sealed, by id; None: taken.
        self.results: dict[str, bytes | None] = {}
        self.events: list[pb.AuditEvent] = []
        self.invitations: list[pb.Invitation] = []
        self.reset_keys()
        self.allowed_classes: list[str] | None = None
        self.is_operator = False
        self.operator = OperatorFakes(self.metering, self.router, self.require_recent, lambda: self.is_operator)
        self.switches = {"search": True, "memory": True, "attachments": True}
        # Streams that ended, for whatever reason.
        self.ended_streams = 0
        self.reset_notices()
        self.reset_credentials()

    async def start(self, folder: Path, log: Log) -> None:
        await self.payments.start(f"unix:{folder}/bookings.sock", log)

    async def close(self) -> None:
        await self.payments.close()
        await self.router.close()
        await self.metering.close()

    def sign_in(self) -> str:
        """Makes a session, and returns its token."""
        self.session_count += 1
        token = f"session-token-{self.session_count:032d}"
        self.sessions.add(token)
        return token

    def fill(self) -> None:
        """Gives the account a month of use, keys in every state, passkeys, sessions and a log."""
        self.add_key("Nightly report", last_use_time=ago(hours=3), requests_per_minute=60)
        self.add_key("Website chat", last_use_time=ago(hours=1), expire_time=hence(days=9))
        self.add_key("Old laptop", create_time=ago(days=200), last_use_time=ago(days=120))
        self.add_key("Contractor", state=auth_pb2.KEY_STATE_REVOKED, revoke_time=ago(days=2), last_use_time=ago(days=2))
        self.add_key("Trial", state=auth_pb2.KEY_STATE_EXPIRED, expire_time=ago(days=20))
        self.keys[1].scopes.append(auth_pb2.SCOPE_INFERENCE)
        self.metering.fill([each.key_id for each in self.keys[:4]])
        self.keys[1].allowed_classes.class_ids.extend(["mezzo", "forte"])
        self.passkeys = [
            pb.Passkey(
                passkey_id="pk_1",
                name="Work laptop",
                create_time=ago(days=80),
                last_use_time=ago(hours=5),
                rp_id="localhost",
            ),
            pb.Passkey(passkey_id="pk_2", name="Phone", create_time=ago(days=12), is_backed_up=True, rp_id="localhost"),
        ]
        self.recovery_codes = 8
        actions = ("session.started", "key.created", "key.revoked", "passkey.added", "member.invited")
        self.events = [
            pb.AuditEvent(
                event_no=9 - number,
                time=ago(hours=7 * number),
                action=action,
                user_id="user_1",
                user_name="Ada Lovelace",
                object_id="key_0000000000000001" if action.startswith("key") else "",
                network="192.0.2.0/24",
                outcome=pb.AUDIT_OUTCOME_REFUSED if number == 4 else pb.AUDIT_OUTCOME_DONE,
            )
            for number, action in enumerate(actions)
        ]
        self.invitations = [
            pb.Invitation(
                invitation_id="inv_1",
                account_id=ACCOUNT_ID,
                email="grace@example.ca",
                role=access_token_pb2.ACCOUNT_ROLE_VIEWER,
                expire_time=hence(days=6),
            )
        ]

    def user(self) -> pb.User:
        return pb.User(
            user_id="user_1",
            name="Ada Lovelace",
            email="ada@example.ca",
            create_time=ago(days=90),
            passkeys=len(self.passkeys),
            recovery_codes=self.recovery_codes,
            is_operator=self.is_operator,
            has_password=self.has_password,
            identities=len(self.credentials.identities),
        )

    def offer_everything(self) -> None:
        """Offers all ways to sign in, and gives the user each of them."""
        self.fill()
        self.methods = credentials_pb2.GetSignInMethodsResponse(
            password=True, mail=True, oidc_issuer="login.example.ca"
        )
        self.has_password = True
        self.credentials = credentials_pb2.GetCredentialsResponse(
            password_set_time=ago(days=40),
            totp_set_time=ago(days=40),
            identities=[
                credentials_pb2.OidcIdentity(
                    identity_id="idn_1", issuer="login.example.ca", create_time=ago(days=9), last_use_time=ago(hours=2)
                )
            ],
        )

    def session(self, number: int = 1) -> pb.Session:
        return pb.Session(
            session_id=f"sess_{number}",
            create_time=ago(hours=30 * number),
            last_seen_time=ago(hours=20 * (number - 1)),
            network="192.0.2.0/24" if number == 1 else "2001:db8::/48",
            browser="Firefox on Linux" if number == 1 else "Safari on iPhone",
            method=pb.SIGN_IN_METHOD_PASSKEY if number == 1 else pb.SIGN_IN_METHOD_LINK,
        )

    def signed_in(self) -> pb.SignedIn:
        return pb.SignedIn(session_token=self.sign_in(), session=self.session(), user=self.user())

    # What every RPC does, by name.

    def note(self, name: str, request: Any) -> None:
        """Keeps a call, and fails it if it is to fail."""
        self.calls.append(name)
        self.requests.append(request)
        if name in self.fail:
            raise self.fail[name]

    def answer(self, name: str, request: Any, has_token: bool) -> Any:
        self.note(name, request)
        needs_no_token = name.startswith(("SignInService.", "SignInMethodService."))
        if not needs_no_token and not has_token:
            raise LegatoError(Reason.ACCESS_TOKEN_INVALID, "The access token is not valid.")
        service, _, method = name.partition(".")
        of_visitor = getattr(request, "account_id", "") == ACCOUNT_ID or (
            method == "ListAuditEvents" and request.user_id == self.user().user_id and not request.action
        )
        handler = getattr(self.operator if is_for_operators(service) and not of_visitor else self, method)
        return self.told(handler(request))

    def told(self, answer: Any) -> Any:
        if self.has_long_names:
            lengthen(answer)
        return answer

    def StartPasskeySignIn(self, request: Any) -> Any:
        options = {"challenge": "AAAAAAAAAAAAAAAAAAAAAA", "rpId": "localhost", "userVerification": "required"}
        return pb.StartPasskeySignInResponse(challenge_id="challenge-1", options_json=json.dumps(options))

    def SignIn(self, request: Any) -> Any:
        proof = request.proof
        if proof.HasField("passkey"):
            answer = json.loads(proof.passkey.credential_json)["response"]
            is_proved = proof.passkey.challenge_id == "challenge-1" and "signature" in answer
        elif proof.HasField("password"):
            password = proof.password
            given = (password.email, password.password, password.totp_code)
            is_proved = given == ("ada@example.ca", PASSWORD, "123456")
        elif proof.recovery_code:
            is_proved = proof.recovery_code == "recovery-1"
        else:
            code = proof.sign_in_link_code.replace("-", "").upper()
            is_proved = code == CODE.replace("-", "") and code not in self.used_codes
            self.used_codes.add(code)
        if not is_proved:
            raise sign_in_failed()
        return pb.SignInResponse(signed_in=self.signed_in())

    def GetInvitation(self, request: Any) -> Any:
        if request.code != INVITATION:
            raise sign_in_failed()
        return pb.GetInvitationResponse(
            account_name="Analytical Engines",
            invited_by="Charles Babbage",
            role=access_token_pb2.ACCOUNT_ROLE_MEMBER,
            expire_time=hence(days=7),
        )

    def AcceptInvitation(self, request: Any) -> Any:
        if request.code != INVITATION:
            raise sign_in_failed()
        if request.session_token:
            return pb.AcceptInvitationResponse(account_id=ACCOUNT_ID)
        return pb.AcceptInvitationResponse(signed_in=self.signed_in(), account_id=ACCOUNT_ID)

    def ResolveSession(self, request: Any) -> Any:
        if request.session_token not in self.sessions:
            raise LegatoError(Reason.SESSION_ENDED, "The session has ended.")
        membership = pb.Membership(
            account_id=ACCOUNT_ID,
            account_name="Analytical Engines",
            role=self.role,
            is_suspended=self.is_suspended,
        )
        return pb.ResolveSessionResponse(
            user=self.user(),
            session=self.session(),
            memberships=[membership] if self.has_account else [],
            account_id=ACCOUNT_ID if self.has_account else "",
            access_token=self.sign_access(
                is_operator=self.is_operator, account_id=ACCOUNT_ID if self.has_account else ""
            ),
            step_up_until_time=hence(minutes=9) if self.is_fresh else ago(minutes=1),
            account=self.GetAccount(request).account if self.has_account else None,
        )

    def StepUp(self, request: Any) -> Any:
        proof = request.proof
        is_password = proof.password.password == PASSWORD
        is_code = proof.recovery_code == "recovery-1" or proof.sign_in_link_code in (CODE, MAILED_CODE)
        if not is_code and not proof.HasField("passkey") and not is_password:
            raise sign_in_failed()
        self.sessions.discard(request.session_token)
        self.is_fresh = True
        return pb.StepUpResponse(signed_in=self.signed_in())

    def SignOut(self, request: Any) -> Any:
        self.sessions.discard(request.session_token)
        return pb.SignOutResponse()

    def UpdateUser(self, request: Any) -> Any:
        return pb.UpdateUserResponse(user=self.user())

    def StartPasskeyRegistration(self, request: Any) -> Any:
        user = self.user()
        mails = user.email and self.methods.mail
        if user.passkeys or user.identities or user.has_password or user.recovery_codes or mails:
            self.require_recent()
        options = {
            "challenge": "AAAAAAAAAAAAAAAAAAAAAA",
            "rp": {"id": "localhost", "name": "Legato"},
            "user": {"id": "dXNlcl8x", "name": "Ada", "displayName": "Ada Lovelace"},
            "pubKeyCredParams": [{"type": "public-key", "alg": -7}],
            "authenticatorSelection": {"residentKey": "required", "userVerification": "required"},
        }
        return pb.StartPasskeyRegistrationResponse(challenge_id="challenge-2", options_json=json.dumps(options))

    def FinishPasskeyRegistration(self, request: Any) -> Any:
        assert "attestationObject" in json.loads(request.credential_json)["response"]
        made = pb.Passkey(passkey_id=f"pk_{len(self.passkeys) + 1}", name=request.name or "Passkey", create_time=ago())
        self.passkeys.append(made)
        return pb.FinishPasskeyRegistrationResponse(passkey=made)

    def RenamePasskey(self, request: Any) -> Any:
        return pb.RenamePasskeyResponse()

    def RemovePasskey(self, request: Any) -> Any:
        if len(self.passkeys) == 1:
            raise LegatoError(Reason.REQUEST_INVALID, "The last way to sign in cannot be removed.")
        self.passkeys = [each for each in self.passkeys if each.passkey_id != request.passkey_id]
        return pb.RemovePasskeyResponse()

    def GenerateRecoveryCodes(self, request: Any) -> Any:
        self.require_recent()
        self.recovery_codes = 10
        return pb.GenerateRecoveryCodesResponse(codes=[f"RCVY-{number:04d}-ABCD-EFGH" for number in range(10)])

    def KeepResult(self, request: Any) -> Any:
        self.results[f"result_{len(self.results)}"] = request.sealed
        return pb.KeepResultResponse(result_id=f"result_{len(self.results) - 1}")

    def TakeResult(self, request: Any) -> Any:
        sealed, self.results[request.result_id] = self.results.get(request.result_id), None
        if sealed is None:
            raise LegatoError(Reason.NOT_FOUND, "There is no such result.")
        return pb.TakeResultResponse(sealed=sealed)

    def ListSessions(self, request: Any) -> Any:
        return pb.ListSessionsResponse(sessions=[self.session(1), self.session(2)], current_session_id="sess_1")

    def EndSessions(self, request: Any) -> Any:
        return pb.EndSessionsResponse(ended=len(request.session_ids) or 1)

    def GetAccount(self, request: Any) -> Any:
        account = auth_pb2.Account(
            account_id=ACCOUNT_ID,
            name="Analytical Engines",
            preferred_class="forte",
            tokens_per_minute=200_000,
            auto_class="forte" if self.allowed_classes is None else self.allowed_classes[0],
            **self.switches,  # type: ignore[arg-type]
        )
        if self.allowed_classes is not None:
            account.allowed_classes.class_ids.extend(self.allowed_classes)
        return auth_pb2.GetAccountResponse(account=account)

    def UpdateAccount(self, request: Any) -> Any:
        return auth_pb2.UpdateAccountResponse()

    def ListMembers(self, request: Any) -> Any:
        second = pb.User(user_id="user_2", name="Charles Babbage", email="charles@example.ca")
        members = [
            pb.Member(user=self.user(), role=self.role, join_time=ago(days=90)),
            pb.Member(user=second, role=access_token_pb2.ACCOUNT_ROLE_MEMBER, join_time=ago(days=10)),
        ]
        return pb.ListMembersResponse(members=members, invitations=self.invitations)

    def InviteMember(self, request: Any) -> Any:
        self.require_recent()
        invitation = pb.Invitation(invitation_id="inv_2", role=request.role, expire_time=hence(days=7))
        return pb.InviteMemberResponse(invitation=invitation, code=INVITATION)

    def CancelInvitation(self, request: Any) -> Any:
        self.invitations = []
        return pb.CancelInvitationResponse()

    def ChangeMemberRole(self, request: Any) -> Any:
        self.require_recent()
        return pb.ChangeMemberRoleResponse()

    def RemoveMember(self, request: Any) -> Any:
        for each in self.keys:
            if each.created_by == request.user_id and each.key_id not in request.kept_key_ids:
                each.state = auth_pb2.KEY_STATE_REVOKED
        return pb.RemoveMemberResponse()

    def ListAuditEvents(self, request: Any) -> Any:
        return pb.ListAuditEventsResponse(events=self.events)

    def CreatePlaygroundToken(self, request: Any) -> Any:
        return pb.CreatePlaygroundTokenResponse(playground_token=PLAYGROUND_TOKEN, expire_time=hence(minutes=15))


def not_answering() -> LegatoError:
    return unavailable("The service")


def is_for_operators(service: str) -> bool:
    return ("Admin" in service and service != "GroundingAdminService") or service == "AuditService"
