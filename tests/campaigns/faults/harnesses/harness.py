"""The whole service, whatever way its processes are started: what a round needs to know of it."""

import asyncio
import os
import shutil
import signal
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from cli.commands.account.accounts import create_account
from cli.commands.account.keys import create_key
from cli.connection import ServiceStubs, call_service
from cli.supervision.health import is_listening
from edge.billing.journal import Journal
from legato_protos.metering.v1.spend_limits_pb2 import SetSpendLimitsRequest, Spend, SpendLimits
from tests.campaigns.faults.books.card_payments import CardPayments
from tests.campaigns.faults.books.ledger import LedgerReader
from tests.campaigns.faults.chat import Customer
from tests.campaigns.faults.client import Provider
from tests.campaigns.faults.harnesses.book_clock import BookClock

# In memory where that is to be had: what is killed here is processes, not machines.
FOLDER = next(folder for folder in ("/dev/shm", "/tmp") if os.access(folder, os.W_OK))
LAST_LINES = 5
# Of each customer in turn: limits that its credit never exceeds, so that they only count. Every other is of the key.
ROOMY_LIMITS: Final[tuple[Callable[[int], SpendLimits], ...]] = (
    lambda nanos: SpendLimits(),
    lambda nanos: SpendLimits(),
    lambda nanos: SpendLimits(day_nanos=nanos),
    lambda nanos: SpendLimits(month_nanos=nanos),
    lambda nanos: SpendLimits(total_nanos=nanos),
    lambda nanos: SpendLimits(day_nanos=nanos, month_nanos=nanos, total_nanos=nanos),
    lambda nanos: SpendLimits(month_nanos=nanos, total_nanos=nanos),
    lambda nanos: SpendLimits(day_nanos=nanos, month_nanos=nanos),
)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()


class FaultHarness(ABC):
    """Its processes are auth, metering, router and some edges; whichever dies is started again."""

    ledger: LedgerReader
    # Where months end, and cards are charged: one more process.
    clock: BookClock | None = None
    cards: CardPayments | None = None

    def __init__(self, provider: Provider, edges: int, meterings: int = 1) -> None:
        self.provider = provider
        self.edge_names = [f"edge-{number}" for number in range(1, edges + 1)]
        self.metering_names = ["metering", *(f"metering-{number}" for number in range(2, meterings + 1))]
        self.names = ["auth", *self.metering_names, "router", *self.edge_names]
        # A short name: the path of a unix socket may have about a hundred characters.
        self.folder = Path(tempfile.mkdtemp(prefix="lg-", dir=FOLDER))
        self.data = self.folder / "data"
        self.journals = self.folder / "journals"
        self.failpoints = self.folder / "failpoints"
        self.failpoints.mkdir()
        self.address = ("", 0)
        # How far each process's log was looked at.
        self._read_bytes: Counter[str] = Counter()

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def stop(self) -> None: ...

    @property
    @abstractmethod
    def services(self) -> ServiceStubs: ...

    @abstractmethod
    def deaths(self) -> Counter[str]:
        """Counts each process's deaths so far."""
        ...

    @abstractmethod
    def send_signal(self, name: str, number: signal.Signals) -> None:
        """Signals a process that may be dead."""
        ...

    @abstractmethod
    async def replace(self, name: str, old_journals: Mapping[Path, bytes]) -> None:
        """Kill an edge and lose its journal, as if its machine were gone and another had taken its place. After a
        reboot of the same one, old pages may be found."""
        ...

    @abstractmethod
    def log_of(self, name: str) -> Path: ...

    def open_still(self) -> str:
        """Says what keeps the harness from rest. An edge listens here only when it has recovered."""
        down = [name for name in self.names if not is_listening(self.data / "run" / f"{name}.sock")]
        if down:
            return f"{', '.join(down)} does not serve"
        holds = [f"request {hold.request_id} holds {hold.amount_nanos} nanos" for hold in self.ledger.live_holds()]
        taken = {path.name: _taken(path) for path in self._journal_files()} if not holds else {}
        return "; ".join(holds + [f"{name} has {count} slots taken" for name, count in taken.items() if count])

    def new_errors(self) -> list[str]:
        """Lines in the logs, since the last look, by which a process says that something in it broke."""
        found: list[str] = []
        for name in self.names:
            with self.log_of(name).open("rb") as log:
                log.seek(self._read_bytes[name])
                lines = log.readlines()
                self._read_bytes[name] = log.tell()
            # What is no JSON is a traceback, or a library's last words.
            broken = [line for line in lines if not line.startswith(b"{") or b'"level":"error"' in line]
            found += [f"{name}: {line.decode(errors='replace').strip()}" for line in broken]
        return found

    def last_words(self) -> str:
        """The end of every log, to tell why the harness is stuck."""
        ends = {name: self.log_of(name).read_text(errors="replace").splitlines()[-LAST_LINES:] for name in self.names}
        return "\n".join(f"  {name:<10}{line}" for name, lines in ends.items() for line in lines)

    async def new_customers(self, count: int, credit_nanos: int) -> list[Customer]:
        return await asyncio.to_thread(self._make_customers, count, credit_nanos)

    def arm(self, point: str, countdown: int) -> None:
        draft = self.failpoints / f".{point}"
        draft.write_text(str(countdown))
        draft.rename(self.failpoints / point)

    def is_armed(self, point: str) -> bool:
        return bool(point) and (self.failpoints / point).exists()

    def disarm(self) -> None:
        for path in self.failpoints.iterdir():
            path.unlink(missing_ok=True)

    def pages(self) -> dict[Path, bytes]:
        """The journals as they are now, and as another boot of the machine would find them."""
        return {path: path.read_bytes().replace(BOOT_ID, bytes(len(BOOT_ID)), 1) for path in self._journal_files()}

    def _lose_journals(self, old_journals: Mapping[Path, bytes]) -> None:
        for path in self._journal_files():
            path.unlink()
        for path, pages in old_journals.items():
            path.write_bytes(pages)

    def _journal_files(self) -> list[Path]:
        return sorted(self.journals.glob("*.journal"))

    def _make_customers(self, count: int, credit_nanos: int) -> list[Customer]:
        made = []
        for number in range(count):
            account, _ = create_account(self.services, f"customer {number}", credit_nanos)
            key = create_key(self.services, account.account_id, "faults", (), None)
            customer = Customer(account.account_id, key.api_key, key.key.key_id)
            limits = ROOMY_LIMITS[number % len(ROOMY_LIMITS)](credit_nanos)
            if limits.ListFields():
                self._limit(customer, number % 2 == 0, limits)
            made.append(customer)
        return made

    async def leave_to_spend(self, customer: Customer, *, of_key: bool, period: str, nanos: int) -> None:
        """Sets a limit of this customer, or of its key, that leaves so much; there is no other limit."""
        await asyncio.to_thread(self._leave_to_spend, customer, of_key, period, nanos)

    def _leave_to_spend(self, customer: Customer, of_key: bool, period: str, nanos: int) -> None:
        self._limit(customer, not of_key, SpendLimits())
        spend = self._limit(customer, of_key, SpendLimits())
        spent_nanos: int = getattr(spend, f"{period}_spent_nanos")
        self._limit(customer, of_key, SpendLimits(**{f"{period}_nanos": spent_nanos + nanos}))

    def _limit(self, customer: Customer, of_key: bool, limits: SpendLimits) -> Spend:
        key_id = customer.key_id if of_key else ""
        request = SetSpendLimitsRequest(account_id=customer.account_id, key_id=key_id, limits=limits)
        return call_service(self.services.spend_limits.SetSpendLimits, request).spend

    def remove(self) -> None:
        self.ledger.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _taken(path: Path) -> int:
    """Counts a journal's taken slots; reads a copy, since the journal itself has an owner."""
    with tempfile.NamedTemporaryFile(dir=FOLDER) as copy:
        shutil.copyfile(path, copy.name)
        journal = Journal(Path(copy.name))
        try:
            return len(journal.taken)
        finally:
            journal.close()
