"""Delivers notices by webhook and by mail: at least once, with longer and longer pauses between attempts.

A delivery is taken for the time of a lease. If its process ends before the outcome is written, another attempt follows
when the lease is over. Each runs on its own, and an account has few at a time: receivers that do not answer hold up
nothing but notices to themselves.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from services.auth.core.parts import Domain, Parts
from services.auth.core.records.accounts import Account
from services.auth.core.records.users import User
from services.auth.core.store import Connection, get
from services.auth.core.times import MINUTE_US
from services.auth.notices.records import Channel, Delivery, DeliveryState, OwnerNotice, Webhook
from services.auth.notices.rules.webhook_client import CONNECTIONS_MOST, DeliveryFailed, WebhookClient
from services.auth.notices.rules.words import SUBJECTS, advise
from services.auth.notices.store.due_deliveries import Claimed, claim_due, record_outcome
from services.auth.sign_in.rules.mail import Mail
from services.chassis.errors import LegatoError

# Longer than any attempt.
LEASE_US: Final = 2 * MINUTE_US
# Mail is sent one message at a time.
AT_ONCE_MOST: Final = {Channel.WEBHOOK: CONNECTIONS_MOST, Channel.MAIL: 2}
# Of each channel. Fewer than all: no account takes every place.
ACCOUNT_AT_ONCE_MOST: Final = 2
# After the first attempt, the second and so on: a day in all. Then it is given up.
PAUSES_US: Final = tuple(minutes * MINUTE_US for minutes in (0.25, 1, 5, 15, 60, 3 * 60, 6 * 60, 14 * 60))
# Pauses are up to this part longer, so that receivers do not get everything at once when they are back.
JITTER: Final = 0.2
FAILURE_LENGTH_MOST: Final = 200


class NoticeDelivery(Domain):
    def __init__(
        self, parts: Parts, webhooks: WebhookClient, mail: Mail, rng: Callable[[], float] = random.random
    ) -> None:
        super().__init__(parts)
        self._webhooks = webhooks
        self._mail = mail
        self._random = rng
        self._running: dict[asyncio.Task[None], Claimed] = {}
        self._wake = asyncio.Event()
        # Why an outcome could not be written.
        self._error: BaseException | None = None
        # For metrics: attempts by channel, and whether they succeeded.
        self.attempts = {(channel, is_done): 0 for channel in Channel for is_done in (True, False)}

    async def deliver_due(self) -> None:
        """Makes an attempt at every delivery that is due, also at those that become due meanwhile and are told of by
        `wake`."""
        try:
            while True:
                self._wake.clear()
                if self._error is not None:
                    error, self._error = self._error, None
                    raise error
                await self._start_due()
                if not self._running:
                    return
                await self._wake.wait()
        except asyncio.CancelledError:
            for task in self._running:
                task.cancel()
            raise

    def wake(self) -> None:
        self._wake.set()

    async def _start_due(self) -> None:
        now_us = self.now_us()
        running = list(self._running.values())
        for claimed in await self._database.write(
            claim_due, now_us, now_us + LEASE_US, running, AT_ONCE_MOST, ACCOUNT_AT_ONCE_MOST
        ):
            task = asyncio.create_task(self._deliver(*claimed))
            self._running[task] = claimed
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._running[task]
        if not task.cancelled():
            self._error = task.exception() or self._error
        self._wake.set()

    async def _deliver(self, delivery: Delivery, notice: OwnerNotice) -> None:
        send, failure = self._post if delivery.channel is Channel.WEBHOOK else self._mail_to, ""
        try:
            await send(delivery, notice)
        except DeliveryFailed as error:
            failure = str(error)[:FAILURE_LENGTH_MOST]
        except LegatoError:
            raise
        except Exception as error:
            # It counts as an attempt: otherwise it would be due again and again, for ever.
            self._log.failure("notice.failed", error, name=delivery.channel.value)
            failure = f"it could not be sent ({type(error).__name__})"
        self.attempts[delivery.channel, not failure] += 1
        state, next_us = DeliveryState.FAILED if failure else DeliveryState.DELIVERED, 0
        if failure and delivery.attempts < len(PAUSES_US):
            pause_us = round(PAUSES_US[delivery.attempts] * (1 + JITTER * self._random()))
            state, next_us = DeliveryState.PENDING, self.now_us() + pause_us
        elif failure:
            self._log.warning("notice.given_up", name=delivery.channel.value)
        await self._database.write(record_outcome, delivery.delivery_id, state, failure, next_us)

    async def _post(self, delivery: Delivery, notice: OwnerNotice) -> None:
        webhook = await self._database.read(get, Webhook, delivery.recipient_id)
        if webhook is None:
            raise DeliveryFailed("the webhook was removed")
        if not (webhook.url and webhook.secret and notice.body):
            raise DeliveryFailed("the key that encrypts addresses is missing")
        now_s = self.now_us() // 1_000_000
        await self._webhooks.send(webhook.url, webhook.secret, notice.notice_id, notice.body.encode(), now_s)

    async def _mail_to(self, delivery: Delivery, notice: OwnerNotice) -> None:
        def look(connection: Connection) -> tuple[str, str]:
            user = get(connection, User, delivery.recipient_id)
            account = get(connection, Account, notice.account_id)
            is_there = user is not None and user.disabled_at_us is None
            return user.email if user is not None and is_there else "", account.name if account is not None else ""

        email, account_name = await self._database.read(look)
        if not email:
            raise DeliveryFailed("the owner has no address")
        subject = SUBJECTS[notice.kind].format(account=account_name)
        lines = [notice.summary, advise(notice.kind)]
        try:
            await self._mail.send_notice(email, subject, lines)
        except Exception as error:
            # The type alone: its text may have the address.
            raise DeliveryFailed(f"the mail server did not take it ({type(error).__name__})") from None
