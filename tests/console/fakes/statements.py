"""A ledger of some days, made of figures that agree with each other, for the pages that show it."""

from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from protos.metering.v1 import metering_pb2
from protos.metering.v1 import statements_pb2 as pb
from protos.type.v1.usage_pb2 import Usage

DOLLAR = 1_000_000_000
PRICE = metering_pb2.Price(
    version=3,
    input_nanos_per_million=DOLLAR // 4,
    cached_input_nanos_per_million=DOLLAR // 40,
    output_nanos_per_million=2 * DOLLAR,
)


def stamp(when: datetime) -> Timestamp:
    made = Timestamp()
    made.FromDatetime(when)
    return made


def cost_of(usage: Usage) -> int:
    fresh = usage.prompt_tokens - usage.cached_tokens
    total = (
        fresh * PRICE.input_nanos_per_million
        + usage.cached_tokens * PRICE.cached_input_nanos_per_million
        + usage.completion_tokens * PRICE.output_nanos_per_million
    )
    return -(-total // 1_000_000)


def request_id(number: int) -> str:
    return f"{number:08x}" + "5eed" * 6


class StatementFakes:
    """The part of the fakes that is StatementService. Entries are listed oldest first."""

    entries: list[pb.LedgerEntry]
    receipts: dict[str, pb.RequestReceipt]
    running: list[pb.RequestReceipt]
    violations: list[str]
    # How often an audit is not over yet.
    audits_that_run: int

    def reset_statements(self) -> None:
        self.entries, self.receipts, self.running, self.violations = [], {}, [], []
        self.audits_that_run = 0

    def fill_statements(
        self, key_ids: list[str], balance_nanos: int, count: int = 64, now: datetime | None = None
    ) -> None:
        """Books a grant, an adjustment and charges, which end at a balance and at a time."""
        now = now or datetime.now(UTC)
        self._book(pb.LEDGER_ENTRY_KIND_GRANT, now - timedelta(days=25), 50 * DOLLAR, "grant-2026-11")
        ends = (metering_pb2.END_COMPLETE,) * 4 + (metering_pb2.END_CLIENT_GONE, metering_pb2.END_UPSTREAM_CUT)
        for number in range(count):
            when = now - timedelta(hours=9 * (count - number) - 7)
            if number == count // 2:
                entry = self._book(pb.LEDGER_ENTRY_KIND_ADJUSTMENT, when, -DOLLAR // 4, "adjustment-7")
                entry.reason = "Agreed in the call of 3 November"
            usage = Usage(
                prompt_tokens=1_100 + 37 * number, cached_tokens=512 * (number % 3), completion_tokens=90 + 11 * number
            )
            receipt = self.receipt(number, when, usage, key_ids[number % len(key_ids)], ends[number % len(ends)])
            self.receipts[receipt.request_id] = receipt
            entry = self._book(
                pb.LEDGER_ENTRY_KIND_CHARGE, when, -receipt.charged_nanos, receipt.request_id, receipt.loss_nanos
            )
            entry.key_id, entry.class_id, entry.price_version = receipt.key_id, receipt.class_id, PRICE.version
            entry.usage.CopyFrom(usage)
        missing = balance_nanos - self.entries[-1].balance_nanos
        self.entries[0].amount_nanos += missing
        for entry in self.entries:
            entry.balance_nanos += missing
        self.running = [
            pb.RequestReceipt(
                request_id=request_id(9_000),
                key_id=key_ids[0],
                class_id="forte",
                state=metering_pb2.REQUEST_STATE_RUNNING,
                reserve_time=stamp(now - timedelta(seconds=8)),
                usage=Usage(prompt_tokens=1_204, completion_tokens=310),
                held_nanos=8_400_000,
                price=PRICE,
            )
        ]
        void = self.receipt(9_001, now, Usage(), key_ids[0], metering_pb2.END_REFUSED)
        void.state = metering_pb2.REQUEST_STATE_VOID
        void.basis = metering_pb2.BASIS_UNSPECIFIED
        self.receipts[void.request_id] = void

    def receipt(self, number: int, when: datetime, usage: Usage, key_id: str, end: Any) -> pb.RequestReceipt:
        cost = cost_of(usage)
        loss = cost // 10 if number == 5 else 0
        return pb.RequestReceipt(
            request_id=request_id(number),
            key_id=key_id,
            class_id=("forte", "mezzo", "fortissimo")[number % 3],
            state=metering_pb2.REQUEST_STATE_SETTLED,
            reserve_time=stamp(when - timedelta(seconds=4)),
            end_time=stamp(when),
            usage=usage,
            cost_nanos=cost,
            charged_nanos=cost - loss,
            loss_nanos=loss,
            price=PRICE,
            basis=metering_pb2.BASIS_PROVIDER,
            end=end,
        )

    def _book(self, kind: Any, when: datetime, nanos: int, reference_id: str, loss_nanos: int = 0) -> pb.LedgerEntry:
        balance = self.entries[-1].balance_nanos if self.entries else 0
        entry = pb.LedgerEntry(
            entry_id=len(self.entries) + 1,
            kind=kind,
            time=stamp(when),
            amount_nanos=nanos,
            balance_nanos=balance + nanos,
            reference_id=reference_id,
            loss_nanos=loss_nanos,
        )
        self.entries.append(entry)
        return entry

    # The RPCs.

    def ListLedgerEntries(self, request: Any) -> Any:
        found = self.entries[::-1]
        if request.HasField("start_time"):
            found = [each for each in found if each.time.seconds >= request.start_time.seconds]
        if request.HasField("end_time"):
            found = [each for each in found if each.time.seconds < request.end_time.seconds]
        first = int(request.page_token or 0)
        last = first + request.page_size
        return pb.ListLedgerEntriesResponse(
            entries=found[first:last], next_page_token=str(last) if last < len(found) else ""
        )

    def ListLedgerDays(self, request: Any) -> Any:
        days: dict[int, pb.LedgerDay] = {}
        bookings, opening = [], 0
        for entry in self.entries:
            if entry.time.seconds < request.start_time.seconds:
                opening = entry.balance_nanos
            elif entry.time.seconds < request.end_time.seconds:
                midnight = entry.time.seconds - entry.time.seconds % 86_400
                day = days.setdefault(midnight, pb.LedgerDay(start_time=Timestamp(seconds=midnight)))
                day.balance_nanos = entry.balance_nanos
                day.loss_nanos += entry.loss_nanos
                if entry.kind == pb.LEDGER_ENTRY_KIND_CHARGE:
                    day.requests += 1
                    day.charged_nanos -= entry.amount_nanos
                else:
                    day.credited_nanos += entry.amount_nanos
                    bookings.append(entry)
        return pb.ListLedgerDaysResponse(opening_balance_nanos=opening, days=days.values(), bookings=bookings)

    def ListRequests(self, request: Any) -> Any:
        if request.request_id:
            running = [each for each in self.running if each.request_id == request.request_id]
            found = [self.receipts[request.request_id]] if request.request_id in self.receipts else []
            return pb.ListRequestsResponse(running=running, requests=found)
        charged = [each for each in reversed(self.receipts.values()) if each.charged_nanos]
        running = [] if request.page_token else self.running
        if request.key_ids:
            charged = [each for each in charged if each.key_id in request.key_ids]
            running = [each for each in running if each.key_id in request.key_ids]
        if request.class_ids:
            charged = [each for each in charged if each.class_id in request.class_ids]
        first = int(request.page_token or 0)
        last = first + request.page_size
        return pb.ListRequestsResponse(
            running=running, requests=charged[first:last], next_page_token=str(last) if last < len(charged) else ""
        )

    def AuditAccount(self, request: Any) -> Any:
        balance = self.entries[-1].balance_nanos if self.entries else 0
        if self.audits_that_run:
            self.audits_that_run -= 1
            return pb.AuditAccountResponse(is_running=True, took_ms=12_345)
        return pb.AuditAccountResponse(violations=self.violations, entries=len(self.entries), balance_nanos=balance)

    def ListPrices(self, request: Any) -> Any:
        classes = {"mezzo": 150_000_000, "forte": 500_000_000, "fortissimo": 2_500_000_000}
        prices = [
            pb.ClassPrice(
                class_id=name,
                price=metering_pb2.Price(input_nanos_per_million=nanos, output_nanos_per_million=4 * nanos),
            )
            for name, nanos in classes.items()
        ]
        return pb.ListPricesResponse(versions=[pb.PriceVersion(version=1, prices=prices)], current_version=1)
