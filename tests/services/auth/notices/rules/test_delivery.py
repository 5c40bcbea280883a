"""Notices from where they arise to where they arrive: a real receiver, a real mail server, real databases."""

from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.auth.v1 import notices_pb2 as pb
from legato_protos.auth.v1 import notices_pb2_grpc as pb_grpc
from legato_protos.metering.v1 import outbox_pb2 as metering_pb
from services.auth.core.audit_log import AuditLog
from services.auth.notices.records import DeliveryState
from services.auth.notices.rules.delivery import ACCOUNT_AT_ONCE_MOST, AT_ONCE_MOST, LEASE_US, PAUSES_US
from services.auth.notices.rules.loop import KEPT_US
from services.auth.notices.rules.metering_outbox import take_over
from services.auth.notices.rules.recording import NoticeRecorder
from services.auth.notices.store.due_deliveries import claim_due
from services.auth.notices.store.tables import notice_deliveries, notices
from services.auth.service import AuthService
from services.chassis.database.database import Database
from tests.services.auth.console import EMAIL, Console
from tests.services.auth.notices.outbox import Outbox
from tests.services.auth.notices.receiver import Receiver
from tests.support.fakes import FakeClock
from tests.support.outside.mail_box import MailBox, text_of

pytestmark = pytest.mark.sqlite_suffices

FAILED, PENDING, DELIVERED = (
    pb.DELIVERY_STATE_FAILED,
    pb.DELIVERY_STATE_PENDING,
    pb.DELIVERY_STATE_DELIVERED,
)
DOLLAR = 1_000_000_000


class Owner:
    """The owner of an account, by the console's socket."""

    def __init__(self, console: Console, account_id: str, token: bytes | None) -> None:
        self.console = console
        self.stub: Any = pb_grpc.NoticeServiceStub(console.console_channel)
        self.account_id = account_id
        self.token = token

    def use_command_line(self) -> None:
        """Needs no token, which ends after a minute."""
        self.stub, self.token = pb_grpc.NoticeServiceStub(self.console.admin_channel), None

    async def call(self, method: str, **fields: Any) -> Any:
        request = getattr(pb, f"{method}Request")(account_id=self.account_id, **fields)
        return await self.console.call(getattr(self.stub, method), request, self.token)

    async def add_webhook(self, receiver: Receiver, path: str = "/hook") -> pb.Webhook:
        made = await self.call("AddWebhook", url=receiver.url + path)
        receiver.secrets[path] = made.secret
        return made.webhook  # type: ignore[no-any-return]

    async def deliveries(self) -> list[pb.NoticeDelivery]:
        [notice] = (await self.call("ListNotices")).notices
        return list(notice.deliveries)


def taken_by(auth: AuthService) -> tuple[NoticeRecorder, AuditLog, int]:
    return auth.notice_loop._recorder, auth.parts.audit, auth.sessions.now_us()


def low_balance(account_id: str, clock: FakeClock, notice_id: str = "ntc_low") -> metering_pb.PendingNotice:
    recorded = Timestamp()
    recorded.FromDatetime(clock.now())
    return metering_pb.PendingNotice(
        notice_id=notice_id,
        kind="balance.low",
        account_id=account_id,
        amount_nanos=DOLLAR // 2,
        threshold_nanos=DOLLAR,
        record_time=recorded,
    )


@pytest.fixture
async def owner(console: Console) -> Owner:
    account_id = await console.create_account()
    _, token = await console.signed_in(account_id)
    await console.create_user(account_id, email=EMAIL)
    return Owner(console, account_id, token)


async def test_a_low_balance_reaches_webhook_and_mail_once_whatever_is_lost(
    auth: AuthService, owner: Owner, receiver: Receiver, box: MailBox, clock: FakeClock, database: Database
) -> None:
    await owner.add_webhook(receiver)
    pending = [low_balance(owner.account_id, clock), low_balance("acct_unknown", clock, "ntc_other")]
    outbox: Any = Outbox(pending)
    outbox.loses_acknowledgements = True
    for _ in range(2):
        # As if this process ended before it could acknowledge.
        with pytest.raises(ConnectionError):
            await take_over(database, outbox, *taken_by(auth))
    outbox.loses_acknowledgements = False
    await take_over(database, outbox, *taken_by(auth))
    assert not outbox.pending.notices
    await auth.notice_loop.run_once()
    await auth.notice_loop.run_once()
    [body] = receiver.bodies
    assert body == {
        "id": "ntc_low",
        "kind": "balance.low",
        "created_at": clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        "account_id": owner.account_id,
        "key_id": None,
        "key_name": None,
        "summary": "The balance is $0.50, which is below $1.00.",
        "data": {
            "balance_usd": "0.50",
            "balance_nanos": DOLLAR // 2,
            "threshold_usd": "1.00",
            "threshold_nanos": DOLLAR,
        },
    }
    [message] = box.messages
    assert (message["To"], message["Subject"]) == (EMAIL, "The balance of Acme is low")
    assert "The balance is $0.50, which is below $1.00." in text_of(message)
    assert [delivery.state for delivery in await owner.deliveries()] == [DELIVERED, DELIVERED]


async def test_a_failing_webhook_is_tried_for_a_day_then_a_dead_letter_that_can_be_sent_again(
    auth: AuthService, owner: Owner, receiver: Receiver, clock: FakeClock, box: MailBox
) -> None:
    await owner.add_webhook(receiver)
    await owner.call("SetMutedKinds", muted_kinds=["balance.low"])
    owner.use_command_line()
    receiver.behaviours = [500] * (len(PAUSES_US) + 1)
    outbox: Any = Outbox([low_balance(owner.account_id, clock)])
    await take_over(auth._database, outbox, *taken_by(auth))
    began_s = clock.elapsed_s()
    for attempt, pause_us in enumerate(PAUSES_US, start=1):
        await auth.notice_loop.run_once()
        [delivery] = await owner.deliveries()
        assert (delivery.state, delivery.attempts, delivery.failure) == (PENDING, attempt, "HTTP 500")
        clock.advance(pause_us / 1e6 - 1)
        await auth.notice_loop.run_once()
        assert (await owner.deliveries())[0].attempts == attempt
        clock.advance(pause_us * 0.2 / 1e6 + 1)
    assert clock.elapsed_s() - began_s > 86_400
    await auth.notice_loop.run_once()
    [delivery] = await owner.deliveries()
    assert (delivery.state, delivery.attempts) == (FAILED, len(PAUSES_US) + 1)
    assert delivery.recipient == f"{receiver.url}/hook"
    assert auth.notice_loop.undelivered[DeliveryState.FAILED] == 1
    assert len((await owner.call("ListNotices", only_failed=True)).notices) == 1
    await owner.call("ResendNotice", delivery_id=delivery.delivery_id)
    await auth.notice_loop.run_once()
    assert [body["id"] for body in receiver.bodies] == ["ntc_low"]
    [delivery] = await owner.deliveries()
    assert (delivery.state, delivery.failure) == (DELIVERED, "")
    assert not (await owner.call("ListNotices", only_failed=True)).notices
    assert box.messages == []


async def test_what_a_process_had_begun_when_it_ended_is_delivered_by_another(
    auth: AuthService, owner: Owner, receiver: Receiver, clock: FakeClock, database: Database
) -> None:
    await owner.add_webhook(receiver)
    await owner.call("SendTestNotice")
    now_us = auth.sessions.now_us()
    with database.transaction(writes=True) as connection:
        claimed = claim_due(connection, now_us, now_us + LEASE_US, [], AT_ONCE_MOST, ACCOUNT_AT_ONCE_MOST)
        assert len(claimed) == 2
    await auth.notice_loop.run_once()
    assert receiver.bodies == []
    clock.advance(LEASE_US / 1e6)
    await auth.notice_loop.run_once()
    assert [body["kind"] for body in receiver.bodies] == ["test"]


async def test_mail_that_the_server_refuses_is_tried_again(
    auth: AuthService, owner: Owner, box: MailBox, clock: FakeClock
) -> None:
    box.refusals = 1
    await owner.call("SendTestNotice")
    await auth.notice_loop.run_once()
    [delivery] = await owner.deliveries()
    assert (delivery.state, delivery.channel, delivery.recipient) == (PENDING, "mail", "Ada")
    assert EMAIL not in delivery.failure
    clock.advance(60)
    await auth.notice_loop.run_once()
    assert [message["To"] for message in box.messages] == [EMAIL]


async def test_an_unexpected_error_is_a_failed_attempt_and_holds_up_no_other_delivery(
    auth: AuthService, owner: Owner, receiver: Receiver, box: MailBox, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await owner.add_webhook(receiver)
    await owner.call("SendTestNotice")
    owner.use_command_line()

    async def fail(*request: object) -> None:
        raise RuntimeError("canary")

    monkeypatch.setattr(auth.notice_delivery._webhooks, "send", fail)
    await auth.notice_loop.run_once()
    webhook, mail = await owner.deliveries()
    assert (webhook.state, webhook.failure) == (PENDING, "it could not be sent (RuntimeError)")
    assert mail.state == DELIVERED
    monkeypatch.undo()
    clock.advance(60)
    await auth.notice_loop.run_once()
    assert [delivery.state for delivery in await owner.deliveries()] == [DELIVERED, DELIVERED]


async def test_old_notices_are_forgotten(
    auth: AuthService, owner: Owner, clock: FakeClock, database: Database, receiver: Receiver
) -> None:
    await owner.add_webhook(receiver)
    await owner.call("SendTestNotice")
    clock.advance(KEPT_US / 1e6 + 1)
    await auth.notice_loop.run_once()
    with database.transaction(writes=False) as connection:
        assert connection.execute(sa.select(notices)).all() == []
        assert connection.execute(sa.select(notice_deliveries)).all() == []
