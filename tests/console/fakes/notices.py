"""What the console asks auth and metering about notices."""

from typing import Any

from protos.auth.v1 import notices_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from tests.console.clock import ago, hence
from tests.console.metering import DOLLAR, Metering

WEBHOOK_URL = "https://hooks.example.ca/legato?team=billing"
WEBHOOK_SECRET = "whsec_0123456789abcdefghijklmnopqrstuvwxyzABCDEF"
KINDS = ("balance.low", "spend_limit.near", "spend_limit.reached", "key.expires_soon", "key.new_network")


class NoticeFakes:
    """A part of `Fakes`, which asks for recent proof."""

    metering: Metering

    def require_recent(self) -> None:
        raise NotImplementedError

    def reset_notices(self) -> None:
        self.notice_settings = pb.NoticeSettings(kinds=KINDS)
        self.notices: list[pb.Notice] = []
        self.dead_letters: list[pb.DeadLetters] = []

    def fill_notices(self) -> None:
        """Gives the account a webhook, mail, and notices in every state."""
        webhook = pb.Webhook(webhook_id="whk_0000000000000001", url=WEBHOOK_URL, create_time=ago(days=40))
        self.notice_settings.webhooks.append(webhook)
        self.notice_settings.is_mail_offered, self.notice_settings.mail_recipients = True, 2
        self.notice_settings.own_mail = pb.OWN_MAIL_ON
        self.notice_settings.muted_kinds.append("spend_limit.near")
        self.metering.change("UPDATE accounts SET low_balance_nanos = :nanos", nanos=25 * DOLLAR)
        told = (
            (
                "key.new_network",
                "The key Website chat was used from 203.0.113.0/24, where it had not been used before.",
            ),
            (
                "spend_limit.reached",
                "The key Nightly report has reached its daily spend limit of $5.00: requests are refused.",
            ),
            ("balance.low", "The balance is $24.87, which is below $25.00."),
        )
        states = (pb.DELIVERY_STATE_PENDING, pb.DELIVERY_STATE_FAILED, pb.DELIVERY_STATE_DELIVERED)
        for number, ((kind, summary), state) in enumerate(zip(told, states, strict=True), start=1):
            is_done = state == pb.DELIVERY_STATE_DELIVERED
            by_webhook = pb.NoticeDelivery(
                delivery_id=f"dlv_{number}a",
                channel="webhook",
                recipient=WEBHOOK_URL,
                state=state,
                attempts=1 if is_done else 3 * number,
                failure="" if is_done else "HTTP 503",
                attempt_time=ago(hours=number),
                next_attempt_time=hence(days=1) if state == pb.DELIVERY_STATE_PENDING else None,
            )
            by_mail = pb.NoticeDelivery(
                delivery_id=f"dlv_{number}b",
                channel="mail",
                recipient="Ada Lovelace",
                state=pb.DELIVERY_STATE_DELIVERED,
                attempts=1,
            )
            self.notices.append(
                pb.Notice(
                    notice_id=f"ntc_{number}",
                    kind=kind,
                    summary=summary,
                    create_time=ago(days=number),
                    deliveries=[by_webhook, by_mail],
                )
            )
        self.notices.append(
            pb.Notice(
                notice_id="ntc_9",
                kind="key.expires_soon",
                summary="The key Trial expires soon.",
                create_time=ago(days=60),
            )
        )

    def GetNoticeSettings(self, request: Any) -> Any:
        return pb.GetNoticeSettingsResponse(settings=self.notice_settings)

    def SetMutedKinds(self, request: Any) -> Any:
        del self.notice_settings.muted_kinds[:]
        self.notice_settings.muted_kinds.extend(request.muted_kinds)
        return pb.SetMutedKindsResponse(settings=self.notice_settings)

    def SetOwnMail(self, request: Any) -> Any:
        self.notice_settings.own_mail = pb.OWN_MAIL_ON if request.is_on else pb.OWN_MAIL_OFF
        return pb.SetOwnMailResponse(settings=self.notice_settings)

    def AddWebhook(self, request: Any) -> Any:
        self.require_recent()
        if not request.url.startswith("https://"):
            raise LegatoError(Reason.REQUEST_INVALID, "A webhook's address must start with https://.", param="url")
        webhook = pb.Webhook(webhook_id="whk_0000000000000002", url=request.url, create_time=ago())
        self.notice_settings.webhooks.append(webhook)
        return pb.AddWebhookResponse(webhook=webhook, secret=WEBHOOK_SECRET)

    def RemoveWebhook(self, request: Any) -> Any:
        kept = [each for each in self.notice_settings.webhooks if each.webhook_id != request.webhook_id]
        if len(kept) == len(self.notice_settings.webhooks):
            raise LegatoError(Reason.NOT_FOUND, "There is no such webhook.")
        del self.notice_settings.webhooks[:]
        self.notice_settings.webhooks.extend(kept)
        return pb.RemoveWebhookResponse()

    def ListNotices(self, request: Any) -> Any:
        failed = pb.DELIVERY_STATE_FAILED
        found = [
            notice
            for notice in self.notices
            if not request.only_failed or any(delivery.state == failed for delivery in notice.deliveries)
        ]
        return pb.ListNoticesResponse(notices=found)

    def fill_dead_letters(self) -> None:
        account = {"account_id": "acct_0000000000000001", "account_name": "Analytical Engines"}
        self.dead_letters = [
            pb.DeadLetters(
                **account, channel="webhook", host="hooks.example.ca", count=12, last_failure="HTTP 503",
                last_attempt_time=ago(hours=2),
            ),
            pb.DeadLetters(
                **account, channel="mail", count=1, last_failure="the owner has no address",
                last_attempt_time=ago(days=3),
            ),
        ]  # fmt: skip

    def ListDeadLetters(self, request: Any) -> Any:
        return pb.ListDeadLettersResponse(dead_letters=self.dead_letters)

    def ResendNotice(self, request: Any) -> Any:
        for notice in self.notices:
            for delivery in notice.deliveries:
                if delivery.delivery_id == request.delivery_id:
                    delivery.state = pb.DELIVERY_STATE_DELIVERED
                    delivery.failure = ""
                    return pb.ResendNoticeResponse()
        raise LegatoError(Reason.NOT_FOUND, "There is no such delivery that is not done.")

    def SendTestNotice(self, request: Any) -> Any:
        summary = "This is a test. Nothing has happened."
        self.notices.insert(0, pb.Notice(notice_id="ntc_t", kind="test", summary=summary, create_time=ago()))
        return pb.SendTestNoticeResponse(notice=self.notices[0])
