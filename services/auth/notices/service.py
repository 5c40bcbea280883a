"""Serves owners: their webhooks, the kinds that are mailed, the list of notices, sending again, and a test."""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from services.auth import checks
from services.auth.notices.recording import NoticeRecorder
from services.auth.notices.webhook_client import WebhookClient, checked_url
from services.auth.notices.words import make_notice
from services.auth.parts import Domain, Parts, reads, writes
from services.auth.records.notices import KINDS, Channel, DeadLetters, Delivery, Kind, OwnerNotice, Webhook
from services.auth.store import Connection, rate_limits
from services.auth.store import notices as stored
from services.auth.store.accounts import lock_account, require_account
from services.auth.store.users import names_of
from services.auth.users import codes
from services.chassis.access_tokens import Access
from services.chassis.errors import LegatoError, Reason
from services.chassis.load.gcra import Rate

WEBHOOKS_MOST: Final = 5
PAGE_SIZE_DEFAULT: Final = 50
PAGE_SIZE_MOST: Final = 100
DEAD_LETTERS_MOST: Final = 200
SECRET_PREFIX: Final = "whsec_"  # noqa: S105
# Per account: none makes us send more than a few requests and mails.
TESTS: Final = Rate(per_minute=1, burst=10)
RESENDS: Final = Rate(per_minute=6, burst=60)


@dataclass(frozen=True, slots=True)
class NoticeSettings:
    webhooks: Sequence[Webhook]
    muted_kinds: Collection[str]
    is_mail_offered: bool
    mail_recipients: int
    # Whether the caller gets mail; None: they are no owner, or have no address.
    is_own_mail_on: bool | None = None


@dataclass(frozen=True, slots=True)
class ShownNotice:
    notice: OwnerNotice
    # With the address of the webhook, or the name of the owner.
    deliveries: Sequence[tuple[Delivery, str]]


class Notices(Domain):
    def __init__(self, parts: Parts, recorder: NoticeRecorder, webhooks: WebhookClient) -> None:
        super().__init__(parts)
        self._recorder = recorder
        self._webhooks = webhooks

    @reads
    def settings(self, connection: Connection, by: Access | None, account_id: str) -> NoticeSettings:
        return self._settings(connection, by, account_id)

    @writes
    def mute(self, connection: Connection, by: Access | None, account_id: str, kinds: Sequence[str]) -> NoticeSettings:
        if unknown := set(kinds) - set(KINDS):
            raise checks.refusal("muted_kinds", f"There is no such kind of notice: {min(unknown)[:50]!r}.")
        lock_account(connection, account_id)
        stored.set_muted_kinds(connection, account_id, kinds)
        settings = self._settings(connection, by, account_id)
        self._audit.append(connection, "notices.mail_changed", by, account_id=account_id, object_id=account_id)
        return settings

    @writes
    def set_own_mail(
        self, connection: Connection, by: Access | None, account_id: str, *, is_on: bool
    ) -> NoticeSettings:
        """Switches the mail of the calling owner on or off, for this account."""
        if by is None or by.user_id not in stored.owners_with_email(connection, account_id):
            message = "Only an owner of the account who has an address can switch their own mail on and off."
            raise LegatoError(Reason.REQUEST_INVALID, message)
        stored.set_mailed(connection, account_id, by.user_id, is_mailed=is_on)
        settings = self._settings(connection, by, account_id)
        self._audit.append(connection, "notices.own_mail_changed", by, account_id=account_id, object_id=by.user_id)
        return settings

    @writes
    def add_webhook(self, connection: Connection, by: Access | None, account_id: str, url: str) -> Webhook:
        """Adds a webhook, with a new secret."""
        webhook = Webhook(
            webhook_id=codes.mint_id("whk"),
            account_id=account_id,
            url=checked_url(url, allows_private=self._webhooks.allows_private),
            secret=SECRET_PREFIX + secrets.token_urlsafe(32),
            created_at_us=self.now_us(),
        )
        lock_account(connection, account_id)
        if len(stored.list_webhooks(connection, account_id)) >= WEBHOOKS_MOST:
            raise checks.refusal("url", f"An account can have at most {WEBHOOKS_MOST} webhooks. Remove one first.")
        stored.add_webhook(connection, webhook)
        self._audit.append(connection, "webhook.added", by, account_id=account_id, object_id=webhook.webhook_id)
        return webhook

    @writes
    def remove_webhook(self, connection: Connection, by: Access | None, account_id: str, webhook_id: str) -> None:
        if not stored.remove_webhook(connection, account_id, webhook_id):
            raise checks.not_found("webhook")
        self._audit.append(connection, "webhook.removed", by, account_id=account_id, object_id=webhook_id)

    @reads
    def list_newest(
        self, connection: Connection, account_id: str, page_size: int, *, only_failed: bool
    ) -> list[ShownNotice]:
        limit = page_size or PAGE_SIZE_DEFAULT
        if not 0 < limit <= PAGE_SIZE_MOST:
            raise checks.refusal("page_size", f"A page has at most {PAGE_SIZE_MOST} notices.")
        found = stored.list_notices(connection, account_id, limit, only_failed=only_failed)
        return _shown(connection, account_id, found)

    async def list_dead_letters(self) -> list[DeadLetters]:
        """Sums up what was given up in all accounts, by account and host, the latest attempt first."""
        found: dict[tuple[str, Channel, str], DeadLetters] = {}
        for account_id, name, channel, url, failure, count, at_us in await self._database.read(
            stored.list_dead_letters
        ):
            host = (urlsplit(url).hostname or "") if url else ""
            known = found.get((account_id, channel, host))
            if known is None:
                letters = DeadLetters(account_id, name, channel, host, count, failure, at_us)
            else:
                letters = replace(known, count=known.count + count)
            found[account_id, channel, host] = letters
        return list(found.values())[:DEAD_LETTERS_MOST]

    async def resend(self, account_id: str, delivery_id: str) -> None:
        """Has a delivery tried at once, also one that was given up."""
        now_us = self.now_us()

        def change(connection: Connection) -> None:
            _take(connection, f"notice resends {account_id}", RESENDS, now_us)
            if not stored.retry_now(connection, account_id, delivery_id, now_us):
                raise checks.not_found("delivery that is not done")

        await self._database.write(change)
        self._recorder.on_new()

    async def send_test(self, account_id: str) -> ShownNotice:
        now_us = self.now_us()
        notice = make_notice(codes.mint_id("ntc"), account_id, Kind.TEST, "", "", {}, now_us)

        def add(connection: Connection) -> ShownNotice:
            require_account(connection, account_id)
            _take(connection, f"test notices {account_id}", TESTS, now_us)
            self._recorder.record(connection, notice)
            return _shown(connection, account_id, stored.list_notices(connection, account_id, 1))[0]

        shown = await self._database.write(add)
        self._recorder.on_new()
        return shown

    def _settings(self, connection: Connection, by: Access | None, account_id: str) -> NoticeSettings:
        require_account(connection, account_id)
        owners = stored.owners_with_email(connection, account_id)
        return NoticeSettings(
            webhooks=stored.list_webhooks(connection, account_id),
            muted_kinds=stored.muted_kinds(connection, account_id),
            is_mail_offered=self._recorder.is_mail_offered,
            mail_recipients=sum(owners.values()),
            is_own_mail_on=owners.get(by.user_id) if by is not None else None,
        )


def _shown(
    connection: Connection, account_id: str, found: Sequence[tuple[OwnerNotice, Sequence[Delivery]]]
) -> list[ShownNotice]:
    """Names the recipients of deliveries: webhooks by their addresses, owners by their names."""
    mailed = [each.recipient_id for _, made in found for each in made if each.channel is Channel.MAIL]
    names = {each.webhook_id: each.url for each in stored.list_webhooks(connection, account_id)}
    names |= names_of(connection, mailed)
    return [
        ShownNotice(notice, [(each, names.get(each.recipient_id, "")) for each in deliveries])
        for notice, deliveries in found
    ]


def _take(connection: Connection, name: str, rate: Rate, now_us: int) -> None:
    if wait_ns := rate_limits.take(connection, name, rate, now_us * 1000):
        message = "That is too often. Please wait a little."
        raise LegatoError(Reason.RATE_LIMITED, message, retry_after_s=wait_ns / 1e9)
