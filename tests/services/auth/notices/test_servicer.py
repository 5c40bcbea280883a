# ruff: noqa: F811
from typing import Any

import pytest
import sqlalchemy as sa

from legato_protos.auth.v1 import notices_pb2 as pb
from legato_protos.auth.v1 import notices_pb2_grpc as pb_grpc
from services.auth.notices.rules.metering_outbox import take_over
from services.auth.notices.store.tables import notice_deliveries, webhooks
from services.auth.service import AuthService
from services.chassis.database.database import Database
from services.chassis.errors import Reason
from tests.services.auth.console import EMAIL
from tests.services.auth.notices.outbox import Outbox
from tests.services.auth.notices.receiver import Receiver
from tests.services.auth.notices.rules.test_delivery import Owner, low_balance, owner, taken_by  # noqa: F401
from tests.support.fakes import FakeClock
from tests.support.outside.mail_box import MailBox

pytestmark = pytest.mark.sqlite_suffices


async def test_webhooks_are_added_shown_and_removed_and_their_secrets_are_encrypted(
    owner: Owner, receiver: Receiver, database: Database
) -> None:
    webhook = await owner.add_webhook(receiver)
    settings = (await owner.call("GetNoticeSettings")).settings
    assert [each.url for each in settings.webhooks] == [webhook.url]
    assert (settings.is_mail_offered, settings.mail_recipients) == (True, 1)
    with database.transaction(writes=False) as connection:
        columns = [sa.type_coerce(column, sa.Text) for column in (webhooks.c.url, webhooks.c.secret)]
        [row] = connection.execute(sa.select(*columns))
        assert "127.0.0.1" not in row[0]
        assert "whsec" not in row[1]
    await owner.call("SendTestNotice")
    await owner.call("RemoveWebhook", webhook_id=webhook.webhook_id)
    [notice] = (await owner.call("ListNotices")).notices
    assert [delivery.channel for delivery in notice.deliveries] == ["mail"]
    assert (notice.summary, notice.sentence.id) == ("This is a test. Nothing has happened.", "notice_test")
    for _ in range(5):
        await owner.add_webhook(receiver)
    for url in (receiver.url, "gopher://example.ca"):
        request = pb.AddWebhookRequest(account_id=owner.account_id, url=url)
        assert await owner.console.reason(owner.stub.AddWebhook, request, owner.token) is Reason.REQUEST_INVALID
    unknown = pb.SetMutedKindsRequest(account_id=owner.account_id, muted_kinds=["nonsense"])
    assert await owner.console.reason(owner.stub.SetMutedKinds, unknown, owner.token) is Reason.REQUEST_INVALID


async def test_an_owner_who_wants_no_mail_gets_none_and_the_others_still_do(
    auth: AuthService, owner: Owner, box: MailBox, clock: FakeClock, database: Database
) -> None:
    console, account_id = owner.console, owner.account_id
    signed_in = await console.use_link((await console.create_user(account_id, email="grace@example.ca")).code)
    token = (await console.resolve(signed_in.session_token, account_id)).access_token
    grace = Owner(console, account_id, token)
    # A user without an address has nothing to switch off.
    refused = pb.SetOwnMailRequest(account_id=account_id)
    assert await console.reason(owner.stub.SetOwnMail, refused, owner.token) is Reason.REQUEST_INVALID
    assert (await owner.call("GetNoticeSettings")).settings.own_mail == pb.OWN_MAIL_UNSPECIFIED
    assert (await grace.call("GetNoticeSettings")).settings.own_mail == pb.OWN_MAIL_ON
    # What waits is not mailed either.
    await owner.call("SendTestNotice")
    settings = (await grace.call("SetOwnMail", is_on=False)).settings
    assert (settings.own_mail, settings.mail_recipients) == (pb.OWN_MAIL_OFF, 1)
    await take_over(database, Outbox([low_balance(account_id, clock)]), *taken_by(auth))  # type: ignore[arg-type]
    await auth.notice_loop.run_once()
    assert [message["To"] for message in box.messages] == [EMAIL] * 2
    assert (await grace.call("SetOwnMail", is_on=True)).settings.own_mail == pb.OWN_MAIL_ON
    await owner.call("SendTestNotice")
    await auth.notice_loop.run_once()
    assert sorted(message["To"] for message in box.messages[2:]) == [EMAIL, "grace@example.ca"]


async def test_operators_see_dead_letters_by_account_and_host_and_nothing_that_they_say(
    auth: AuthService, owner: Owner, receiver: Receiver, clock: FakeClock, database: Database
) -> None:
    await owner.add_webhook(receiver, "/a?secret=1")
    await owner.add_webhook(receiver, "/b")
    await owner.call("SendTestNotice")
    await owner.call("SendTestNotice")
    with database.transaction(writes=True) as connection:
        is_webhook = notice_deliveries.c.channel == "webhook"
        failed = {"state": "failed", "failure": "HTTP 503", "attempted_at_us": auth.sessions.now_us()}
        connection.execute(notice_deliveries.update().where(is_webhook).values(failed))
    admin: Any = pb_grpc.NoticeServiceStub(owner.console.admin_channel)
    [letters] = (await owner.console.call(admin.ListDeadLetters, pb.ListDeadLettersRequest())).dead_letters
    assert (letters.account_id, letters.account_name) == (owner.account_id, "Acme")
    assert (letters.channel, letters.host, letters.count) == ("webhook", "127.0.0.1", 4)
    assert letters.last_failure == "HTTP 503"
    assert letters.last_attempt_time.ToMicroseconds() == auth.sessions.now_us()
    # An owner is no operator.
    listing = pb.ListDeadLettersRequest()
    reason = await owner.console.reason(owner.stub.ListDeadLetters, listing, owner.token)
    assert reason is Reason.CALLER_NOT_ALLOWED


async def test_another_account_sees_and_sends_nothing(owner: Owner, receiver: Receiver) -> None:
    webhook = await owner.add_webhook(receiver)
    await owner.call("SendTestNotice")
    [delivery, _] = await owner.deliveries()
    console = owner.console
    account_id = await console.create_account()
    _, token = await console.signed_in(account_id)
    other = Owner(console, account_id, token)
    assert not (await other.call("ListNotices")).notices
    calls = [
        (other.stub.ResendNotice, pb.ResendNoticeRequest(account_id=account_id, delivery_id=delivery.delivery_id)),
        (other.stub.RemoveWebhook, pb.RemoveWebhookRequest(account_id=account_id, webhook_id=webhook.webhook_id)),
    ]
    for method, request in calls:
        assert await console.reason(method, request, token) is Reason.NOT_FOUND
    foreign = pb.ListNoticesRequest(account_id=owner.account_id)
    assert await console.reason(other.stub.ListNotices, foreign, token) is Reason.ROLE_MISSING


async def test_tests_are_limited(owner: Owner) -> None:
    request = pb.SendTestNoticeRequest(account_id=owner.account_id)
    reasons = [await owner.console.reason(owner.stub.SendTestNotice, request, owner.token) for _ in range(11)]
    assert reasons == [None] * 10 + [Reason.RATE_LIMITED]
