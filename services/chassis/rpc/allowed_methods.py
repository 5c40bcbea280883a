"""Defines which caller may call which RPC.

On TCP a caller is identified by its certificate: the URI `spiffe://legato/NAME` among its alternative names. On a unix
socket, file permissions admit the owner alone, who may call everything; sockets for a console have its list instead.
"""

from collections.abc import Iterable
from contextvars import ContextVar
from enum import Enum
from typing import Any, Final

from services.chassis.errors import LegatoError, Reason

TRUST_DOMAIN: Final = "spiffe://legato/"
CALLER_PREFIX: Final = "caller/"


class Role(Enum):
    EDGE = "edge"
    # Internal programs that use the services without HTTP; each has its own name.
    CALLER = "caller"
    ADMIN = "admin"
    # The web console, and the one for operators. Most calls also need a user's access token: see access_rules.py.
    CONSOLE = "console"
    OPERATOR_CONSOLE = "operator-console"
    # Books what was paid by card, in metering; the consoles call it.
    PAYMENTS = "payments"
    # Takes over the notices and changes that metering records, and makes no other calls.
    AUTH = "auth"
    # Servers only: they make no calls.
    ROUTER = "router"
    METERING = "metering"


# The role of the caller whose call the current task serves; None: the owner, on a unix socket.
current_role: ContextVar[Role | None] = ContextVar("current_role", default=None)


def _methods(service: str, names: str) -> set[str]:
    return {f"/{service}/{name}" for name in names.split()}


_AUTH, _ROUTER, _METERING = "legato.auth.v1", "legato.router.v1", "legato.metering.v1"
_PAYMENTS = "legato.payments.v1"

_READING: Final = _methods(f"{_METERING}.MeteringService", "ListUsage GetBalance GetRequest")
_STATEMENTS: Final = {
    *_methods(f"{_METERING}.StatementService", "ListLedgerEntries ListLedgerDays ListRequests ListPrices AuditAccount"),
    *_methods(f"{_METERING}.CreditAdminService", "ListCredits"),
}
_CHATTING: Final = {
    *_methods(f"{_AUTH}.AuthService", "Verify Watch FindRefusedKeys"),
    *_methods(f"{_ROUTER}.RouterService", "Chat Exchange ListModels"),
    *_methods(f"{_METERING}.MeteringService", "Reserve Extend Settle Void Checkpoint Exchange"),
    *_READING,
}
_HEALTH: Final = _methods("grpc.health.v1.Health", "Check List Watch")
_REFLECTION: Final = _methods("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo")

_SIGNING_IN: Final = {
    *_methods(
        f"{_AUTH}.SignInService",
        "StartPasskeySignIn FinishPasskeySignIn SignInWithLink SignInWithRecoveryCode GetInvitation AcceptInvitation "
        "ResolveSession StepUp SignOut",
    ),
    *_methods(
        f"{_AUTH}.SignInMethodService",
        "GetSignInMethods SignInWithPassword SendSignInLink StartOidcSignIn FinishOidcSignIn",
    ),
}
_OF_USERS: Final = {
    *_methods(
        f"{_AUTH}.UserService",
        "UpdateUser StartPasskeyRegistration FinishPasskeyRegistration ListPasskeys RenamePasskey RemovePasskey "
        "GenerateRecoveryCodes ListSessions EndSessions ListMyAuditEvents KeepResult TakeResult",
    ),
    *_methods(
        f"{_AUTH}.CredentialService",
        "GetCredentials SetPassword RemovePassword StartTotp SetTotp StartOidcLink RemoveOidcIdentity SendStepUpCode",
    ),
    *_methods(
        f"{_AUTH}.AccountService",
        "GetAccount UpdateAccount CreateKey RotateKey RenameKey UpdateKey RevokeKey ListKeys IdentifyKey "
        "CreateKeyAccessToken ListMembers InviteMember CancelInvitation ChangeMemberRole RemoveMember ListAuditEvents "
        "CreatePlaygroundToken",
    ),
}
_GROUNDING: Final = _methods(
    f"{_ROUTER}.GroundingAdminService",
    "AddNote ListNotes UpdateNote RemoveNote RemoveAllNotes AddAttachment ListAttachments RemoveAttachment "
    "PreviewGrounding GetGroundingConfig",
)
_LISTING_MODELS: Final = _methods(f"{_ROUTER}.RouterService", "ListModels")
_OF_OPERATORS: Final = {
    *_methods(
        f"{_AUTH}.AccountAdminService",
        "CreateAccount GetAccount ListAccounts UpdateAccount SuspendAccount ResumeAccount",
    ),
    *_methods(f"{_AUTH}.NoticeService", "ListDeadLetters"),
    *_methods(f"{_AUTH}.KeyAdminService", "CreateKey ListKeys UpdateKey RevokeKey CountKeysByPepper GetKey"),
    *_methods(
        f"{_AUTH}.UserAdminService",
        "CreateUser ListUsers CreateSignInLink DisableUser SetOperator ListAuditEvents VerifyAuditEvents "
        "RecordOperatorAction",
    ),
    *_methods(
        f"{_METERING}.CreditAdminService", "GrantCredits AdjustCredits ListBalances ListCredits Audit ListClosings"
    ),
    *_methods(f"{_ROUTER}.RouteAdminService", "ReloadRoutes ListTargets"),
}
_SPEND_LIMITS: Final = _methods(f"{_METERING}.SpendLimitService", "ListSpendLimits SetSpendLimits InheritSpendLimits")
_PAYING: Final = _methods(f"{_PAYMENTS}.PaymentService", "GetPaymentOptions CreateCheckout GetCheckout ReceiveEvent")
_BOOKING_PAYMENTS: Final = _methods(f"{_METERING}.PaymentBookingService", "BookPayment OpenAccount")
_NOTICES: Final = {
    *_methods(
        f"{_AUTH}.NoticeService",
        "GetNoticeSettings SetMutedKinds SetOwnMail AddWebhook RemoveWebhook ListNotices ResendNotice SendTestNotice",
    ),
    *_methods(f"{_METERING}.NoticeThresholdService", "GetLowBalance SetLowBalance"),
}
_OF_ACCOUNTS: Final = _READING | _STATEMENTS | _SPEND_LIMITS | _NOTICES | _PAYING
_CONSOLE: Final = _SIGNING_IN | _OF_USERS | _OF_ACCOUNTS | _GROUNDING | _LISTING_MODELS | _HEALTH

# Methods by full name. A method has the same name as an item of an exchange.
ALLOWED: Final[dict[Role, frozenset[str]]] = {
    # Only the edge charges rate limits.
    Role.EDGE: frozenset(_CHATTING | _methods(f"{_METERING}.MeteringService", "Admit Correct") | _HEALTH),
    Role.CALLER: frozenset(_CHATTING | _HEALTH | _REFLECTION),
    Role.ADMIN: frozenset(
        _OF_OPERATORS
        | _methods(f"{_AUTH}.MaintenanceAdminService", "StartMaintenance EndMaintenance GetMaintenance")
        | _methods(f"{_METERING}.SpendLimitService", "RecountSpends")
        | _GROUNDING
        | _LISTING_MODELS
        | _READING
        | _SPEND_LIMITS
        | _NOTICES
        | _STATEMENTS
        | _HEALTH
        | _REFLECTION
    ),
    Role.CONSOLE: frozenset(_CONSOLE),
    Role.OPERATOR_CONSOLE: frozenset(_CONSOLE | _OF_OPERATORS),
    Role.PAYMENTS: frozenset(_BOOKING_PAYMENTS | _HEALTH),
    Role.AUTH: frozenset(
        _methods(f"{_METERING}.NoticeOutboxService", "ListPendingNotices AcknowledgeNotices")
        | _methods(f"{_METERING}.ChangeOutboxService", "ListPendingChanges AcknowledgeChanges")
    ),
    Role.ROUTER: frozenset(),
    Role.METERING: frozenset(),
}


def uri_of(name: str) -> str:
    """Returns the URI of `name`, a role or `caller/NAME`."""
    return TRUST_DOMAIN + name


def role_of(names: Iterable[str]) -> Role | None:
    """Returns the role of a certificate's alternative names; None if they name no known caller, or several."""
    ours = [name.removeprefix(TRUST_DOMAIN) for name in names if name.startswith(TRUST_DOMAIN)]
    if len(ours) != 1:
        return None
    if ours[0].startswith(CALLER_PREFIX) and len(ours[0]) > len(CALLER_PREFIX):
        return Role.CALLER
    return next((role for role in Role if role is not Role.CALLER and role.value == ours[0]), None)


def may_call(context: Any, method: str) -> bool:
    """Returns whether the caller of an RPC may call a method, which need not be that RPC. `context` is gRPC's."""
    if not is_secured(context):
        return True
    role = role_of(names_of(context))
    return role is not None and method in ALLOWED[role]


def is_secured(context: Any) -> bool:
    """Returns whether the caller has a certificate."""
    return bool(context.auth_context().get("transport_security_type") == [b"ssl"])


def names_of(context: Any) -> list[str]:
    """Returns the alternative names of the caller's certificate."""
    names = context.auth_context().get("x509_subject_alternative_name", ())
    return [name.decode("utf-8", "replace") for name in names]


def not_allowed() -> LegatoError:
    return LegatoError(Reason.CALLER_NOT_ALLOWED, "The caller's certificate does not allow this.")
