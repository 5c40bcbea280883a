"""Delivers notices by webhook and by mail: at least once, with longer and longer pauses between attempts.

A delivery is taken for the time of a lease. If its process ends before the outcome is written, another attempt follows
when the lease is over.
"""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Final

from services.auth.notices.records import MINUTE_US, Channel, Delivery, DeliveryState, OwnerNotice
from services.auth.notices.webhook_client import WebhookClient, WebhookFailure
from services.auth.notices.words import SUBJECTS, advise
from services.auth.store.accounts import find_account
from services.auth.users.mail import Mail
from services.auth.users.store import Connection
from services.auth.users.store import notices as stored
from services.auth.users.store.users import find_user
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from services.chassis.telemetry.log import Log

# Longer than any attempt.
LEASE_US: Final = 2 * MINUTE_US
AT_ONCE_MOST: Final = 16
EACH_MOST: Final = 2
# After the first attempt, the second and so on: a day in all. Then it is given up.
PAUSES_US: Final = tuple(minutes * MINUTE_US for minutes in (0.25, 1, 5, 15, 60, 3 * 60, 6 * 60, 14 * 60))
# Pauses are up to this part longer, so that receivers do not get everything at once when they are back.
JITTER: Final = 0.2
FAILURE_LENGTH_MOST: Final = 200


class DeliveryFailed(Exception):
    """The text is for the account's owners."""


class NoticeDelivery:
    def __init__(
        self,
        database: Database,
        webhooks: WebhookClient,
        mail: Mail,
        now_us: Callable[[], int],
        log: Log,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._database = database
        self._webhooks = webhooks
        self._mail = mail
        self._now_us = now_us
        self._log = log
        self._random = rng
        # For metrics: attempts by channel, and whether they succeeded.
        self.attempts = {(channel, is_done): 0 for channel in Channel for is_done in (True, False)}

    async def deliver_due(self) -> int:
        """Makes an attempt at deliveries that are due; returns how many."""
        now_us = self._now_us()
        claim = partial(
            stored.claim_due, now_us=now_us, lease_until_us=now_us + LEASE_US, most=AT_ONCE_MOST, most_each=EACH_MOST
        )
        claimed = await self._database.write(claim)
        await asyncio.gather(*(self._deliver(delivery, notice) for delivery, notice in claimed))
        return len(claimed)

    async def _deliver(self, delivery: Delivery, notice: OwnerNotice) -> None:
        state, failure, next_us = DeliveryState.DELIVERED, "", 0
        try:
            await self._attempt(delivery, notice)
        except (DeliveryFailed, WebhookFailure) as error:
            state, failure = DeliveryState.PENDING, str(error)[:FAILURE_LENGTH_MOST]
            pause_us = self._pause_us(delivery.attempts)
            if pause_us is None:
                state = DeliveryState.FAILED
                self._log.warning("notice.given_up", name=delivery.channel.value)
            else:
                next_us = self._now_us() + pause_us
        self.attempts[delivery.channel, not failure] += 1
        note = partial(
            stored.note_outcome,
            delivery_id=delivery.delivery_id,
            state=state,
            failure=failure,
            next_attempt_at_us=next_us,
        )
        await self._database.write(note)

    async def _attempt(self, delivery: Delivery, notice: OwnerNotice) -> None:
        send = self._post if delivery.channel is Channel.WEBHOOK else self._mail_to
        try:
            await send(delivery, notice)
        except (DeliveryFailed, WebhookFailure, LegatoError):
            raise
        except Exception as error:
            # It counts as an attempt: otherwise it would be due again and again, for ever.
            self._log.failure("notice.failed", error, name=delivery.channel.value)
            raise DeliveryFailed(f"it could not be sent ({type(error).__name__})") from None

    def _pause_us(self, attempts_before: int) -> int | None:
        """Returns how long to wait after an attempt; None: it was the last."""
        if attempts_before >= len(PAUSES_US):
            return None
        return round(PAUSES_US[attempts_before] * (1 + JITTER * self._random()))

    async def _post(self, delivery: Delivery, notice: OwnerNotice) -> None:
        webhook = await self._database.read(partial(stored.find_webhook, webhook_id=delivery.recipient_id))
        if webhook is None:
            raise DeliveryFailed("the webhook was removed")
        if not (webhook.url and webhook.secret and notice.body):
            raise DeliveryFailed("the key that encrypts addresses is missing")
        now_s = self._now_us() // 1_000_000
        await self._webhooks.send(webhook.url, webhook.secret, notice.notice_id, notice.body.encode(), now_s)

    async def _mail_to(self, delivery: Delivery, notice: OwnerNotice) -> None:
        def look(connection: Connection) -> tuple[str, str]:
            user = find_user(connection, delivery.recipient_id)
            account = find_account(connection, notice.account_id)
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
