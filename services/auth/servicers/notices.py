"""Implements the RPCs of NoticeService. A console's token was compared with the request's account before."""

from typing import Any, Final

import grpc.aio

from protos.auth.v1 import notices_pb2 as pb
from protos.auth.v1 import notices_pb2_grpc as pb_grpc
from services.auth import checks
from services.auth.notices.service import Notices, NoticeSettings, ShownNotice
from services.auth.records.notices import KINDS, DeadLetters, Delivery, DeliveryState, Webhook
from services.auth.servicers.users import to_timestamp
from services.chassis.access_tokens import current_access

Context = grpc.aio.ServicerContext[Any, Any]

_STATES: Final = {
    DeliveryState.PENDING: pb.DELIVERY_STATE_PENDING,
    DeliveryState.DELIVERED: pb.DELIVERY_STATE_DELIVERED,
    DeliveryState.FAILED: pb.DELIVERY_STATE_FAILED,
}

_OWN_MAIL: Final = {None: pb.OWN_MAIL_UNSPECIFIED, True: pb.OWN_MAIL_ON, False: pb.OWN_MAIL_OFF}


class NoticeServicer(pb_grpc.NoticeServiceServicer):
    def __init__(self, notices: Notices) -> None:
        self._notices = notices

    async def GetNoticeSettings(
        self, request: pb.GetNoticeSettingsRequest, context: Context
    ) -> pb.GetNoticeSettingsResponse:
        settings = await self._notices.settings(current_access.get(), _account(request.account_id))
        return pb.GetNoticeSettingsResponse(settings=_to_settings(settings))

    async def SetMutedKinds(self, request: pb.SetMutedKindsRequest, context: Context) -> pb.SetMutedKindsResponse:
        account_id = _account(request.account_id)
        settings = await self._notices.mute(current_access.get(), account_id, request.muted_kinds)
        return pb.SetMutedKindsResponse(settings=_to_settings(settings))

    async def SetOwnMail(self, request: pb.SetOwnMailRequest, context: Context) -> pb.SetOwnMailResponse:
        account_id = _account(request.account_id)
        settings = await self._notices.set_own_mail(current_access.get(), account_id, is_on=request.is_on)
        return pb.SetOwnMailResponse(settings=_to_settings(settings))

    async def AddWebhook(self, request: pb.AddWebhookRequest, context: Context) -> pb.AddWebhookResponse:
        webhook = await self._notices.add_webhook(current_access.get(), _account(request.account_id), request.url)
        return pb.AddWebhookResponse(webhook=_to_webhook(webhook), secret=webhook.secret)

    async def RemoveWebhook(self, request: pb.RemoveWebhookRequest, context: Context) -> pb.RemoveWebhookResponse:
        webhook_id = checks.id_of("webhook", request.webhook_id)
        await self._notices.remove_webhook(current_access.get(), _account(request.account_id), webhook_id)
        return pb.RemoveWebhookResponse()

    async def ListNotices(self, request: pb.ListNoticesRequest, context: Context) -> pb.ListNoticesResponse:
        account_id = _account(request.account_id)
        found = await self._notices.list_newest(account_id, request.page_size, only_failed=request.only_failed)
        return pb.ListNoticesResponse(notices=map(_to_notice, found))

    async def ResendNotice(self, request: pb.ResendNoticeRequest, context: Context) -> pb.ResendNoticeResponse:
        delivery_id = checks.id_of("delivery", request.delivery_id)
        await self._notices.resend(_account(request.account_id), delivery_id)
        return pb.ResendNoticeResponse()

    async def SendTestNotice(self, request: pb.SendTestNoticeRequest, context: Context) -> pb.SendTestNoticeResponse:
        shown = await self._notices.send_test(_account(request.account_id))
        return pb.SendTestNoticeResponse(notice=_to_notice(shown))

    async def ListDeadLetters(self, request: pb.ListDeadLettersRequest, context: Context) -> pb.ListDeadLettersResponse:
        found = await self._notices.list_dead_letters()
        return pb.ListDeadLettersResponse(dead_letters=map(_to_dead_letters, found))


def _account(account_id: str) -> str:
    return checks.id_of("account", account_id)


def _to_settings(settings: NoticeSettings) -> pb.NoticeSettings:
    return pb.NoticeSettings(
        webhooks=map(_to_webhook, settings.webhooks),
        muted_kinds=sorted(settings.muted_kinds),
        is_mail_offered=settings.is_mail_offered,
        mail_recipients=settings.mail_recipients,
        kinds=[kind.value for kind in KINDS],
        own_mail=_OWN_MAIL[settings.is_own_mail_on],
    )


def _to_webhook(webhook: Webhook) -> pb.Webhook:
    return pb.Webhook(webhook_id=webhook.webhook_id, url=webhook.url, create_time=to_timestamp(webhook.created_at_us))


def _to_notice(shown: ShownNotice) -> pb.Notice:
    notice = shown.notice
    return pb.Notice(
        notice_id=notice.notice_id,
        kind=notice.kind,
        account_id=notice.account_id,
        key_id=notice.key_id,
        summary=notice.summary,
        create_time=to_timestamp(notice.created_at_us),
        deliveries=[_to_delivery(delivery, recipient) for delivery, recipient in shown.deliveries],
    )


def _to_dead_letters(letters: DeadLetters) -> pb.DeadLetters:
    return pb.DeadLetters(
        account_id=letters.account_id,
        account_name=letters.account_name,
        channel=letters.channel,
        host=letters.host,
        count=letters.count,
        last_failure=letters.last_failure,
        last_attempt_time=to_timestamp(letters.last_attempt_at_us),
    )


def _to_delivery(delivery: Delivery, recipient: str) -> pb.NoticeDelivery:
    is_pending = delivery.state is DeliveryState.PENDING
    return pb.NoticeDelivery(
        delivery_id=delivery.delivery_id,
        channel=delivery.channel,
        recipient=recipient,
        state=_STATES[delivery.state],
        attempts=delivery.attempts,
        failure=delivery.failure,
        attempt_time=to_timestamp(delivery.attempted_at_us),
        next_attempt_time=to_timestamp(delivery.next_attempt_at_us) if is_pending else None,
    )
