"""Ids of what another account owns, given to every RPC and every form that takes one, by an owner of another account.

The lists come from the contracts and from the console's table of routes: a new method or form is walked without being
named here, and a new kind of id must be added to those that are owned, or to those that are not.
"""

import importlib
import inspect
import json
import pkgutil
import re
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

import legato_protos
from cli.connection import call_service, running_services
from cli.supervision.data_folder import socket_of
from console.routes import PAGES, PageRoute
from legato_protos.auth.v1 import accounts_pb2, auth_pb2, credentials_pb2, notices_pb2, users_pb2
from legato_protos.metering.v1 import metering_pb2
from legato_protos.payments.v1 import payments_pb2
from legato_protos.router.v1 import grounding_pb2
from legato_protos.type.v1.access_token_pb2 import ACCOUNT_ROLE_OWNER
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.access_tokens import METADATA_KEY
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import rule_of
from services.chassis.rpc.channel import from_rpc_error
from tests.e2e.running.test_console import SESSION, Visitor
from tests.services.auth.sign_in.authenticator import Authenticator
from tests.support.outside.stripe_server import SECRET_KEY, WEBHOOK_SECRET, StripeServer
from tests.support.service import make_data_folder
from tests.support.up import Up

# Fields of requests and of forms, with the kind of thing that each names.
OWNED = {
    "account_id": "account",
    "attachment_id": "attachment",
    "also_key_ids": "key",
    "challenge": "challenge",
    "challenge_id": "challenge",
    "checkout": "checkout",
    "checkout_id": "checkout",
    "delivery_id": "delivery",
    "invitation_id": "invitation",
    "key": "key",
    "key_id": "key",
    "key_ids": "key",
    "keys": "key",
    "kept_key_ids": "key",
    "note_id": "note",
    "object_id": "key",
    "passkey_id": "passkey",
    "replaced_key_id": "key",
    "request_id": "request",
    "result_id": "result",
    "session_id": "session",
    "session_ids": "session",
    "user_id": "user",
    "webhook_id": "webhook",
    # Of single sign-on, of which the tests of auth have an issuer.
    "identity_id": "",
}
# Chosen by the caller, or everybody's.
NOT_OWNED = {"class_id", "class_ids", "form_id", "operation_id"}
# Only what an operator's token may call.
OF_OPERATORS = {"account_ids"}
# Of a challenge, the answer does not say whether there is one.
REFUSALS = {Reason.NOT_FOUND, Reason.ROLE_MISSING, Reason.CALLER_NOT_ALLOWED, Reason.SIGN_IN_FAILED}
SAID_TO_BE_LATE = {("SetTotp", Reason.REQUEST_INVALID)}
# Answers how many there were of one's own: none.
COUNTS_OWN = {"EndSessions", "GetChatOutcomes"}
# What a method needs besides, so that it gets as far as the id.
FILLED: dict[str, Any] = {
    "name": "x",
    "text": "x",
    "code": "123456",
    "role": ACCOUNT_ROLE_OWNER,
    "bucket": metering_pb2.USAGE_BUCKET_PERIOD,
    "credential_json": "{}",
}
FORM: dict[str, str] = {"name": "x", "text": "x", "code": "123456", "role": "owner", "day": "1", "credential": "{}"}
HOURS_S = {"start_time": 497_222 * 3600, "end_time": 497_223 * 3600}
# Written by the services themselves, or whenever a user is there.
VOLATILE = {"sessions", "audit_events", "audit_heads", "rate_limits", "retention", "sqlite_sequence"}


@dataclass
class Customer:
    account_id: str
    session_token: str
    visitor: Visitor
    # By kind.
    owned: dict[str, str]


class Walk:
    def __init__(self, up: Up, origin: str) -> None:
        self.up = up
        self._channels = {
            name: grpc.insecure_channel(f"unix:{socket_of(f'{name}-console', up.data)}")
            for name in ("auth", "metering", "router", "payments")
        }
        self.services = running_services(up.data, environ={})
        self.origin = origin
        self.mine, self.theirs = self._customer("Mine"), self._customer("Theirs")

    def close(self) -> None:
        self.services.close()
        for channel in self._channels.values():
            channel.close()

    def call(self, method: str, request: Any, answer: Any, token: bytes | None = None, *, streams: bool = False) -> Any:
        """Calls a method of a service as a console does."""
        channel = self._channels[method.split(".")[1]]
        metadata = ((METADATA_KEY, token),) if token else ()
        sent = {
            "request_serializer": lambda given: given.SerializeToString(),
            "response_deserializer": answer.FromString,
        }
        try:
            if streams:
                return list(channel.stream_stream(method, **sent)(iter([request]), metadata=metadata, timeout=60))[-1]
            return channel.unary_unary(method, **sent)(request, metadata=metadata, timeout=60)
        except grpc.RpcError as error:
            raise from_rpc_error(error, "the service") from None

    def token(self, customer: Customer) -> bytes:
        """Returns a fresh one: they end after a minute."""
        request = users_pb2.ResolveSessionRequest(session_token=customer.session_token, account_id=customer.account_id)
        response = users_pb2.ResolveSessionResponse
        return self.call("/legato.auth.v1.SignInService/ResolveSession", request, response).access_token  # type: ignore[no-any-return]

    def foreign_ids(self, kind: str) -> list[str]:
        """Returns the id of one that is theirs, if there is one, and one of the same form that was never given out."""
        theirs = self.theirs.owned.get(kind)
        return ["x_invented"] if theirs is None else [theirs, theirs[:-6] + "000000"]

    def rows(self) -> dict[str, list[Any]]:
        """Returns everything that is stored."""
        found: dict[str, list[Any]] = {}
        for path in sorted(self.up.data.rglob("*.db")):
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
                tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
                for (table,) in tables:
                    if table not in VOLATILE:
                        found[f"{path.stem}.{table}"] = sorted(connection.execute(f'SELECT * FROM "{table}"'), key=repr)
        return found

    def _customer(self, name: str) -> Customer:
        account_id = self.up.json("accounts", "create", name, "--credits", "5.00")["account_id"]

        created = users_pb2.CreateUserRequest(name=name, account_id=account_id, role=ACCOUNT_ROLE_OWNER)
        user, colleague = (call_service(self.services.users.CreateUser, created) for _ in range(2))
        proof = users_pb2.Proof(sign_in_link_code=user.code)
        link = users_pb2.SignInRequest(proof=proof, client=users_pb2.Client(address="192.0.2.7"))
        signed_in = self.call("/legato.auth.v1.SignInService/SignIn", link, users_pb2.SignInResponse)
        token, session_id = signed_in.signed_in.session_token, signed_in.signed_in.session.session_id
        owned = {"account": account_id, "user": colleague.user.user_id, "session": session_id}
        customer = Customer(account_id, token, Visitor(self.origin), owned)
        owned |= self._things_of(customer)
        customer.visitor.cookies[SESSION] = token
        assert customer.visitor.is_signed_in()
        return customer

    def _things_of(self, customer: Customer) -> dict[str, str]:
        token, account_id = self.token(customer), customer.account_id

        def make(method: str, pb: Any, **fields: Any) -> Any:
            service, _, name = method.rpartition("/")
            full = pb.DESCRIPTOR.services_by_name[service].methods_by_name[name]
            request = GetMessageClass(full.input_type)(**fields)
            path = f"/{full.containing_service.full_name}/{name}"
            return self.call(
                path, request, GetMessageClass(full.output_type), token, streams=bool(full.client_streaming)
            )

        of_account: dict[str, Any] = {"account_id": account_id}
        key_id = make("KeyAdminService/CreateKey", auth_pb2, name="theirs", **of_account).key.key_id
        request_id = secrets.token_hex(16)
        held = metering_pb2.ReserveRequest(
            request_id=request_id, key_id=key_id, class_id="mezzo", prompt_tokens=10, output_tokens=10, **of_account
        )
        call_service(self.services.metering.Reserve, held)
        settled = metering_pb2.SettleRequest(
            request_id=request_id,
            usage=Usage(prompt_tokens=10, completion_tokens=5),
            basis=metering_pb2.BASIS_PROVIDER,
            end=metering_pb2.END_COMPLETE,
            **of_account,
        )
        call_service(self.services.metering.Settle, settled)
        webhook = make("NoticeService/AddWebhook", notices_pb2, url="http://127.0.0.1:9/hook", **of_account)
        shown = make("NoticeService/SendTestNotice", notices_pb2, **of_account)
        document: dict[str, Any] = {"name": "a.txt", "size_bytes": 5, "piece": b"hello"}
        started = make("UserService/StartPasskeyRegistration", credentials_pb2, origin=self.origin)
        registered = make(
            "UserService/FinishPasskeyRegistration",
            credentials_pb2,
            challenge_id=started.challenge_id,
            credential_json=Authenticator(self.origin).register(started.options_json),
            name="laptop",
        )
        checkout: dict[str, Any] = {"amount_cents": 1_000, "operation_id": "o1"}
        invitation = make("AccountAdminService/InviteMember", accounts_pb2, role=ACCOUNT_ROLE_OWNER, **of_account)
        grounding = "GroundingAdminService"
        attached = make(f"{grounding}/AddAttachment", grounding_pb2, **document, **of_account)
        return {
            "key": key_id,
            "request": request_id,
            "webhook": webhook.webhook.webhook_id,
            "delivery": shown.notice.deliveries[0].delivery_id,
            "invitation": invitation.invitation.invitation_id,
            "note": make(f"{grounding}/AddNote", grounding_pb2, text="a note", **of_account).note.note_id,
            "attachment": attached.attachment.attachment_id,
            "passkey": registered.passkey.passkey_id,
            "challenge": make("UserService/StartPasskeyRegistration", credentials_pb2, origin=self.origin).challenge_id,
            "result": make("UserService/KeepResult", credentials_pb2, sealed=b"sealed").result_id,
            "checkout": make("PaymentService/CreateCheckout", payments_pb2, **checkout, **of_account).checkout_id,
        }


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    stripe, folder = StripeServer(), Path(tmp_path_factory.mktemp("o", numbered=True))
    environ = {
        "LEGATO_MEMORY": "true",
        "LEGATO_ATTACHMENTS": "true",
        "LEGATO_WEBHOOK_PRIVATE_NETWORKS": "true",
        "LEGATO_STRIPE_SECRET_KEY": SECRET_KEY,
        "LEGATO_STRIPE_WEBHOOK_SECRET": WEBHOOK_SECRET,
        "LEGATO_STRIPE_API_URL": stripe.url,
        # Nothing but what is called here changes rows meanwhile.
        "LEGATO_NOTICE_INTERVAL_S": "3600",
    }
    arguments = ("--welcome", "--console-port", "0", "--json")
    up = Up(make_data_folder(folder / "data"), *arguments, environ=environ, is_forked=True)
    try:
        assert "ready" in json.loads(up.line()), up.stderr
        origin = json.loads(up.line())["console"].partition("/sign-in#")[0]
        made = Walk(up, origin)
        yield made
        made.close()
    finally:
        up.close()
        stripe.close()


def methods() -> list[MethodDescriptor]:
    """Returns every method that is called with an access token."""
    found = []
    for module in pkgutil.walk_packages(legato_protos.__path__, "legato_protos."):
        if module.name.endswith("_pb2"):
            for service in importlib.import_module(module.name).DESCRIPTOR.services_by_name.values():
                found += [each for each in service.methods if rule_of(path_of(each)) is not None]
    return found


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def id_fields(message: Descriptor) -> Iterator[FieldDescriptor]:
    """Finds ids, also in messages inside."""
    for field in message.fields:
        if field.message_type is not None and field.message_type.file.package.startswith("legato."):
            yield from id_fields(field.message_type)
        elif field.name.endswith(("_id", "_ids")):
            yield field


def test_every_kind_of_id_is_known_to_be_owned_or_not() -> None:
    names = {field.name for method in methods() for field in id_fields(method.input_type)}
    names |= {name for page in PAGES for name in fields_of(page) if name.endswith(("_id", "_ids"))}
    assert names <= OWNED.keys() | NOT_OWNED | OF_OPERATORS, "say whose these are, and make one above"


def test_no_method_takes_what_another_account_owns(walk: Walk) -> None:
    assert len(methods()) > 80
    before, wrong = walk.rows(), []
    for method in methods():
        own = {name: walk.mine.owned.get(kind, "") for name, kind in OWNED.items()}
        top = {field.name for field in method.input_type.fields}
        for field in id_fields(method.input_type):
            if field.name not in OWNED or field.name not in top:
                continue
            for given in walk.foreign_ids(OWNED[field.name]):
                request: Any = GetMessageClass(method.input_type)()
                _fill_period(request, top)
                for other in method.input_type.fields:
                    value = given if other.name == field.name else own.get(other.name) or FILLED.get(other.name)
                    if value is None or other.message_type is not None:
                        continue
                    if other.is_repeated:
                        getattr(request, other.name).extend([value] if other.name == field.name else [])
                    else:
                        setattr(request, other.name, value)
                outcome = _outcome(walk, method, request)
                if outcome:
                    wrong.append(f"{path_of(method)} {field.name}={given}: {outcome}")
    assert not wrong, "\n".join(wrong)
    assert changes(before, walk.rows()) == {}


def changes(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Returns rows that are gone, and new ones by table."""
    gone = {table: [row for row in rows if row not in after[table]] for table, rows in before.items()}
    new = {f"new {table}": [row for row in after[table] if row not in rows] for table, rows in before.items()}
    # A form that failed is shown again, with another challenge.
    del new["new auth.challenges"]
    return {table: rows for table, rows in (gone | new).items() if rows}


def _fill_period(request: Any, fields: set[str]) -> None:
    for times in {"start_time", "end_time"} & fields:
        getattr(request, times).FromSeconds(HOURS_S[times])
    if "start_times" in fields:
        request.start_times.add(seconds=HOURS_S["start_time"])


def _outcome(walk: Walk, method: MethodDescriptor, request: Any) -> str:
    """Says what is wrong with the answer; empty: nothing."""
    streams = bool(method.client_streaming)
    try:
        answer = walk.call(
            path_of(method), request, GetMessageClass(method.output_type), walk.token(walk.mine), streams=streams
        )
    except LegatoError as error:
        is_refused = error.reason in REFUSALS or (method.name, error.reason) in SAID_TO_BE_LATE
        return "" if is_refused else f"{error.reason}: {error.message}"
    if not method.name.startswith("List") and method.name not in COUNTS_OWN:
        return f"answered {answer}"
    told = [value for value in walk.theirs.owned.values() if value in str(answer)]
    return f"told {told}" if told else ""


def fields_of(page: PageRoute) -> list[str]:
    """Returns what a page takes from its path, its form and its query."""
    read = re.findall(r"(?:form|query|query_params)\.(?:get|all|getlist)\(\"(\w+)\"", inspect.getsource(page.handler))
    return [*re.findall(r"\{(\w+)\}", page.path), *read]


def test_no_form_takes_what_another_account_owns(walk: Walk) -> None:
    before, wrong, walked = walk.rows(), [], 0
    for page in PAGES:
        for name in fields_of(page):
            if OWNED.get(name) is None or not page.needs_sign_in:
                continue
            for given in walk.foreign_ids(OWNED[name]):
                walked += 1
                path = page.path.replace(f"{{{name}}}", given)
                if page.method == "GET" and path == page.path:
                    path += f"?{urlencode({name: given})}"
                status, text = walk.mine.visitor.ask(page.method, path, {**FORM, name: given})
                told = [value for value in walk.theirs.owned.values() if value in text.replace(given, "")]
                if told or (status < 400 and not _is_harmless(page, status)):
                    wrong.append(f"{page.method} {path} {name}={given}: {status} {told}")
    assert not wrong, "\n".join(wrong)
    assert walked > 30
    assert changes(before, walk.rows()) == {}


def _is_harmless(page: PageRoute, status: int) -> bool:
    """Returns whether a page may answer: it shows nothing of it, or goes to a page of one's own."""
    return (page.method == "GET" and "{" not in page.path) or (page.path, status) in HARMLESS


# Those end sessions of one's own that are named, choose among one's own accounts, and lead to the page of the key,
# where there is no such key.
HARMLESS: Sequence[tuple[str, int]] = (
    ("/security/sessions/end", 303),
    ("/account", 303),
    ("/keys/{key_id}/made", 303),
)
