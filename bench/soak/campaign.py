"""Runs clients of all kinds, half of which disconnect, and compares the state of all processes before and after."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench.chats import Upstream, started_upstream
from bench.children import result_of
from bench.report import Progress
from bench.soak.clients import Order, Outcome
from bench.soak.judgement import Sample, Soak, is_back
from bench.soak.kinds import UNSTEADY_CLASS
from bench.soak.readings import SoakHarness, wait_for_rest
from tests.e2e.operations import LISTENING
from tests.support.service import Service

SETTINGS: Final = {
    "LEGATO_REQUESTS_PER_MINUTE": "1000000",
    "LEGATO_REQUEST_BURST": "100000",
    **LISTENING,
}
# A closed port. Every chat of the class that lists it first may need the second model.
AWAY: Final = "http://127.0.0.1:9/v1"
ROUTES: Final = f"""
[providers.away]
kind = "openai"
base_url = "{AWAY}"
zero_retention = true

[providers.upstream]
kind = "openai"
base_url = "{{base_url}}"
zero_retention = true

[models.away]
provider = "away"
name = "away"
context_tokens = 1100000
max_output_tokens = 131072

[models.wide]
provider = "upstream"
name = "upstream-model"
context_tokens = 1100000
max_output_tokens = 131072

[classes.{UNSTEADY_CLASS}]
models = ["away", "wide"]

[classes.forte]
models = ["wide"]

[classes.fortissimo]
models = ["wide"]
"""
CREDITS: Final = "1000000"
SAMPLE_EVERY_S: Final = 5.0
# Runs before the first reading, so that one-time allocations are done.
FIRST_S: Final = 20.0


class _Account:
    def __init__(self, service: Service) -> None:
        self.account_id = service.new_account(CREDITS)
        self.api_key = service.new_key(self.account_id)
        self.granted_nanos = service.settled_balance_nanos(self.account_id)


class Campaign:
    def __init__(self, service: Service, folder: Path, progress: Progress, chats_per_s: float) -> None:
        self._service = service
        self._folder = folder
        self._progress = progress
        self._chats_per_s = chats_per_s
        self._staying, self._leaving = _Account(service), _Account(service)
        self._harness = SoakHarness(service)

    def run(self, seconds: float, warm_up_s: float, first_s: float = FIRST_S) -> Soak:
        self._progress.step("everything once", first_s)
        with self._provider() as folder:
            first = self._put_load(folder, first_s, lambda: None)
        before = self._harness.resources_at_rest()
        samples: list[Sample] = []
        self._progress.step("soak", seconds)
        with self._provider() as folder:
            outcome = self._put_load(folder, seconds, self._sampler(samples))
            # The provider still runs: its end would close connections that we leaked.
            after = wait_for_rest(self._harness, lambda now: is_back(before, now))
        return Soak(seconds, warm_up_s, outcome, samples, before, after, self._faults(first, outcome))

    @contextmanager
    def _provider(self) -> Iterator[Path]:
        """Starts the provider that the routes name, in a folder of its own."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        with started_upstream(folder) as upstream:
            self._service.follow_routes(ROUTES.format(base_url=upstream.base_url))
            yield folder

    def _put_load(self, folder: Path, seconds: float, meanwhile: Callable[[], None]) -> Outcome:
        order = Order(*self._service.address, self._staying.api_key, self._leaving.api_key, self._chats_per_s, seconds)
        encoded = msgspec.json.encode(order)
        result = result_of("bench.soak.clients", encoded, folder, self._progress, meanwhile)
        # Waits until the chats of disconnected clients are settled.
        for account in (self._staying, self._leaving):
            self._service.settled_balance_nanos(account.account_id)
        return msgspec.json.decode(result, type=Outcome)

    def _sampler(self, samples: list[Sample]) -> Callable[[], None]:
        began_at_s = time.monotonic()

        def sample() -> None:
            elapsed_s = time.monotonic() - began_at_s
            if elapsed_s >= len(samples) * SAMPLE_EVERY_S:
                samples.append(Sample(elapsed_s, self._harness.private_mib()))

        return sample

    def _faults(self, *outcomes: Outcome) -> list[str]:
        faults = self._service.audit()
        if not self._harness.is_the_same():
            faults.append("a process has ended, and was started again")
        worth_nanos = sum(outcome.worth_nanos for outcome in outcomes)
        charged_nanos = self._charged_nanos(self._staying)
        if charged_nanos != worth_nanos:
            faults.append(f"the answers cost {worth_nanos} nanos, but {charged_nanos} were charged")
        holds = self._service.holds(self._leaving.account_id)
        tokens = sum(hold.completion_tokens for hold in holds)
        if tokens > (requested := sum(outcome.requested_tokens for outcome in outcomes)):
            faults.append(f"disconnected clients had requested {requested} tokens, and were charged for {tokens}")
        # A hold that was swept was lost by its edge.
        if forgotten := [hold for hold in holds if hold.state not in ("settled", "void")]:
            faults.append(f"{len(forgotten)} holds did not end as they should, the first is {forgotten[0].state}")
        return faults

    def _charged_nanos(self, account: _Account) -> int:
        return account.granted_nanos - self._service.settled_balance_nanos(account.account_id)


@contextmanager
def started_campaign(progress: Progress, chats_per_s: float) -> Iterator[Campaign]:
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as name:
        folder = Path(name)
        # Each load starts its own provider.
        with Service(Upstream(AWAY), SETTINGS, routes=ROUTES) as service:
            yield Campaign(service, folder, progress, chats_per_s)
