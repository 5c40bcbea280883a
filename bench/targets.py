"""Starts the targets of a measurement (the relay, Legato) and checks what Legato charged."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from bench.chats import Case, Outcome, Upstream, encode_requests, put_load
from bench.children import started_provider
from bench.providers.relay import KEY
from bench.report import Progress
from services.metering.credit.prices import read_prices
from services.rules.usage import Usage
from tests.support.servers.postgres import Postgres
from tests.support.service import Service

PRICES: Final = Path(__file__).parents[1] / "prices.toml"
CLASS: Final = "forte"
CREDITS: Final = "1000000"


class ChargesWrong(Exception):
    """A chat was lost or charged twice."""


class ChargeCheck:
    """Compares an account's charges with the usage of its chats."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.account_id = service.new_account(CREDITS)
        self._granted_nanos = service.settled_balance_nanos(self.account_id)
        self._used = Usage()
        self.api_key = service.new_key(self.account_id)

    def add(self, outcome: Outcome) -> None:
        self.add_usage(outcome.prompt_tokens, outcome.completion_tokens)

    def add_usage(self, prompt_tokens: int, completion_tokens: int) -> None:
        self._used = Usage(
            prompt_tokens=self._used.prompt_tokens + prompt_tokens,
            completion_tokens=self._used.completion_tokens + completion_tokens,
        )

    def check(self) -> None:
        self.check_charges()
        if violations := self._service.audit():
            raise ChargesWrong(f"The audit found violations: {violations}")

    def check_charges(self) -> None:
        # A token of this class costs whole nanos, so the sum of the chats' prices is the price of all their tokens.
        price_nanos = read_prices(PRICES).current[CLASS].cost_nanos(self._used)
        charged_nanos = self._granted_nanos - self._service.settled_balance_nanos(self.account_id)
        if charged_nanos != price_nanos:
            raise ChargesWrong(f"The answers cost {price_nanos} nanos, but {charged_nanos} were charged.")


DIRECT: Final = "no gateway"
RELAY: Final = "relay"
ON_SQLITE: Final = "Legato, SQLite"
ON_POSTGRESQL: Final = "Legato, PostgreSQL"
# Other gateways (`bench/peers/`).
LITELLM: Final = "LiteLLM"
LITELLM_WITH_KEYS: Final = "LiteLLM, keys and budgets"
PORTKEY: Final = "Portkey"
TENSORZERO: Final = "TensorZero"

OURS: Final = ("edge", "router", "metering", "auth")
# Not one of our processes: its figures are shown, but not added to ours.
DATABASE: Final = "PostgreSQL"
# Restarts the four services, and has no part in a chat.
SUPERVISOR: Final = "supervisor"

# The defaults, except for the rate limit of a key, which is not measured here.
SETTINGS: Final = {
    "LEGATO_REQUESTS_PER_MINUTE": "1000000",
    "LEGATO_REQUEST_BURST": "100000",
    "LEGATO_EDGE_QUEUEING_S": "0.05",
    "LEGATO_EDGE_OPERATIONS_LISTEN": "127.0.0.1:0",
    "LEGATO_AUTH_METRICS_LISTEN": "127.0.0.1:0",
    "LEGATO_ROUTER_METRICS_LISTEN": "127.0.0.1:0",
    "LEGATO_METERING_METRICS_LISTEN": "127.0.0.1:0",
}
ONE_CHAT: Final = Case("the first chat", in_flight=1)


class TargetMissing(Exception):
    """A peer could not be installed, or does not start here. The text says why."""


class Target(NamedTuple):
    name: str
    port: int
    # Process ids by name; each includes its descendants.
    processes: dict[str, int]
    api_key: str = "played"
    model: str = "mock-model"
    path: str = "/v1/chat/completions"
    headers: Mapping[str, str] = {}
    first_answer_s: float | None = None
    charge_check: ChargeCheck | None = None
    # A peer's failure is no failure of ours.
    is_peer: bool = False

    def put_load(
        self,
        case: Case,
        folder: Path,
        progress: Progress,
        *,
        seconds: float = 60.0,
        chats: int = 0,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Outcome:
        requests = encode_requests(case, self.api_key, self.model, self.path, self.headers)
        outcome = put_load(
            case, self.port, requests, folder, progress, seconds=seconds, chats=chats, meanwhile=meanwhile
        )
        if self.charge_check is not None:
            self.charge_check.add(outcome)
        return outcome


def direct(upstream: Upstream) -> Target:
    return Target(DIRECT, port_of(upstream.base_url), {})


def port_of(base_url: str) -> int:
    port = urlsplit(base_url).port
    assert port is not None
    return port


@contextmanager
def started_relay(upstream: Upstream, folder: Path, progress: Progress) -> Iterator[Target]:
    began_at_s = time.monotonic()
    with started_provider(["bench.providers.relay", upstream.base_url], folder, RELAY) as relay:
        target = Target(RELAY, port_of(relay.base_url), {RELAY: relay.process_id}, api_key=KEY)
        target.put_load(ONE_CHAT, folder, progress, chats=1)
        yield target._replace(first_answer_s=time.monotonic() - began_at_s)


@contextmanager
def started_legato(
    name: str, upstream: Upstream, folder: Path, progress: Progress, settings: Mapping[str, str] = SETTINGS
) -> Iterator[Target]:
    with ExitStack() as opened:
        database: dict[str, int] = {}
        if name == ON_POSTGRESQL:
            postgres = Postgres(durable=True)
            postgres.start()
            opened.callback(postgres.stop)
            settings = {**settings, "LEGATO_DATABASE_URL": postgres.create_database()}
            database[DATABASE] = postgres.process_id
        service = opened.enter_context(Service(upstream, settings, is_forked=False))
        charge_check = ChargeCheck(service)
        # A normal start, not the first one: an account with a key exists.
        service.stop()
        began_at_s = time.monotonic()
        service.start()
        target = legato_target(name, service, charge_check)
        target.put_load(ONE_CHAT, folder, progress, chats=1)
        first_answer_s = time.monotonic() - began_at_s
        yield target._replace(first_answer_s=first_answer_s, processes={**target.processes, **database})


def legato_target(name: str, service: Service, charge_check: ChargeCheck) -> Target:
    processes = {process.partition("-")[0]: state["pid"] for process, state in service.states().items()}
    processes[SUPERVISOR] = service.supervisor_id
    return Target(name, service.address[1], processes, charge_check.api_key, CLASS, charge_check=charge_check)
