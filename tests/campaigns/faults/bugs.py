"""Mistakes that the protocol rules out, each as a change to the code that makes it: the harness must see them."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from edge.billing import journal_file
from edge.billing.hold import ChatHold
from edge.billing.journal import OPEN, SEAL, Journal, Slot
from edge.billing.journal_file import JournalFile
from edge.billing.metering import Metering
from edge.billing.settlements import ANSWER_TIMEOUT_S, NO_DETAILS, Settlement, Settlements, resolution
from edge.chat.chat import Chat
from edge.chat.delivery import PieceDelivery
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.database import clock
from services.chassis.errors import LegatoError
from services.chassis.process import failpoints
from services.metering.credit.batch import Writer
from services.metering.credit.ledger import owed
from services.metering.credit.ledger.closings import Closing
from services.metering.credit.ledger.spend import Spend, SpendBook, SpendRoom
from services.metering.credit.servicers import payments as booking_servicer
from services.metering.credit.store import batches
from services.metering.credit.store.closings import EntryRange
from services.metering.months import passes
from services.metering.months.passes import Retention
from services.metering.months.store import pruning
from services.router.answers.grants import TokenAllowance
from tests.campaigns.faults.harnesses.book_clock import move_times

_AGAIN_AFTER_S: Final = 0.05


class Change(NamedTuple):
    """A change of `owner`'s attribute `name`, made from what it was."""

    owner: Any
    name: str
    make: Callable[[Any], Any]


@dataclass(frozen=True)
class Bug:
    name: str
    changes: tuple[Change, ...]

    def apply(self) -> None:
        """Changes the process, just forked, for good."""
        for owner, name, make in self.changes:
            setattr(owner, name, make(getattr(owner, name)))

    @contextmanager
    def applied(self) -> Iterator[None]:
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in self.changes]
        self.apply()
        try:
            yield
        finally:
            for owner, name, was in before:
                setattr(owner, name, was)


def _seal_without_writing(_: Any) -> Any:
    def seal(self: Slot, usage: Usage, basis: "pb.Basis.ValueType", end: "pb.End.ValueType") -> None:
        self.prompt_tokens, self.completion_tokens = usage.prompt_tokens, usage.completion_tokens
        self.cached_tokens, self.basis, self.end, self.kind = usage.cached_tokens, basis, end, SEAL

    return seal


def _deliver_then_count(_: Any) -> Any:
    def write(self: Any, response: Any) -> None:
        self.prompt_tokens, self.output_tokens = response.prompt_tokens, response.output_tokens
        is_first = not self._reply.delivered
        self._reply.write(response)
        if self._reply.is_streamed:
            failpoints.hit("edge.relayed")
            self._hold.slot.count(self.prompt_tokens, self.output_tokens)
            if is_first:
                self._hold.slot.mark()

    return write


def _match_no_extend_reply(_: Any) -> Any:
    async def ask_for(self: Any, total_nanos: int, delivered: Usage) -> pb.ExtendResponse:
        request = pb.ExtendRequest(
            request_id=self.request_id,
            account_id=self._principal.account_id,
            total_nanos=total_nanos,
            delivered=delivered,
        )
        answer: pb.ExtendResponse = await self._metering.extend(request)
        if answer.extended:
            self._held_nanos = max(self._held_nanos, total_nanos)
        return answer

    return ask_for


def _in_a_task(mistake: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Replaces `Settlements.begin`, which waits for nothing."""

    def change(_: Any) -> Any:
        def begin(self: Any, slot: Slot, *given: Any, **named: Any) -> None:
            ended = asyncio.create_task(mistake(_)(self, slot))
            self.under_way[slot.request_id] = Settlement(slot, NO_DETAILS, False, "edge.settled", 0, ended)
            ended.add_done_callback(lambda _: self.under_way.pop(slot.request_id))

        return begin

    return change


def _void_what_is_not_answered(_: Any) -> Any:
    async def resolve(self: Any, slot: Slot) -> None:
        method, request, response_type = resolution(slot)
        while True:
            try:
                replica = self._replicas.for_account(slot.account_id)
                await replica.call(method, request, response_type, ANSWER_TIMEOUT_S)
                break
            except LegatoError:
                request = pb.VoidRequest(request_id=slot.request_id, account_id=slot.account_id, end=slot.end)
                method, response_type = "Void", pb.VoidResponse
                await asyncio.sleep(_AGAIN_AFTER_S)
        slot.free()

    return resolve


def _void_what_broke(_: Any) -> Any:
    return lambda self, end: self._hold.void(end)


def _free_then_resolve(_: Any) -> Any:
    async def resolve(self: Any, slot: Slot) -> None:
        method, request, response_type = resolution(slot)
        slot.free()
        failpoints.hit("edge.settling" if slot.basis else "edge.voiding")
        while True:
            try:
                replica = self._replicas.for_account(slot.account_id)
                await replica.call(method, request, response_type, ANSWER_TIMEOUT_S)
                return
            except LegatoError:
                await asyncio.sleep(_AGAIN_AFTER_S)

    return resolve


def _with_short_deadlines(was: Any) -> Any:
    def init(self: Writer, database: Any, prices: Any, life_s: float, log: Any, **waits: float) -> None:
        was(self, database, prices, 0.4, log, **waits)

    return init


def _live_from_the_reply(was: Any) -> Any:
    async def route(self: Any, *opening: Any) -> Any:
        self._over_at_s += self._clock.elapsed_s() - self._began_at_s
        self._delivery._over_at_s = self._over_at_s
        return await was(self, *opening)

    return route


def _restart_write_numbers(was: Any) -> Any:
    def claim(self: Journal, *request: Any) -> Slot:
        self.write_no = 0
        return was(self, *request)  # type: ignore[no-any-return]

    return claim


def _write_without_owner_check(was: Any) -> Any:
    def count(self: Slot, *counts: int) -> None:
        self.kind = OPEN
        was(self, *counts)

    return count


def _claim_without_writing(was: Any) -> Any:
    def claim(self: Any, *request: Any) -> Slot:
        with patch.object(Slot, "count"):
            return was(self, *request)  # type: ignore[no-any-return]

    return claim


def _record_nothing(_: Any) -> Any:
    return lambda self: None


def _relay_while_extending(_: Any) -> Any:
    async def cover(self: Any, response: Any) -> bool:
        prompt_tokens, output_tokens = response.prompt_tokens, response.output_tokens
        if output_tokens > self._hold.covered_output_tokens(prompt_tokens):
            growing = self._hold.grow(prompt_tokens, output_tokens, self.delivered)
            self._hold._answering = asyncio.create_task(growing)
        return True

    return cover


def _write_one_half(was: Any) -> Any:
    def count(self: Slot, *counts: int) -> None:
        start = self.start
        was(self, *counts)
        self.start = start

    return count


def _lock_nothing(was: Any) -> Any:
    return SimpleNamespace(flock=lambda *_: None, LOCK_EX=was.LOCK_EX, LOCK_NB=was.LOCK_NB)


def _believe_old_pages(was: Any) -> Any:
    def prepare(self: Any, wanted_slots: int) -> int:
        layout = journal_file._HEADER
        magic, slots, _ = layout.unpack(os.pread(self.number, layout.size, 0).ljust(layout.size))
        if magic == journal_file._MAGIC:
            boot_id = journal_file._BOOT_ID.read_bytes().strip()
            os.pwrite(self.number, layout.pack(magic, slots, boot_id), 0)
        return was(self, wanted_slots)  # type: ignore[no-any-return]

    return prepare


def _answer_reserve_late(was: Any) -> Any:
    async def reserve(self: Any, *question: Any) -> Any:
        answer = await was(self, *question)
        await asyncio.sleep(1.8)
        return answer

    return reserve


def _never_ask_for_more(_: Any) -> Any:
    async def cover_output(self: Any, output_tokens: int, max_tokens: int) -> int:
        return output_tokens

    return cover_output


def _release_nothing(was: Any) -> Any:
    def after(self: Spend, charged_nanos: int, hour_us: int, held_change_nanos: int) -> Any:
        return was(self, charged_nanos, hour_us, max(0, held_change_nanos))

    return after


def _collect_nothing(_: Any) -> Any:
    return lambda operation, effect, context: effect


def _book_under_a_new_id(was: Any) -> Any:
    def to_bookings(request: Any) -> Any:
        request.payment_id += f"-{os.urandom(4).hex()}"
        return was(request)

    return to_bookings


def _believe_any_archive(was: Any) -> Any:
    async def archive(self: Any, closing: Closing, entries: EntryRange) -> list[str]:
        await was(self, closing, entries._replace(last_id=entries.last_id - 1))
        return []

    return archive


def _bug(name: str, *changes: tuple[Any, str, Callable[[Any], Any]]) -> tuple[str, Bug]:
    return name, Bug(name, tuple(Change(*change) for change in changes))


BUGS: Final = dict(
    [
        _bug("settle before journal", (Slot, "seal", _seal_without_writing)),
        _bug("journal after relay", (PieceDelivery, "_write", _deliver_then_count)),
        _bug("extend reply not matched", (ChatHold, "_ask_for", _match_no_extend_reply)),
        _bug("void when settle is unanswered", (Settlements, "begin", _in_a_task(_void_what_is_not_answered))),
        _bug("void when the stream broke", (Chat, "_settle", _void_what_broke)),
        _bug("slot freed before ack", (Settlements, "begin", _in_a_task(_free_then_resolve))),
        _bug("deadline shorter than stream life", (Writer, "__init__", _with_short_deadlines)),
        _bug("life counted from the reserve reply", (Chat, "_route", _live_from_the_reply)),
        _bug("slot reuse, write number restarts", (Journal, "claim", _restart_write_numbers)),
        _bug("slot reuse, handle without generation", (Slot, "count", _write_without_owner_check)),
        _bug("slot written after reserve", (Journal, "claim", _claim_without_writing)),
        _bug("refused reserve forgotten although sent twice", (ChatHold, "_record_repeat", _record_nothing)),
        _bug("relay while extend is under way", (PieceDelivery, "_cover", _relay_while_extending)),
        _bug("one journal copy", (Slot, "count", _write_one_half)),
        _bug("two processes on one journal", (journal_file, "fcntl", _lock_nothing)),
        _bug("old journal pages after a reboot", (JournalFile, "_prepare", _believe_old_pages)),
        _bug("settle beyond a spend limit", (SpendRoom, "of_free", lambda _: lambda self, free_nanos: free_nanos)),
        _bug("limit that counts what was released", (Spend, "after", _release_nothing)),
        _bug("counter that prevents a settlement", (batches, "replace", lambda _: lambda spend, **changes: spend)),
        _bug("payment booked under a new id", (booking_servicer, "to_bookings", _book_under_a_new_id)),
        _bug("credit that pays nothing owed", (owed, "collect", _collect_nothing)),
        _bug("ids of pruned credits forgotten", (pruning, "keep_credits", lambda _: lambda *rows: None)),
        _bug("entries deleted before they are archived", (Retention, "_archive", _believe_any_archive)),
    ]
)

MOVED_CLOCK: Final = "a clock that is moved"
UNCOUNTED: Final = "metering of 0.1.0, which keeps no counters of spend limits"
# No mistakes, but what brings some of them to light.
MISFORTUNES: Final = dict(
    [
        _bug("reserve is answered late", (Metering, "reserve", _answer_reserve_late)),
        _bug(UNCOUNTED, (SpendBook, "count", lambda _: lambda self, before, after, entry: None)),
        _bug("a router that never asks for more", (TokenAllowance, "cover_output", _never_ask_for_more)),
        # Only where a file says how far the clock is ahead. Holds are then pruned in every pass, and not every 6 hours.
        _bug(MOVED_CLOCK, (clock, "NOW_US", move_times), (passes, "HOLDS_EVERY_S", lambda _: 0.0)),
    ]
)
