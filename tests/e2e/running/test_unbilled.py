"""Every RPC and every item of an exchange, tried by every identity on an account and a hold that are not its own.

The lists come from the contracts: a new method is walked without being named here.
"""

import queue
import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import grpc
import pytest
from google.protobuf.message import Message

from cli.commands.account.accounts import create_account
from cli.commands.account.keys import create_key
from cli.connection import ServiceStubs, call_service
from legato_protos.auth.v1 import callers_pb2, users_pb2
from legato_protos.chat.v1 import chat_pb2
from legato_protos.metering.v1 import metering_pb2
from legato_protos.router.v1 import router_pb2
from legato_protos.type.v1 import exchange_pb2
from legato_protos.type.v1.access_token_pb2 import AccountRole
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import Reason
from services.chassis.rpc.callers import Role, role_of, uri_of
from services.chassis.rpc.channel import from_rpc_error
from services.metering.credit.records import Hold
from tests.e2e.running.deployment import METHODS, Deployment, Metadata, Method, Visitor
from tests.support.books import read_holds
from tests.support.upstreams.openai import Upstream
from tests.support.waiting import WAIT_TIMEOUT_S, wait_until

CREDIT_NANOS: Final = 10**9
MESSAGES: Final = b'[{"role": "user", "content": "Say hello."}]'
# What only an edge may do, also as items.
MONEY: Final = {
    "RouterService": {"Chat"},
    "MeteringService": {"Admit", "Correct", "Reserve", "Extend", "Settle", "Void", "Checkpoint"},
}
EXCHANGES: Final = [METHODS[f"{service}.Exchange"] for service in MONEY]
# Without a certificate that the server takes, there is no connection.
REFUSALS: Final = {Reason.CALLER_NOT_ALLOWED, Reason.UNAVAILABLE}


@dataclass(frozen=True)
class Victim:
    """An account with a request that an edge runs for it."""

    account_id: str
    key_id: str
    request_id: str

    def request(self, method: Method) -> Any:
        """Returns a request about the account and its request; those about credit and chats lack nothing."""
        whole = self._whole().get(method.name)
        if whole is not None:
            return whole
        request, owned = method.request_type(), {"name": "x", **vars(self)}
        for field in method.descriptor.input_type.fields:
            if field.name in owned and not field.is_repeated:
                setattr(request, field.name, owned[field.name])
        return request

    def _whole(self) -> Mapping[str, Message]:
        whose: dict[str, Any] = {"account_id": self.account_id}
        running: dict[str, Any] = {"request_id": self.request_id, **whose}
        used = Usage(prompt_tokens=10, completion_tokens=5)
        grant = router_pb2.Grant(prompt_tokens=10_000, output_tokens=10_000)
        user = chat_pb2.Message(role=chat_pb2.ROLE_USER, text="Say hello.")
        chat = chat_pb2.Chat(model="mezzo", messages=[user])
        return {
            "MeteringService.Reserve": self.reserve_request(secrets.token_hex(16)),
            "MeteringService.Extend": metering_pb2.ExtendRequest(total_nanos=10**6, delivered=used, **running),
            "MeteringService.Settle": metering_pb2.SettleRequest(
                usage=used, basis=metering_pb2.BASIS_PROVIDER, end=metering_pb2.END_COMPLETE, **running
            ),
            "MeteringService.Void": metering_pb2.VoidRequest(end=metering_pb2.END_CLIENT_GONE, **running),
            "MeteringService.Checkpoint": metering_pb2.CheckpointRequest(
                deliveries=[metering_pb2.Delivery(delivered=used, **running)]
            ),
            "RouterService.Chat": router_pb2.ChatRequest(
                open=router_pb2.ChatOpen(
                    request_id=secrets.token_hex(16), model="mezzo", messages_json=MESSAGES, grant=grant, **whose
                )
            ),
            "ChatService.Complete": chat_pb2.CompleteRequest(chat=chat),
            "ChatService.Stream": chat_pb2.StreamRequest(chat=chat),
        }

    def reserve_request(self, request_id: str) -> metering_pb2.ReserveRequest:
        return metering_pb2.ReserveRequest(
            request_id=request_id,
            account_id=self.account_id,
            key_id=self.key_id,
            class_id="mezzo",
            prompt_tokens=10,
            output_tokens=10,
        )


@dataclass
class Walk:
    deployment: Deployment
    admin: ServiceStubs
    upstream: Upstream

    def victim(self) -> Victim:
        account, _ = create_account(self.admin, "victim", CREDIT_NANOS)
        key = create_key(self.admin, account.account_id, "key", (), None).key
        made = Victim(account.account_id, key.key_id, secrets.token_hex(16))
        channel = self.deployment.channels("edge")["metering"]
        METHODS["MeteringService.Reserve"].call(channel, made.reserve_request(made.request_id))
        channel.close()
        return made

    def holds(self, victim: Victim) -> dict[str, Hold]:
        """Returns the account's requests, by id."""
        return {hold.request_id: hold for hold in read_holds(self.deployment.folder, victim.account_id)}

    def settle(self, victim: Victim) -> None:
        """Waits until all requests but the account's first are over."""

        def is_settled() -> bool:
            running = {request_id for request_id, hold in self.holds(victim).items() if hold.state == "held"}
            return running <= {victim.request_id}

        wait_until(is_settled)

    def attack(self, name: str, victim: Victim, *, items_only: bool = False) -> dict[str, Reason | None]:
        """Calls every method as `name`; returns why each was refused, or None."""
        channels, metadata = self._identity(name, victim)

        def attempt(method: Method) -> dict[str, Reason | None]:
            channel = channels[method.server]
            try:
                if method in EXCHANGES:
                    return open_items(channel, method, victim, metadata)
                method.call(channel, victim.request(method), metadata)
            except grpc.RpcError as error:
                return {method.name: from_rpc_error(error, method.server).reason}
            return {method.name: None}

        methods = EXCHANGES if items_only else [method for method in METHODS.values() if method not in EXCHANGES]
        with ThreadPoolExecutor(8) as threads:
            outcomes = [outcome for found in threads.map(attempt, methods) for outcome in found.items()]
        for channel in channels.values():
            channel.close()
        return dict(outcomes)

    def _identity(self, name: str, victim: Victim) -> tuple[dict[str, grpc.Channel], Metadata]:
        """Returns channels and metadata of `CERTIFICATE` or `CERTIFICATE with ROLE`, a role in the victim's account."""
        certificate, _, role = name.partition(" with ")
        for_whom: Metadata = (("x-legato-account", victim.account_id),)
        if certificate.startswith("no "):
            return self.deployment.channels_without_certificate(trusts=certificate == "no certificate"), for_whom
        channels = self.deployment.channels(certificate)
        if role:
            member = AccountRole.Value(f"ACCOUNT_ROLE_{'OWNER' if role == 'operator' else role.upper()}")
            visitor = Visitor(self.admin, channels["auth"], victim.account_id, member)
            if role == "operator":
                made = users_pb2.SetOperatorRequest(user_id=visitor.user_id, is_operator=True)
                call_service(self.admin.users.SetOperator, made)
            return channels, (*for_whom, *visitor.metadata)
        if certificate == GRANTED:
            request = callers_pb2.GrantCallerRequest(
                caller=certificate.removeprefix("caller/"), account_id=victim.account_id
            )
            METHODS["KeyAdminService.GrantCaller"].call(self.deployment.channels("admin")["auth"], request)
        return channels, for_whom


def open_items(channel: grpc.Channel, exchange: Method, victim: Victim, metadata: Metadata) -> dict[str, Reason | None]:
    """Opens an item for each method of an exchange, and waits until all are over."""
    service = exchange.descriptor.containing_service.name
    items = [METHODS[f"{service}.{name}"] for name in sorted(MONEY[service])]
    outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
    outgoing.put(
        exchange.request_type(
            items=[
                exchange_pb2.Item(
                    call_id=call_id,
                    kind=exchange_pb2.ITEM_KIND_OPEN,
                    method=method.descriptor.name,
                    payload=victim.request(method).SerializeToString(),
                )
                for call_id, method in enumerate(items)
            ]
        )
    )
    call = channel.stream_stream(
        exchange.path,
        request_serializer=exchange.request_type.SerializeToString,
        response_deserializer=router_pb2.ExchangeResponse.FromString,
    )(iter(outgoing.get, None), metadata=tuple(metadata), timeout=WAIT_TIMEOUT_S)
    outcomes: dict[str, Reason | None] = {}
    try:
        while len(outcomes) < len(items):
            for item in next(call).items:
                if item.kind == exchange_pb2.ITEM_KIND_END:
                    outcomes[items[item.call_id].name] = None
                elif item.kind == exchange_pb2.ITEM_KIND_ERROR:
                    outcomes[items[item.call_id].name] = Reason.REQUEST_INVALID
    finally:
        outgoing.put(None)
        call.cancel()
    return outcomes


GRANTED: Final = "caller/granted"
IDENTITIES: Final = [
    GRANTED,
    "caller/stranger",
    *(role.value for role in Role if role not in (Role.CALLER, Role.EDGE)),
    *(
        f"{console} with {role}"
        for console in ("console", "operator-console")
        for role in ("viewer", "member", "owner")
    ),
    "console with operator",
    "operator-console with operator",
    "no certificate",
    "no TLS",
]


@pytest.fixture(scope="module")
def admin(deployment: Deployment) -> Iterator[ServiceStubs]:
    services = deployment.admin()
    yield services
    services.close()


@pytest.fixture
def walk(deployment: Deployment, admin: ServiceStubs, upstream: Upstream) -> Walk:
    return Walk(deployment, admin, upstream)


def test_every_role_is_walked() -> None:
    certificates = {name.partition(" with ")[0] for name in IDENTITIES}
    assert {role_of([uri_of(name)]) for name in certificates} - {None} == set(Role) - {Role.EDGE}


@pytest.mark.parametrize("items_only", [False, True], ids=["calls", "items"])
def test_edge_can_do_with_these_requests_what_others_may_not(walk: Walk, items_only: bool) -> None:
    victim = walk.victim()
    before = walk.holds(victim)
    outcomes = walk.attack("edge", victim, items_only=items_only)
    done = {
        f"{service}.{name}"
        for service, names in MONEY.items()
        for name in names
        if outcomes[f"{service}.{name}"] is None
    }
    # Of Settle and Void, the first to come ends the request.
    assert done >= {"RouterService.Chat", "MeteringService.Reserve", "MeteringService.Checkpoint"}
    assert walk.upstream.requests
    assert walk.holds(victim)[victim.request_id] != before[victim.request_id]


def test_no_other_identity_chats_without_a_charge_or_touches_a_hold(walk: Walk) -> None:
    for name in IDENTITIES:
        victim = walk.victim()
        before = walk.holds(victim)
        walk.upstream.requests.clear()
        outcomes = walk.attack(name, victim) | walk.attack(name, victim, items_only=True)
        for service, names in MONEY.items():
            for method in (f"{service}.{each}" for each in {*names, "Exchange"}):
                assert outcomes.get(method, Reason.CALLER_NOT_ALLOWED) in REFUSALS, f"{name}: {method}"
        walk.settle(victim)
        after = walk.holds(victim)
        assert after[victim.request_id] == before[victim.request_id], name
        chats = [hold for request_id, hold in after.items() if request_id != victim.request_id]
        # Complete and Stream.
        assert len(chats) == len(walk.upstream.requests) == (2 if name == GRANTED else 0), name
        assert all(hold.charged_nanos > 0 for hold in chats), name
