"""Implements the RPCs of NoticeService. A console's token was compared with the request's account before."""

from typing import Final

from protos.auth.v1 import notices_pb2 as pb
from protos.auth.v1 import notices_pb2_grpc as pb_grpc
from services.auth import checks
from services.auth.notices.service import Notices, NoticeSettings, ShownNotice
from services.auth.records.notices import KINDS, Delivery, DeliveryState
from services.chassis.access_tokens import current_access
from services.chassis.rpc.messages import to_message, to_timestamp
from services.chassis.rpc.server import Context

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
        return pb.AddWebhookResponse(webhook=to_message(pb.Webhook, webhook), secret=webhook.secret)

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
        return pb.ListDeadLettersResponse(dead_letters=[to_message(pb.DeadLetters, letters) for letters in found])


def _account(account_id: str) -> str:
    return checks.id_of("account", account_id)


def _to_settings(settings: NoticeSettings) -> pb.NoticeSettings:
    return to_message(
        pb.NoticeSettings,
        settings,
        muted_kinds=sorted(settings.muted_kinds),
        kinds=[kind.value for kind in KINDS],
        own_mail=_OWN_MAIL[settings.is_own_mail_on],
    )


def _to_notice(shown: ShownNotice) -> pb.Notice:
    deliveries = [_to_delivery(delivery, recipient) for delivery, recipient in shown.deliveries]
    return to_message(pb.Notice, shown.notice, deliveries=deliveries)


def _to_delivery(delivery: Delivery, recipient: str) -> pb.NoticeDelivery:
    is_pending = delivery.state is DeliveryState.PENDING
    next_attempt_time = to_timestamp(delivery.next_attempt_at_us) if is_pending else None
    return to_message(pb.NoticeDelivery, delivery, recipient=recipient, next_attempt_time=next_attempt_time)
