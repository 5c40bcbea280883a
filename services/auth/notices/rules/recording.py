"""Records notices, and whom each is to be delivered to, in the transaction of what gives rise to them."""

from collections.abc import Callable
from typing import Final

from services.auth.core import codes
from services.auth.core.store import Connection, add
from services.auth.notices.records import Channel, Delivery, Kind, OwnerNotice
from services.auth.notices.store import notices as stored

OWNERS_MOST: Final = 20


class NoticeRecorder:
    def __init__(self, *, is_mail_offered: bool) -> None:
        self.is_mail_offered = is_mail_offered
        # Called after a notice was recorded, which may not be committed yet.
        self.on_new: Callable[[], None] = lambda: None

    def record(self, connection: Connection, notice: OwnerNotice) -> bool:
        """Adds a notice with its deliveries; False if it is there already: nothing is delivered twice for that."""
        if not stored.add_notice(connection, notice):
            return False
        recipients = [
            (Channel.WEBHOOK, webhook.webhook_id) for webhook in stored.list_webhooks(connection, notice.account_id)
        ]
        if self.is_mail_offered and self._is_mailed(connection, notice):
            owners = stored.owners_with_email(connection, notice.account_id)
            mailed_ids = [user_id for user_id, is_mailed in owners.items() if is_mailed]
            recipients += [(Channel.MAIL, user_id) for user_id in mailed_ids[:OWNERS_MOST]]
        for channel, recipient_id in recipients:
            delivery = Delivery(
                delivery_id=codes.mint_id("dlv"),
                notice_id=notice.notice_id,
                channel=channel,
                recipient_id=recipient_id,
                next_attempt_at_us=notice.created_at_us,
            )
            add(connection, delivery)
        self.on_new()
        return True

    def _is_mailed(self, connection: Connection, notice: OwnerNotice) -> bool:
        return notice.kind is Kind.TEST or notice.kind not in stored.muted_kinds(connection, notice.account_id)
