"""Defines what a console's access token must contain for each method, and checks it.

A console is trusted with nothing but the users who visit it: it may sign users in, and every other call needs the token
that auth signed for one of them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from services.chassis.access_tokens import METADATA_KEY, Access, AccessTokenVerifier, AccountRole, current_access
from services.chassis.errors import LegatoError, Reason

# How long after a passkey or a code nobody is asked for another.
STEP_UP_VALID_US: Final = 600_000_000


@dataclass(frozen=True, slots=True)
class AccessRule:
    """The least that a token must have. NONE: any signed-in user, whatever the account."""

    role: AccountRole = AccountRole.NONE
    # Only for operators.
    operator: bool = False
    # Operators need no role in the account.
    or_operator: bool = False
    # The user must have proved who they are within the last ten minutes. Required by what grants access, never by what
    # removes it.
    recent: bool = False


_VIEWER, _MEMBER, _OWNER = (AccessRule(role) for role in (AccountRole.VIEWER, AccountRole.MEMBER, AccountRole.OWNER))
_USER, _OPERATOR = AccessRule(), AccessRule(operator=True)
_READER = AccessRule(AccountRole.VIEWER, or_operator=True)


def _rules(service: str, rules: dict[AccessRule, str]) -> dict[str, AccessRule]:
    return {f"/legato.{service}/{name}": rule for rule, names in rules.items() for name in names.split()}


def _recent(rule: AccessRule) -> AccessRule:
    return replace(rule, recent=True)


# Every method that a console may call, other than to sign users in, to pass on signed events and to check health.
RULES: Final[dict[str, AccessRule]] = {
    **_rules(
        "auth.v1.UserService",
        {
            # Whoever has no other way to prove anything may add a first passkey: that is decided there.
            _USER: "UpdateUser ListPasskeys RenamePasskey RemovePasskey ListSessions EndSessions ListMyAuditEvents "
            "KeepResult TakeResult StartPasskeyRegistration FinishPasskeyRegistration",
            _recent(_USER): "GenerateRecoveryCodes",
        },
    ),
    **_rules(
        "auth.v1.CredentialService",
        {
            _USER: "GetCredentials RemovePassword RemoveOidcIdentity SendStepUpCode",
            _recent(_USER): "SetPassword StartTotp SetTotp StartOidcLink",
        },
    ),
    **_rules(
        "auth.v1.AccountService",
        {
            # Everybody may leave; the rest of RemoveMember is decided there.
            _VIEWER: "GetAccount ListKeys ListMembers RemoveMember",
            # The token is bound to the session, so it grants nothing new.
            _MEMBER: "RenameKey UpdateKey RevokeKey IdentifyKey CreateKeyAccessToken CreatePlaygroundToken",
            _recent(_MEMBER): "CreateKey RotateKey",
            _OWNER: "UpdateAccount CancelInvitation ListAuditEvents",
            _recent(_OWNER): "InviteMember ChangeMemberRole",
        },
    ),
    **_rules(
        "auth.v1.NoticeService",
        {
            replace(_OWNER, or_operator=True): "GetNoticeSettings ListNotices ResendNotice",
            _OPERATOR: "ListDeadLetters",
            _OWNER: "SetMutedKinds SetOwnMail RemoveWebhook SendTestNotice",
            # A webhook learns which networks keys are used from.
            _recent(_OWNER): "AddWebhook",
        },
    ),
    **_rules(
        "metering.v1.NoticeThresholdService",
        {_READER: "GetLowBalance", replace(_OWNER, or_operator=True): "SetLowBalance"},
    ),
    **_rules("metering.v1.MeteringService", {_READER: "ListUsage GetBalance GetRequest"}),
    **_rules(
        "metering.v1.SpendLimitService",
        {
            _READER: "ListSpendLimits",
            _recent(replace(_OWNER, or_operator=True)): "SetSpendLimits",
            # For whoever rotates a key. It can only limit a key that has no limits.
            _recent(_MEMBER): "InheritSpendLimits",
        },
    ),
    **_rules(
        "metering.v1.StatementService",
        {_READER: "ListLedgerEntries ListLedgerDays ListRequests AuditAccount", _USER: "ListPrices"},
    ),
    **_rules("payments.v1.PaymentService", {_USER: "GetPaymentOptions", _OWNER: "CreateCheckout GetCheckout"}),
    **_rules("router.v1.RouterService", {_USER: "ListModels"}),
    **_rules(
        "router.v1.GroundingAdminService",
        {
            _USER: "GetGroundingConfig",
            _MEMBER: "AddNote ListNotes UpdateNote RemoveNote RemoveAllNotes AddAttachment ListAttachments "
            "RemoveAttachment PreviewGrounding",
        },
    ),
    **_rules(
        "auth.v1.AccountAdminService",
        {
            _OPERATOR: "GetAccount ListAccounts SuspendAccount",
            _recent(_OPERATOR): "CreateAccount UpdateAccount ResumeAccount",
        },
    ),
    **_rules(
        "auth.v1.KeyAdminService",
        {_OPERATOR: "ListKeys RevokeKey CountKeysByPepper GetKey", _recent(_OPERATOR): "CreateKey UpdateKey"},
    ),
    **_rules(
        "auth.v1.UserAdminService",
        {
            # Enabling a user again and making one an operator are checked there.
            _OPERATOR: "ListUsers DisableUser SetOperator ListAuditEvents VerifyAuditEvents RecordOperatorAction",
            _recent(_OPERATOR): "CreateUser CreateSignInLink",
        },
    ),
    **_rules(
        "metering.v1.CreditAdminService",
        {
            _READER: "ListCredits",
            _OPERATOR: "ListBalances Audit ListClosings",
            _recent(_OPERATOR): "GrantCredits AdjustCredits",
        },
    ),
    **_rules("router.v1.RouteAdminService", {_OPERATOR: "ListTargets", _recent(_OPERATOR): "ReloadRoutes"}),
}


# Returns what a token's claims have become since, or raises.
Confirm = Callable[[Access, AccessRule], Awaitable[Access]]


class AccessCheck:
    """Checks the tokens of a service's calls."""

    def __init__(
        self, verifier: AccessTokenVerifier, now_us: Callable[[], int], confirm: Confirm | None = None
    ) -> None:
        self._verifier = verifier
        self._now_us = now_us
        self._confirm = confirm

    async def check(self, context: Any, method: str) -> Access | None:
        """Returns the access that a call has; None where the method needs none. `context` is gRPC's."""
        rule = RULES.get(method)
        if rule is None:
            return None
        token = next((value for key, value in context.invocation_metadata() or () if key == METADATA_KEY), b"")
        access = self._verifier.verify(token, self._now_us())
        if rule.operator and not access.is_operator:
            raise role_missing()
        if access.role < rule.role and not (rule.or_operator and access.is_operator):
            raise role_missing()
        if rule.recent:
            require_recent(access, self._now_us())
        return access if self._confirm is None else await self._confirm(access, rule)


def require_recent(access: Access, now_us: int) -> None:
    if access.authenticated_at_us + STEP_UP_VALID_US <= now_us:
        raise LegatoError(Reason.STEP_UP_REQUIRED, "Confirm that it is you, then repeat this.")


def check_account(access: Access, method: str, request: Any) -> None:
    """Raises unless the request is about the token's account, or about none."""
    rule = RULES[method]
    if rule.role is AccountRole.NONE or (rule.or_operator and access.is_operator):
        return
    if not access.account_id or request.account_id != access.account_id:
        raise role_missing()


def require_key(key_id: str, replaced_key_id: str = "") -> None:
    """Raises unless the current call's token names the key, and the one that it replaces if that is given. Only auth
    knows whose a key is: what a console's request says of it is not believed. Callers without a token may name any."""
    access = current_access.get()
    if access is None:
        return
    if key_id != access.key_id or (replaced_key_id and replaced_key_id != access.replaced_key_id):
        raise LegatoError(Reason.NOT_FOUND, "There is no such key.", param="key_id")


def role_missing() -> LegatoError:
    return LegatoError(Reason.ROLE_MISSING, "Your role in this account does not allow this.")


def no_access_check() -> AccessCheck:
    """Returns a check that refuses every token, for a service without public keys."""
    return AccessCheck(AccessTokenVerifier(""), lambda: 0)
