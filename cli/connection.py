"""Connects commands to the running services: synchronous gRPC over private sockets."""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol, TypeVar

import click
import grpc

from cli.output import Bar
from cli.settings import CommandSettings, SettingsWrong, read_settings
from cli.supervision.data_folder import is_supervised, read_processes, socket_of
from cli.supervision.health import is_listening
from legato_protos.auth.v1.accounts_pb2_grpc import AccountAdminServiceStub
from legato_protos.auth.v1.auth_pb2_grpc import AuthServiceStub, KeyAdminServiceStub
from legato_protos.auth.v1.notices_pb2_grpc import NoticeServiceStub
from legato_protos.auth.v1.users_pb2_grpc import AuditServiceStub, UserAdminServiceStub
from legato_protos.metering.v1.metering_pb2_grpc import CreditAdminServiceStub, MeteringServiceStub
from legato_protos.metering.v1.notices_pb2_grpc import NoticeThresholdServiceStub
from legato_protos.metering.v1.reports_pb2_grpc import ReportServiceStub
from legato_protos.metering.v1.spend_limits_pb2_grpc import SpendLimitServiceStub
from legato_protos.metering.v1.statements_pb2_grpc import StatementServiceStub
from legato_protos.payments.v1.payments_pb2_grpc import PaymentServiceStub
from legato_protos.router.v1.content_pb2_grpc import ContentServiceStub
from legato_protos.router.v1.grounding_pb2_grpc import GroundingAdminServiceStub
from legato_protos.router.v1.router_pb2_grpc import RouteAdminServiceStub, RouterServiceStub
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.rpc.certificates import open_certificates
from services.chassis.rpc.channel import from_rpc_error, open_sync_channel
from services.chassis.rpc.replicas import parse_endpoints, resolve
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log

StubT = TypeVar("StubT")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

AUTH = "auth"
ROUTER = "router"
METERING = "metering"
PAYMENTS = "payments"
THE_SERVICE = "The service"

TIMEOUT_S = 20.0
# Of lists that may be long. Metering restarts within the timeout: a long export goes on afterwards.
EXPORT_TIMEOUT_S = 10.0
EXPORT_PAGE_SIZE = 1_000
# Default time for which calls to an unavailable service are retried.
RETRY_FOR_S = 1.0
PAUSE_S = 0.3

# A crashed process is back within this, unless it cannot start.
RESTART_TIMEOUT_S = 6.0


class CallRefused(click.ClickException):
    exit_code = 1

    def __init__(self, message: str, reason: Reason, param: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.param = param


class NotRunning(click.ClickException):
    exit_code = 3


def _stub(kind: Callable[[grpc.Channel], StubT], service: str) -> cached_property[StubT]:
    """An attribute of `ServiceStubs`: the stub of one of a service's RPC services."""

    def make(services: "ServiceStubs") -> StubT:
        return kind(services.channel(service))

    return cached_property(make)


class ServiceStubs:
    accounts = _stub(AccountAdminServiceStub, AUTH)
    audit = _stub(AuditServiceStub, AUTH)
    auth = _stub(AuthServiceStub, AUTH)
    keys = _stub(KeyAdminServiceStub, AUTH)
    notices = _stub(NoticeServiceStub, AUTH)
    users = _stub(UserAdminServiceStub, AUTH)
    credits = _stub(CreditAdminServiceStub, METERING)
    metering = _stub(MeteringServiceStub, METERING)
    notice_thresholds = _stub(NoticeThresholdServiceStub, METERING)
    spend_limits = _stub(SpendLimitServiceStub, METERING)
    statements = _stub(StatementServiceStub, METERING)
    reports = _stub(ReportServiceStub, METERING)
    payments = _stub(PaymentServiceStub, PAYMENTS)
    # Any router that answers: all share one database.
    grounding = _stub(GroundingAdminServiceStub, ROUTER)
    content = _stub(ContentServiceStub, ROUTER)
    models = _stub(RouterServiceStub, ROUTER)

    def __init__(
        self,
        open_channel_to: Callable[[str], grpc.Channel],
        find_routers: Callable[[], Sequence[str]] = lambda: [ROUTER],
        find_meterings: Callable[[], Sequence[str]] = lambda: [METERING],
    ) -> None:
        """Calls `open_channel_to` for "auth", "metering", "router" and each of `find_routers` and `find_meterings`,
        once each and not before a command needs it."""
        self._open_channel_to = open_channel_to
        self._find_routers = find_routers
        self._find_meterings = find_meterings
        self._channels: dict[str, grpc.Channel] = {}

    @property
    def routers(self) -> dict[str, RouteAdminServiceStub]:
        """The stubs of all replicas by address: each has its own routes and figures."""
        return {router: RouteAdminServiceStub(self.channel(router)) for router in self._find_routers()}

    @property
    def meterings(self) -> list[CreditAdminServiceStub]:
        """The stubs of all replicas: each knows what edges offer to it alone."""
        return [CreditAdminServiceStub(self.channel(metering)) for metering in self._find_meterings()]

    def channel(self, service: str) -> grpc.Channel:
        if service not in self._channels:
            self._channels[service] = self._open_channel_to(service)
        return self._channels[service]

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


def call_service(
    method: "grpc.UnaryUnaryMultiCallable[RequestT, ResponseT]",
    request: RequestT,
    *,
    repeatable: bool = True,
    timeout_s: float = TIMEOUT_S,
    retry_for_s: float = RETRY_FOR_S,
) -> ResponseT:
    """Makes one call. `repeatable` says that the request is idempotent: then it is retried while the service is
    unavailable, for `retry_for_s`."""
    began_at_s = time.monotonic()
    with closing(Bar(sys.stderr)) as bar:
        while True:
            try:
                return method(request, timeout=timeout_s)
            except grpc.RpcError as error:
                refusal = from_rpc_error(error, THE_SERVICE)
            waited_s = time.monotonic() - began_at_s
            if refusal.reason is Reason.UNAVAILABLE and not repeatable:
                # It may have been done nevertheless, and a retry would do it twice.
                message = f"{_outage(refusal)}: check whether it was done before you repeat it."
                raise CallRefused(message, refusal.reason)
            if refusal.reason is not Reason.UNAVAILABLE or waited_s >= retry_for_s:
                raise CallRefused(refusal.message, refusal.reason, refusal.param or "")
            bar.show("waiting for the service", round(waited_s), round(retry_for_s))
            time.sleep(PAUSE_S)


class _PagedRequest(Protocol):
    page_token: str


class _Page(Protocol):
    next_page_token: str


PagedRequestT = TypeVar("PagedRequestT", bound=_PagedRequest)
PageT = TypeVar("PageT", bound=_Page)


def every_page(
    method: "grpc.UnaryUnaryMultiCallable[PagedRequestT, PageT]", request: PagedRequestT, timeout_s: float = TIMEOUT_S
) -> Iterator[PageT]:
    """Yields the pages of a list, from the request's own page on."""
    while True:
        page = call_service(method, request, timeout_s=timeout_s)
        yield page
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def _outage(error: LegatoError) -> str:
    """Describes an outage in the service's words, if it gave any: a database that is down, a full disk."""
    if error.message == unavailable(THE_SERVICE).message:
        return f"{THE_SERVICE} did not answer"
    return error.message.removesuffix(" Please retry.").rstrip(".")


def running_services(data: Path, environ: Mapping[str, str] = os.environ) -> ServiceStubs:
    """Returns stubs for the sockets of `data`, or for `LEGATO_AUTH_ADDRESS` and `LEGATO_METERING_ADDRESS`: of several
    addresses, the first that answers. Uses all routers in `LEGATO_ROUTER_ADDRESS`, and on TCP the certificate in
    `LEGATO_TLS_CERT`."""
    settings = read_settings(CommandSettings, environ)

    # Of replicas that were looked for one by one, by address or name.
    service_of: dict[str, str] = {}

    def find_every(service: str) -> list[str]:
        given = settings.address(service)
        found = _every_address(given, service) if given else _processes_of(service, data)
        service_of.update(dict.fromkeys(found, service))
        return found

    def open_address(address: str, service: str) -> grpc.Channel:
        if address.startswith("unix:"):
            return open_sync_channel(address)
        try:
            certificates = open_certificates(settings.tls_ca, settings.tls_cert, settings.tls_key, Log("legato"))
        except SettingsError as error:
            raise SettingsWrong(str(error)) from None
        return open_sync_channel(address, certificates.current() if certificates else None, service)

    def open_channel_to(place: str) -> grpc.Channel:
        if place not in (AUTH, METERING, ROUTER, PAYMENTS):
            # One of several: if it does not answer, its calls fail, and those to others go on.
            if ":" not in place:
                with suppress(CallRefused):
                    _require_socket(socket_of(place, data), data)
            return open_address(_address_of(place, data), service_of[place])
        given = settings.address(place)
        places = [endpoint.address for endpoint in parse_endpoints(given)] or _processes_of(place, data)
        address = _address_of(_first_that_answers(places, data), data)
        if address.startswith("unix:"):
            _require_socket(Path(address.removeprefix("unix:")), data)
        elif not _answers(address):
            raise NotRunning(f"{place} is not running at {given}")
        return open_address(address, place)

    return ServiceStubs(open_channel_to, partial(find_every, ROUTER), partial(find_every, METERING))


def _processes_of(service: str, data: Path) -> list[str]:
    """Returns the names of a service's processes that `legato up` runs on the folder: numbered if there are several."""
    try:
        names = [str(state["name"]) for state in read_processes(data)["processes"]]
    except (OSError, ValueError, KeyError):
        names = []
    return [name for name in names if name.rpartition("-")[0] == service] or [service]


def _address_of(process: str, data: Path) -> str:
    """Returns the address of a process on the folder; an address is returned unchanged."""
    return process if ":" in process else f"unix:{socket_of(process, data)}"


def _require_socket(path: Path, data: Path) -> None:
    give_up_at = time.monotonic() + RESTART_TIMEOUT_S
    while not is_listening(path):
        if not is_supervised(data):
            raise NotRunning(f"Legato is not running on {data}: start it with `legato up --data {data}`")
        if time.monotonic() > give_up_at:
            raise CallRefused(f"{path.stem} is not answering: see {data / 'logs' / path.stem}.log", Reason.UNAVAILABLE)
        time.sleep(0.05)


def _first_that_answers(places: list[str], data: Path) -> str:
    """Returns the last of processes or addresses if none answers: its caller reports why."""
    return next((place for place in places[:-1] if _answers(_address_of(place, data))), places[-1])


def _every_address(addresses: str, service: str) -> list[str]:
    """Resolves host names to all their addresses."""
    found: list[str] = []
    for address, _ in parse_endpoints(addresses):
        try:
            found += sorted(asyncio.run(resolve(address)))
        except OSError:
            raise NotRunning(f"{service} is not running at {address}") from None
    return list(dict.fromkeys(found))


def _answers(address: str) -> bool:
    if address.startswith("unix:"):
        return is_listening(Path(address.removeprefix("unix:")))
    host, _, port = address.removeprefix("dns:").lstrip("/").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, ValueError):
        return False
    return True
