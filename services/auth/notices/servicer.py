"""Implements the RPCs of NoticeService, for owners: their webhooks, the kinds that are mailed, the list of notices,
sending again, and a test. A console's token was compared with the request's account before."""

import secrets
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from legato_protos.auth.v1 import notices_pb2 as pb
from legato_protos.auth.v1 import notices_pb2_grpc as pb_grpc
from services.auth.core import checks, codes
from services.auth.core.parts import Domain, Parts, reads, writes
from services.auth.core.store import Connection, add
from services.auth.core.store.accounts import lock_account, require_account
from services.auth.core.store.users import names_of
from services.auth.notices.records import KINDS, Channel, Delivery, DeliveryState, Kind, OwnerNotice, Webhook
from services.auth.notices.rules.recording import NoticeRecorder
from services.auth.notices.rules.webhook_client import WebhookClient, checked_url
from services.auth.notices.rules.words import make_notice, sentence_of
from services.auth.notices.store import notices as stored
from services.auth.sign_in.store import rate_limits
from services.chassis.access_tokens import Access, current_access
from services.chassis.changes import Settings, changes_between
from services.chassis.errors import LegatoError, Reason
from services.chassis.load.gcra import Rate
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message, to_timestamp
from services.chassis.sentence import Sentence
from services.chassis.sentence_messages import to_sentence_message

WEBHOOKS_MOST: Final = 5
PAGE_SIZE_DEFAULT: Final = 50
PAGE_SIZE_MOST: Final = 100
DEAD_LETTERS_MOST: Final = 200
SECRET_PREFIX: Final = "whsec_"  # noqa: S105
# Per account: none makes us send more than a few requests and mails.
TESTS: Final = Rate(per_minute=1, burst=10)
RESENDS: Final = Rate(per_minute=6, burst=60)

# None: the caller is no owner, or has no address.
_OWN_MAIL: Final = {None: pb.OWN_MAIL_UNSPECIFIED, True: pb.OWN_MAIL_ON, False: pb.OWN_MAIL_OFF}


class NoticeServicer(Domain, pb_grpc.NoticeServiceServicer):
    def __init__(self, parts: Parts, recorder: NoticeRecorder, webhooks: WebhookClient) -> None:
        super().__init__(parts)
        self._recorder = recorder
        self._webhooks = webhooks

    @reads
    def GetNoticeSettings(
        self, connection: Connection, request: pb.GetNoticeSettingsRequest, context: Context
    ) -> pb.GetNoticeSettingsResponse:
        settings = self._settings(connection, current_access.get(), _account(request.account_id))
        return pb.GetNoticeSettingsResponse(settings=settings)

    @writes
    def SetMutedKinds(
        self, connection: Connection, request: pb.SetMutedKindsRequest, context: Context
    ) -> pb.SetMutedKindsResponse:
        by, account_id = current_access.get(), _account(request.account_id)
        if unknown := set(request.muted_kinds) - set(KINDS):
            raise checks.refusal("muted_kinds", Sentence("notice_kind_unknown", kind=repr(min(unknown)[:50])))
        lock_account(connection, account_id)
        before, after = stored.muted_kinds(connection, account_id), set(request.muted_kinds)
        stored.set_muted_kinds(connection, account_id, after)
        settings = self._settings(connection, by, account_id)
        changes = [{"muted_kinds": tuple(sorted(kinds))} for kinds in (before, after)]
        self._append(connection, "notices.mail_changed", by, account_id, account_id, *changes)
        return pb.SetMutedKindsResponse(settings=settings)

    @writes
    def SetOwnMail(
        self, connection: Connection, request: pb.SetOwnMailRequest, context: Context
    ) -> pb.SetOwnMailResponse:
        """Switches the mail of the calling owner on or off, for this account."""
        by, account_id = current_access.get(), _account(request.account_id)
        before = stored.owners_with_email(connection, account_id)
        if by is None or by.user_id not in before:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("own_mail_not_owner"))
        stored.set_mailed(connection, account_id, by.user_id, is_mailed=request.is_on)
        settings = self._settings(connection, by, account_id)
        changes = {"own_mail": before[by.user_id]}, {"own_mail": request.is_on}
        self._append(connection, "notices.own_mail_changed", by, account_id, by.user_id, *changes)
        return pb.SetOwnMailResponse(settings=settings)

    @writes
    def AddWebhook(
        self, connection: Connection, request: pb.AddWebhookRequest, context: Context
    ) -> pb.AddWebhookResponse:
        """Adds a webhook, with a new secret."""
        by, account_id = current_access.get(), _account(request.account_id)
        webhook = Webhook(
            webhook_id=codes.mint_id("whk"),
            account_id=account_id,
            url=checked_url(request.url, allows_private=self._webhooks.allows_private),
            secret=SECRET_PREFIX + secrets.token_urlsafe(32),
            created_at_us=self.now_us(),
        )
        lock_account(connection, account_id)
        if len(stored.list_webhooks(connection, account_id)) >= WEBHOOKS_MOST:
            raise checks.refusal("url", Sentence("webhooks_most", most=WEBHOOKS_MOST))
        add(connection, webhook)
        self._append(connection, "webhook.added", by, account_id, webhook.webhook_id, {}, _host(webhook))
        return pb.AddWebhookResponse(webhook=to_message(pb.Webhook, webhook), secret=webhook.secret)

    @writes
    def RemoveWebhook(
        self, connection: Connection, request: pb.RemoveWebhookRequest, context: Context
    ) -> pb.RemoveWebhookResponse:
        webhook_id, account_id = checks.id_of("webhook", request.webhook_id), _account(request.account_id)
        by = current_access.get()
        webhooks = stored.list_webhooks(connection, account_id)
        webhook = next((each for each in webhooks if each.webhook_id == webhook_id), None)
        if webhook is None or not stored.remove_webhook(connection, account_id, webhook_id):
            raise checks.not_found("webhook")
        self._append(connection, "webhook.removed", by, account_id, webhook_id, _host(webhook), {})
        return pb.RemoveWebhookResponse()

    @reads
    def ListNotices(
        self, connection: Connection, request: pb.ListNoticesRequest, context: Context
    ) -> pb.ListNoticesResponse:
        account_id, limit = _account(request.account_id), request.page_size or PAGE_SIZE_DEFAULT
        if not 0 < limit <= PAGE_SIZE_MOST:
            raise checks.refusal("page_size", Sentence("notices_page_most", most=PAGE_SIZE_MOST))
        found = stored.list_notices(connection, account_id, limit, only_failed=request.only_failed)
        return pb.ListNoticesResponse(notices=_to_notices(connection, account_id, found))

    @reads
    def ListDeadLetters(
        self, connection: Connection, request: pb.ListDeadLettersRequest, context: Context
    ) -> pb.ListDeadLettersResponse:
        """Sums up what was given up in all accounts, by account and host, the latest attempt first."""
        found: dict[tuple[str, Channel, str], pb.DeadLetters] = {}
        for account_id, name, channel, url, failure, count, at_us in stored.list_dead_letters(connection):
            host = urlsplit(url).hostname or ""
            latest = pb.DeadLetters(
                account_id=account_id,
                account_name=name,
                channel=channel,
                host=host,
                last_failure=failure,
                last_attempt_time=to_timestamp(at_us),
            )
            found.setdefault((account_id, channel, host), latest).count += count
        return pb.ListDeadLettersResponse(dead_letters=list(found.values())[:DEAD_LETTERS_MOST])

    async def ResendNotice(self, request: pb.ResendNoticeRequest, context: Context) -> pb.ResendNoticeResponse:
        """Has a delivery tried at once, also one that was given up."""
        delivery_id, account_id = checks.id_of("delivery", request.delivery_id), _account(request.account_id)
        now_us = self.now_us()

        def change(connection: Connection) -> None:
            _take(connection, f"notice resends {account_id}", RESENDS, now_us)
            if not stored.retry_now(connection, account_id, delivery_id, now_us):
                raise checks.not_found("delivery that is not done")

        await self._database.write(change)
        self._recorder.on_new()
        return pb.ResendNoticeResponse()

    async def SendTestNotice(self, request: pb.SendTestNoticeRequest, context: Context) -> pb.SendTestNoticeResponse:
        account_id, now_us = _account(request.account_id), self.now_us()
        notice = make_notice(codes.mint_id("ntc"), account_id, Kind.TEST, "", "", {}, now_us)

        def give(connection: Connection) -> pb.Notice:
            require_account(connection, account_id)
            _take(connection, f"test notices {account_id}", TESTS, now_us)
            self._recorder.record(connection, notice)
            return _to_notices(connection, account_id, stored.list_notices(connection, account_id, 1))[0]

        shown = await self._database.write(give)
        self._recorder.on_new()
        return pb.SendTestNoticeResponse(notice=shown)

    def _settings(self, connection: Connection, by: Access | None, account_id: str) -> pb.NoticeSettings:
        require_account(connection, account_id)
        owners = stored.owners_with_email(connection, account_id)
        return pb.NoticeSettings(
            webhooks=[to_message(pb.Webhook, each) for each in stored.list_webhooks(connection, account_id)],
            muted_kinds=sorted(stored.muted_kinds(connection, account_id)),
            is_mail_offered=self._recorder.is_mail_offered,
            mail_recipients=sum(owners.values()),
            kinds=KINDS,
            own_mail=_OWN_MAIL[owners.get(by.user_id) if by is not None else None],
        )

    def _append(
        self,
        connection: Connection,
        action: str,
        by: Access | None,
        account_id: str,
        object_id: str,
        before: Settings,
        after: Settings,
    ) -> None:
        changes = changes_between(before, after)
        self._audit.append(connection, action, by, account_id=account_id, object_id=object_id, changes=changes)


def _host(webhook: Webhook) -> Settings:
    # The path of an address may be a secret.
    return {"webhook_host": urlsplit(webhook.url).hostname}


def _account(account_id: str) -> str:
    return checks.id_of("account", account_id)


def _to_notices(
    connection: Connection, account_id: str, found: Sequence[tuple[OwnerNotice, Sequence[Delivery]]]
) -> list[pb.Notice]:
    """Names the recipients of deliveries: webhooks by their addresses, owners by their names."""
    mailed = [each.recipient_id for _, made in found for each in made if each.channel is Channel.MAIL]
    names = {each.webhook_id: each.url for each in stored.list_webhooks(connection, account_id)}
    names |= names_of(connection, mailed)

    def to_delivery(delivery: Delivery) -> pb.NoticeDelivery:
        is_pending = delivery.state is DeliveryState.PENDING
        next_attempt_time = to_timestamp(delivery.next_attempt_at_us) if is_pending else None
        recipient = names.get(delivery.recipient_id, "")
        return to_message(pb.NoticeDelivery, delivery, recipient=recipient, next_attempt_time=next_attempt_time)

    return [
        to_message(
            pb.Notice,
            notice,
            deliveries=map(to_delivery, made),
            sentence=to_sentence_message(sentence_of(notice)) if notice.body else None,
        )
        for notice, made in found
    ]


def _take(connection: Connection, name: str, rate: Rate, now_us: int) -> None:
    if wait_ns := rate_limits.take(connection, name, rate, now_us * 1000):
        raise LegatoError(Reason.RATE_LIMITED, Sentence("too_often"), retry_after_s=wait_ns / 1e9)
