"""What the fake services answer to operators: accounts, users, credit, routes, and what the processes tell."""

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from protos.auth.v1 import auth_pb2
from protos.auth.v1 import users_pb2 as pb
from protos.type.v1 import access_token_pb2
from services.chassis.errors import LegatoError, Reason
from tests.console.clock import NOW, ago, hence
from tests.console.metering import DOLLAR, Metering
from tests.console.router import Router

LINK_CODE = "W9XZ-3KQ7-T5RD-M2VN-8HJC"
PROCESSES = ("edge-1", "edge-2", "auth", "router", "metering")
AUDITED_AGO_S = 120


class OperatorFakes:
    """The services as operators see them. What grants access calls `require_recent`."""

    def __init__(
        self, metering: Metering, router: Router, require_recent: Callable[[], None], is_operator: Callable[[], bool]
    ) -> None:
        self._metering, self._router = metering, router
        self._require_recent = require_recent
        self._is_operator = is_operator
        self.accounts: dict[str, auth_pb2.Account] = {}
        self.keys: dict[str, auth_pb2.Key] = {}
        self.users: dict[str, pb.User] = {}
        self.memberships: list[pb.UserMembership] = []
        self.events: list[pb.AuditEvent] = []
        self.broken_events: list[int] = []
        self.recorded: list[pb.RecordOperatorActionRequest] = []
        # The text of each process's metrics; None: it does not answer.
        self.metrics: dict[str, str | None] = dict.fromkeys(PROCESSES, "")
        self.missing: dict[str, list[str]] = {}

    def fill(self) -> None:
        """Gives the service a few accounts and users, routes of two providers, and busy processes."""
        names = ("Analytical Engines", "Difference Machines Ltd.", "Bernoulli & Daughters", "Trial of March")
        for number, name in enumerate(names):
            self.add_account(name, 42 * DOLLAR * number + 187_654_321, days=90 - 20 * number)
        suspended = list(self.accounts.values())[-1]
        suspended.suspend_time.CopyFrom(ago(days=2))
        first = next(iter(self.accounts))
        self.accounts[first].requests_per_minute = 600
        for number, name in enumerate(("Website chat", "Nightly report", "Old laptop")):
            self.add_key(first, name, number + 1)
        self.keys["key_0000000000000003"].state = auth_pb2.KEY_STATE_REVOKED
        self.add_user("Ada Lovelace", "user_1", "ada@example.ca", is_operator=True, passkeys=2)
        self.add_user("Charles Babbage", "user_2", "charles@example.ca", first, passkeys=1)
        self.add_user("Grace Hopper", "user_3", "grace@example.ca", first)
        self.users["user_3"].disable_time.CopyFrom(ago(days=1))
        actions = (
            ("credit.grant_requested", "user_1-6f1b2c"),
            ("account.suspended", suspended.account_id),
            ("user.made_operator", "user_1"),
            ("key.revoked", "key_0000000000000003"),
            ("user.created", "user_3"),
        )
        self.events = [
            pb.AuditEvent(
                event_no=912 - number,
                time=ago(hours=5 * number),
                action=action,
                user_id="" if number == 2 else "user_1",
                user_name="" if number == 2 else "Ada Lovelace",
                account_id=first if number != 2 else "",
                object_id=object_id,
                network="192.0.2.0/24",
                outcome=pb.AUDIT_OUTCOME_DONE,
            )
            for number, (action, object_id) in enumerate(actions)
        ]
        self._router.be_busy()
        self.metrics = {name: METRICS[name.partition("-")[0]]() for name in PROCESSES}

    def add_account(self, name: str, balance_nanos: int = 0, *, days: float = 0) -> auth_pb2.Account:
        account_id = f"acct_{len(self.accounts) + 1:016d}"
        self.accounts[account_id] = auth_pb2.Account(
            account_id=account_id, name=name, create_time=ago(days=days), preferred_class="forte"
        )
        if balance_nanos:
            self._metering.book(balance_nanos, "grant", account_id)
        return self.accounts[account_id]

    def add_key(self, account_id: str, name: str, number: int) -> auth_pb2.Key:
        key_id = f"key_{number:016d}"
        self.keys[key_id] = auth_pb2.Key(
            key_id=key_id,
            account_id=account_id,
            name=name,
            create_time=ago(days=40),
            state=auth_pb2.KEY_STATE_ACTIVE,
            last_use_time=ago(hours=number),
        )
        return self.keys[key_id]

    def add_user(self, name: str, user_id: str, email: str, account_id: str = "", **values: Any) -> pb.User:
        user = pb.User(user_id=user_id, name=name, email=email, create_time=ago(days=60), **values)
        user.last_seen_time.CopyFrom(ago(hours=3))
        self.users[user_id] = user
        if account_id:
            membership = pb.Membership(
                account_id=account_id,
                account_name=self.accounts[account_id].name,
                role=access_token_pb2.ACCOUNT_ROLE_OWNER,
            )
            self.memberships.append(pb.UserMembership(user_id=user_id, membership=membership))
        return user

    def _check(self) -> None:
        if not self._is_operator():
            raise LegatoError(Reason.ROLE_MISSING, "Your role in this account does not allow this.")

    def _granting(self) -> None:
        self._check()
        self._require_recent()

    def _account(self, account_id: str) -> auth_pb2.Account:
        self._check()
        if account_id not in self.accounts:
            raise LegatoError(Reason.NOT_FOUND, "There is no such account.")
        return self.accounts[account_id]

    def _user(self, user_id: str) -> pb.User:
        self._check()
        if user_id not in self.users:
            raise LegatoError(Reason.NOT_FOUND, "There is no such user.")
        return self.users[user_id]

    def CreateAccount(self, request: Any) -> Any:
        self._granting()
        return auth_pb2.CreateAccountResponse(account=self.add_account(request.name))

    def GetAccount(self, request: Any) -> Any:
        return auth_pb2.GetAccountResponse(account=self._account(request.account_id))

    def ListAccounts(self, request: Any) -> Any:
        self._check()
        found = [each for each in self.accounts.values() if request.query.lower() in each.name.lower()]
        return auth_pb2.ListAccountsResponse(accounts=found)

    def UpdateAccount(self, request: Any) -> Any:
        self._granting()
        account = self._account(request.account_id)
        account.requests_per_minute = request.requests_per_minute
        return auth_pb2.UpdateAccountResponse(account=account)

    def SuspendAccount(self, request: Any) -> Any:
        account = self._account(request.account_id)
        account.suspend_time.CopyFrom(ago())
        return auth_pb2.SuspendAccountResponse(account=account)

    def ResumeAccount(self, request: Any) -> Any:
        self._granting()
        account = self._account(request.account_id)
        account.ClearField("suspend_time")
        return auth_pb2.ResumeAccountResponse(account=account)

    def ListKeys(self, request: Any) -> Any:
        self._account(request.account_id)
        found = [key for key in self.keys.values() if key.account_id == request.account_id]
        return auth_pb2.ListKeysResponse(keys=found)

    def GetKey(self, request: Any) -> Any:
        self._check()
        if request.key_id not in self.keys:
            raise LegatoError(Reason.NOT_FOUND, "There is no such key.")
        key = self.keys[request.key_id]
        key.created_by, key.created_by_name = "user_2", "Charles Babbage"
        return auth_pb2.GetKeyResponse(key=key, account=self.accounts[key.account_id])

    def RevokeKey(self, request: Any) -> Any:
        self._check()
        self.keys[request.key_id].state = auth_pb2.KEY_STATE_REVOKED
        return auth_pb2.RevokeKeyResponse(key=self.keys[request.key_id])

    def CreateUser(self, request: Any) -> Any:
        self._granting()
        if any(user.email == request.email for user in self.users.values() if request.email):
            message = "There is a user with this email address already."
            raise LegatoError(Reason.REQUEST_INVALID, message, param="email")
        if request.account_id:
            self._account(request.account_id)
        user = self.add_user(request.name, f"user_{len(self.users) + 1}", request.email, request.account_id)
        return pb.CreateUserResponse(user=user, code=LINK_CODE, code_expire_time=hence(days=7))

    def ListUsers(self, request: Any) -> Any:
        self._check()
        members = {held.user_id for held in self.memberships if held.membership.account_id == request.account_id}
        found = [
            user
            for user in self.users.values()
            if (not request.user_id or user.user_id == request.user_id)
            and (not request.account_id or user.user_id in members)
            and request.query.lower() in user.name.lower()
        ]
        ids = {user.user_id for user in found}
        return pb.ListUsersResponse(users=found, memberships=[each for each in self.memberships if each.user_id in ids])

    def CreateSignInLink(self, request: Any) -> Any:
        self._granting()
        self._user(request.user_id)
        return pb.CreateSignInLinkResponse(code=LINK_CODE, expire_time=hence(minutes=10))

    def DisableUser(self, request: Any) -> Any:
        user = self._user(request.user_id)
        if request.enable:
            self._granting()
            user.ClearField("disable_time")
        else:
            user.disable_time.CopyFrom(ago())
        return pb.DisableUserResponse(user=user)

    def SetOperator(self, request: Any) -> Any:
        user = self._user(request.user_id)
        if request.is_operator:
            self._granting()
        elif [each.user_id for each in self.users.values() if each.is_operator] == [request.user_id]:
            raise LegatoError(Reason.REQUEST_INVALID, "The last operator stays: make another user an operator first.")
        user.is_operator = request.is_operator
        return pb.SetOperatorResponse(user=user)

    def ListAuditEvents(self, request: Any) -> Any:
        self._check()
        found = [
            event
            for event in self.events
            if event.action.startswith(request.action)
            and request.account_id in ("", event.account_id)
            and request.user_id in ("", event.user_id)
        ]
        return pb.ListAuditEventsResponse(events=found)

    def VerifyAuditEvents(self, request: Any) -> Any:
        self._check()
        return pb.VerifyAuditEventsResponse(events=len(self.events), broken_event_nos=self.broken_events)

    def RecordOperatorAction(self, request: Any) -> Any:
        self._check()
        self.recorded.append(request)
        return pb.RecordOperatorActionResponse()


class ProcessMetrics:
    """The metrics of a process, in place of its registry."""

    def __init__(self, read: Callable[[], str | None]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return text_string_to_metric_families(self._read() or "")


def _edge() -> str:
    first_tokens = "\n".join(
        f'gen_ai_server_time_to_first_token_seconds_bucket{{class="forte",le="{bound}"}} {count}'
        for bound, count in (("0.1", 120.0), ("0.25", 5200.0), ("0.5", 7900.0), ("1.0", 8180.0), ("+Inf", 8200.0))
    )
    return f"""# HELP legato_live_streams Running chats.
legato_live_streams 43.0
legato_streams_limit 400.0
legato_chats_total{{class="forte",outcome="complete"}} 8012.0
legato_chats_total{{class="mezzo",outcome="client_gone"}} 188.0
legato_refusals_total{{reason="RATE_LIMITED"}} 91.0
legato_refusals_total{{reason="CREDITS_EXHAUSTED"}} 12.0
legato_refusals_total{{reason="SATURATED"}} 3.0
legato_settlements_pending 1.0
legato_connections 212.0
auth_revocation_lag_seconds 0.21
process_resident_memory_bytes 92274688.0
{first_tokens}
"""


def _auth() -> str:
    return "legato_watches 2.0\nprocess_resident_memory_bytes 83886080.0\n"


def _router() -> str:
    lines = ["process_resident_memory_bytes 124780544.0"]
    for provider, model, state, running, limit, answered, failed in (
        ("maple", "maple-small", 0, 12, 64, 18_173, 31),
        ("maple", "maple-large", 0, 41, 48, 95_716, 402),
        ("cedar", "cedar-2", 2, 0, 1_000_000, 2_830, 1_280),
        ("cedar", "cedar-2-max", 1, 3, 1_000_000, 998, 4),
    ):
        labels = f'gen_ai_provider_name="{provider}",gen_ai_request_model="{model}"'
        lines += [
            f"legato_breaker_state{{{labels}}} {state}.0",
            f"legato_upstream_running{{{labels}}} {running}.0",
            f"legato_upstream_limit{{{labels}}} {limit}.0",
            f'legato_upstream_attempts_total{{{labels},outcome="answered"}} {answered}.0',
            f'legato_upstream_attempts_total{{{labels},outcome="failed"}} {failed}.0',
        ]
    return "\n".join([*lines, ""])


def _metering() -> str:
    return f"""legato_audit_violations 0.0
legato_audit_last_run_timestamp_seconds {NOW.timestamp() - AUDITED_AGO_S}
legato_audit_interval_seconds 600.0
legato_holds_live 43.0
legato_holds_overdue 0.0
legato_operations_waiting 2.0
process_resident_memory_bytes 99614720.0
"""


METRICS: dict[str, Callable[[], str]] = {"edge": _edge, "auth": _auth, "router": _router, "metering": _metering}
