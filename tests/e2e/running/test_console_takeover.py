"""A console that was taken over gives its certificate and its memory: the users who visit it, and nothing else.

The services are real processes on TCP. Every RPC of every service is tried, by the descriptors, so that no new one is
forgotten.
"""

import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import grpc
import pytest

from cli.commands.account.accounts import create_account
from cli.connection import call_service
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.type.v1.access_token_pb2 import AccountRole as ProtoRole
from services.chassis.access_tokens import LIFETIME_US, METADATA_KEY, Access, AccessTokenSigner, AccountRole
from services.chassis.errors import Reason
from services.chassis.rpc.channel import from_rpc_error
from tests.e2e.running.deployment import METHODS, Deployment, Method, Visitor

CREDIT_NANOS: Final = 5 * 10**9
# What the console may do without a visitor: find out who one is.
# What it may do for a visitor, who must be signed in: these services, and of two others these methods.
WITHOUT_A_VISITOR: Final = {"SignInService"}
# It passes on what Stripe has signed.
METHODS_WITHOUT_A_VISITOR: Final = {"PaymentService.ReceiveEvent"}
FOR_VISITORS: Final = {
    "UserService",
    "StatementService",
    "NoticeService",
    "NoticeThresholdService",
    "GroundingAdminService",
    "ChatOutcomeService",
    "ContentService",
}
METHODS_FOR_VISITORS: Final = {
    "AccountAdminService": {
        "GetAccount",
        "UpdateAccount",
        "ListMembers",
        "InviteMember",
        "CancelInvitation",
        "ChangeMemberRole",
        "RemoveMember",
        "CreatePlaygroundToken",
        "ListMyKeys",
        "DeleteUser",
        "CloseAccount",
        "EndMemberships",
    },
    "AuditService": {"ListAuditEvents"},
    "KeyAdminService": {
        "CreateKey",
        "RotateKey",
        "ListKeys",
        "RenameKey",
        "UpdateKey",
        "RevokeKey",
        "GetKey",
        "SetKeySpendLimits",
    },
    "MeteringService": {"ListUsage", "GetBalance", "GetRequest"},
    "SpendLimitService": {"ListSpendLimits", "SetSpendLimits"},
    "RouterService": {"ListModels"},
    "CreditAdminService": {"ListCredits"},
    "PaymentService": {"GetPaymentOptions", "CreateCheckout", "GetCheckout"},
}
# What only operators' consoles may do.
FOR_OPERATORS: Final = {"NoticeService.ListDeadLetters", "SpendLimitService.RecountSpends"}


def needs_no_visitor(method: Method) -> bool:
    return method.descriptor.containing_service.name in WITHOUT_A_VISITOR or method.name in METHODS_WITHOUT_A_VISITOR


def is_for_visitors(method: Method) -> bool:
    group = method.descriptor.containing_service.name
    if method.name in FOR_OPERATORS:
        return False
    return group in FOR_VISITORS or method.descriptor.name in METHODS_FOR_VISITORS.get(group, ())


EVERY_METHOD: Final = list(METHODS.values())
EVERY_METHOD_FOR_VISITORS: Final = [method for method in EVERY_METHOD if is_for_visitors(method)]


class TakenOver:
    """A console in the hands of an attacker, with one visitor: a viewer of the account `own`."""

    def __init__(self, deployment: Deployment) -> None:
        self._channels = deployment.channels("console")
        admin = deployment.admin()
        self.own, self.other = (create_account(admin, name, CREDIT_NANOS)[0].account_id for name in ("own", "other"))
        self.visitor = Visitor(admin, self._channels["auth"], self.own, ProtoRole.ACCOUNT_ROLE_VIEWER)
        admin.close()
        self.token = self.visitor.token()

    def sign_out(self) -> None:
        request = pb.SignOutRequest(session_token=self.visitor.session_token)
        METHODS["SignInService.SignOut"].call(self._channels["auth"], request)

    def attempt(self, method: Method, account_id: str = "", token: bytes = b"") -> Reason | None:
        """Calls a method, about an account if it is about any; returns why not, or None if it was done."""
        request = method.request_type()
        if "account_id" in method.descriptor.input_type.fields_by_name:
            request.account_id = account_id
        try:
            method.call(self._channels[method.server], request, ((METADATA_KEY, token),) if token else ())
        except grpc.RpcError as error:
            return from_rpc_error(error, method.server).reason
        return None

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


@pytest.fixture
def console(deployment: Deployment) -> Iterator[TakenOver]:
    taken = TakenOver(deployment)
    yield taken
    taken.close()


def test_without_a_visitor_it_may_only_sign_users_in(console: TakenOver) -> None:
    outcomes = {method.name: console.attempt(method, console.other) for method in EVERY_METHOD}
    refused = {name for name, reason in outcomes.items() if reason is Reason.CALLER_NOT_ALLOWED}
    need_a_visitor = {name for name, reason in outcomes.items() if reason is Reason.ACCESS_TOKEN_INVALID}
    assert set(outcomes) - refused - need_a_visitor == {each.name for each in EVERY_METHOD if needs_no_visitor(each)}
    assert need_a_visitor == {each.name for each in EVERY_METHOD_FOR_VISITORS}
    # Nothing that grants credit, reads or sends a message, holds credit, or learns about keys.
    for name in ("CreditAdminService.GrantCredits", "RouterService.Chat", "RouterService.Exchange"):
        assert name in refused
    # An event that Stripe has not signed books nothing.
    assert "PaymentBookingService.BookPayment" in refused
    assert outcomes["PaymentService.ReceiveEvent"] is Reason.REQUEST_INVALID
    for name in ("MeteringService.Reserve", "MeteringService.Exchange", "AuthService.Verify", "AuthService.Watch"):
        assert name in refused
    assert refused >= FOR_OPERATORS
    assert len(refused) > 20


def test_tokens_that_auth_did_not_sign_for_this_minute_are_refused(console: TakenOver, deployment: Deployment) -> None:
    now_us = time.time_ns() // 1000
    everything = Access(
        console.visitor.user_id, "sess_1", console.other, AccountRole.OWNER, True, now_us, now_us + LIFETIME_US
    )
    made_by_the_console = AccessTokenSigner(secrets.token_hex(32)).sign(everything)
    expired = deployment.signer.sign(replace(everything, expires_at_us=now_us - 1))
    changed = bytearray(console.token)
    changed[10] ^= 1
    for token in (made_by_the_console, expired, bytes(changed), b"x"):
        done = {
            method.name
            for method in EVERY_METHOD_FOR_VISITORS
            if console.attempt(method, console.other, token) is not Reason.ACCESS_TOKEN_INVALID
        }
        assert done == set()


def test_a_visitor_is_of_use_in_their_own_account_alone(console: TakenOver) -> None:
    """Requests without an account are about the visitor; no answer to them is about anybody else."""
    about_accounts = [
        method for method in EVERY_METHOD_FOR_VISITORS if "account_id" in method.descriptor.input_type.fields_by_name
    ]
    assert len(about_accounts) > 15
    for account_id in (console.other, ""):
        allowed = [
            method.name
            for method in about_accounts
            if console.attempt(method, account_id, console.token) is not Reason.ROLE_MISSING
        ]
        # Which models there are, everybody who is signed in may know.
        assert [name for name in allowed if name != "RouterService.ListModels"] == []
    # The token itself is good, and a viewer's.
    assert console.attempt(METHODS["MeteringService.GetBalance"], console.own, console.token) is None
    assert console.attempt(METHODS["KeyAdminService.CreateKey"], console.own, console.token) is Reason.ROLE_MISSING


def test_a_visitor_who_signed_out_is_of_no_use_to_auth(console: TakenOver) -> None:
    console.sign_out()
    methods = [method for method in EVERY_METHOD_FOR_VISITORS if method.server == "auth"]
    done = [method.name for method in methods if console.attempt(method, console.own, console.token) is None]
    assert done == []
    with pytest.raises(grpc.RpcError) as refused:
        console.visitor.token()
    assert from_rpc_error(refused.value, "auth").reason is Reason.SESSION_ENDED


def test_a_visitor_whose_role_ended_is_of_no_use_to_auth(console: TakenOver, deployment: Deployment) -> None:
    admin = deployment.admin()
    call_service(admin.users.DisableUser, pb.DisableUserRequest(user_id=console.visitor.user_id))
    admin.close()
    methods = [method for method in EVERY_METHOD_FOR_VISITORS if method.server == "auth"]
    done = [method.name for method in methods if console.attempt(method, console.own, console.token) is None]
    assert done == []
