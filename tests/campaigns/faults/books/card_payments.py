"""Payments by card during a round, with their events as Stripe delivers them: at once, twice, in any order, until each
is accepted."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import grpc
import grpc.aio

from legato_protos.payments.v1 import payments_pb2 as pb
from legato_protos.payments.v1.payments_pb2_grpc import PaymentServiceStub
from services.chassis.rpc.channel import open_channel
from services.metering.credit.records import Entry
from services.payments.rules import ID_PREFIX, NANOS_PER_CENT
from tests.campaigns.faults.books.judge import Kind, Violation
from tests.campaigns.faults.books.ledger import Account
from tests.support.outside.stripe_server import SECRET_KEY, WEBHOOK_SECRET, Signed, StripeServer, sign

if TYPE_CHECKING:
    from legato_protos.payments.v1.payments_pb2_grpc import PaymentServiceAsyncStub

# Stripe waits longer between two attempts.
AGAIN_AFTER_S: Final = 0.03
ANSWER_TIMEOUT_S: Final = 10.0
# Between two changes of one payment.
LONGEST_PAUSE_S: Final = 0.1
CENTS: Final = (500, 5_000)
RESTORED: Final = "-restored"
# More than any account ever has; and how long chats run meanwhile, about.
EVERYTHING_CENTS: Final = 1_000_000
CHAT_S: Final = 0.6


class Booking(NamedTuple):
    """One entry that a payment must have in the end: its kind, and what came from outside or went there."""

    kind: str
    external_nanos: int


class CardPayments:
    def __init__(self, address: str) -> None:
        self._stripe = StripeServer()
        self._channel = open_channel(address)
        self._stub: PaymentServiceAsyncStub = PaymentServiceStub(self._channel)
        # By account: its payments, and the bookings that they must have, by id.
        self._payments: defaultdict[str, list[str]] = defaultdict(list)
        self._bookings: defaultdict[str, dict[str, Booking]] = defaultdict(dict)
        # By account: forged events that were believed.
        self._believed: defaultdict[str, int] = defaultdict(int)

    @property
    def environ(self) -> dict[str, str]:
        return {
            "LEGATO_STRIPE_SECRET_KEY": SECRET_KEY,
            "LEGATO_STRIPE_WEBHOOK_SECRET": WEBHOOK_SECRET,
            "LEGATO_STRIPE_API_URL": self._stripe.url,
        }

    async def close(self) -> None:
        await self._channel.close()
        await asyncio.to_thread(self._stripe.close)

    async def go_on(self, account_ids: Sequence[str], dice: random.Random, *, takes_all: bool = False) -> None:
        """Pays, refunds and disputes, for each account; returns when every event was accepted. With `takes_all`, each
        account owes more than it has for a while."""
        seeds = [dice.getrandbits(32) for _ in account_ids]
        async with asyncio.TaskGroup() as events:
            for account_id, seed in zip(account_ids, seeds, strict=True):
                events.create_task(self._go_on_with(account_id, random.Random(seed), events, takes_all=takes_all))

    async def _go_on_with(
        self, account_id: str, dice: random.Random, events: asyncio.TaskGroup, *, takes_all: bool
    ) -> None:
        earlier = list(self._payments[account_id])
        if earlier:
            # Months may lie between: the first event comes once more, and some of it is returned.
            payment_id = dice.choice(earlier)
            events.create_task(self._deliver("checkout.session.completed", payment_id))
            await self._return_some(account_id, payment_id, dice, events)
        cents = dice.randint(*CENTS)
        events.create_task(self._forge(account_id, cents))
        payment_id = self._stripe.new_payment(account_id, cents)
        self._payments[account_id].append(payment_id)
        self._expect(account_id, payment_id, Booking("grant", -cents * NANOS_PER_CENT))
        for _ in range(dice.randint(1, 2)):
            events.create_task(self._deliver("checkout.session.completed", payment_id))
        await asyncio.sleep(dice.uniform(0, LONGEST_PAUSE_S))
        if takes_all:
            await self._dispute_everything(account_id, payment_id, dice, events)
        else:
            await self._return_some(account_id, payment_id, dice, events)

    async def _dispute_everything(
        self, account_id: str, payment_id: str, dice: random.Random, events: asyncio.TaskGroup
    ) -> None:
        """The customer is lent more than everything, while requests run, and gives it back when some have ended."""
        nanos = EVERYTHING_CENTS * NANOS_PER_CENT
        dispute_id = self._stripe.dispute(payment_id, EVERYTHING_CENTS)
        self._expect(account_id, dispute_id, Booking("adjustment", nanos))
        events.create_task(self._deliver("charge.dispute.created", payment_id))
        await asyncio.sleep(dice.uniform(CHAT_S / 2, 2 * CHAT_S))
        self._expect(account_id, dispute_id + RESTORED, Booking("adjustment", -nanos))
        self._stripe.set_status(dispute_id, "won")
        events.create_task(self._deliver("charge.dispute.closed", payment_id))

    async def _return_some(
        self, account_id: str, payment_id: str, dice: random.Random, events: asyncio.TaskGroup
    ) -> None:
        cents, is_dispute = dice.randint(1, CENTS[0] // 10), dice.random() < 0.4
        returned_id = (self._stripe.dispute if is_dispute else self._stripe.refund)(payment_id, cents)
        self._expect(account_id, returned_id, Booking("adjustment", cents * NANOS_PER_CENT))
        kind = "charge.dispute.created" if is_dispute else "refund.created"
        events.create_task(self._deliver(kind, payment_id))
        if dice.random() < 0.5:
            await asyncio.sleep(dice.uniform(0, LONGEST_PAUSE_S))
            self._expect(account_id, returned_id + RESTORED, Booking("adjustment", -cents * NANOS_PER_CENT))
            self._stripe.set_status(returned_id, "won" if is_dispute else "failed")
            kind = "charge.dispute.closed" if is_dispute else "refund.failed"
            events.create_task(self._deliver(kind, payment_id))

    def _expect(self, account_id: str, stripe_id: str, booking: Booking) -> None:
        self._bookings[account_id][ID_PREFIX + stripe_id] = booking

    async def _deliver(self, kind: str, payment_id: str) -> None:
        event = self._stripe.event(kind, payment_id)
        while not await self._is_accepted(sign(event)):
            await asyncio.sleep(AGAIN_AFTER_S)

    async def _forge(self, account_id: str, cents: int) -> None:
        """Sends an event, with a wrong signature, of a payment that Stripe has not told of."""
        payment_id = self._stripe.new_payment(account_id, cents)
        event = self._stripe.event("checkout.session.completed", payment_id)
        if await self._is_accepted(sign(event, secret="whsec_guessed")):
            self._believed[account_id] += 1

    async def _is_accepted(self, event: Signed) -> bool:
        request = pb.ReceiveEventRequest(payload=event.payload, signature=event.signature)
        try:
            await self._stub.ReceiveEvent(request, timeout=ANSWER_TIMEOUT_S, wait_for_ready=True)
        except grpc.RpcError:
            return False
        return True

    def judge(self, account_id: str, credits: Sequence[Entry]) -> list[Violation]:
        """Compares the bookings of all payments of an account with its entries."""
        found = [Violation("doubled", "a forged event was believed")] * self._believed[account_id]
        return found + judge_bookings(self._bookings[account_id], credits)


def judge_bookings(bookings: Mapping[str, Booking], credits: Sequence[Entry]) -> list[Violation]:
    """Checks that each booking was made once, with its amount, and nothing else of this provider was."""
    by_id: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in credits:
        if entry.request_id.startswith(ID_PREFIX):
            by_id[entry.request_id].append(entry)
    found = [Violation("lost", f"{booking_id} was not booked") for booking_id in bookings.keys() - by_id.keys()]
    for booking_id, entries in by_id.items():
        if booking_id not in bookings or len(entries) > 1:
            found.append(Violation("doubled", f"{booking_id} was booked {len(entries)} times"))
        elif not _is_right(entries[0], bookings[booking_id]):
            found.append(Violation("lost", f"{booking_id} was booked as {entries[0]}, not as {bookings[booking_id]}"))
    return found


def judge_owed(account: Account) -> list[Violation]:
    """Compares what an account at rest has, or owes, with the money that came and went, and its charges."""
    left_nanos = -sum(entry.external_nanos for entry in account.credits_ever)
    left_nanos -= sum(charge.nanos for charge in account.charges_ever)
    meant = max(0, left_nanos), max(0, -left_nanos)
    if (account.balance_nanos, account.owed_nanos) == meant:
        return []
    kind: Kind = "doubled" if account.balance_nanos - account.owed_nanos < left_nanos else "lost"
    return [Violation(kind, f"has {account.balance_nanos}, owes {account.owed_nanos}, and was to have and owe {meant}")]


def _is_right(entry: Entry, expected: Booking) -> bool:
    """Returns whether an entry has its amount: all of it is the customer's if it was paid or restored."""
    if Booking(entry.kind, entry.external_nanos) != expected:
        return False
    return expected.external_nanos > 0 or entry.customer_nanos == -entry.external_nanos
