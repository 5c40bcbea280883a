"""Receivers that take notices and never answer: they hold up no others, and use up no attempts of theirs."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from services.auth.core.store import Connection
from services.auth.notices.records import Kind
from services.auth.notices.rules.delivery import ACCOUNT_AT_ONCE_MOST, AT_ONCE_MOST, LEASE_US
from services.auth.notices.rules.webhook_client import WebhookClient
from services.auth.notices.rules.words import make_notice
from services.auth.notices.store.due_deliveries import claim_due
from services.auth.service import AuthService
from services.chassis.database.database import Database
from tests.services.auth.console import Console
from tests.services.auth.notices.receiver import Receiver
from tests.services.auth.notices.rules.test_delivery import DELIVERED, Owner
from tests.support.waiting import until

pytestmark = pytest.mark.sqlite_suffices

SILENT_WEBHOOKS = 5


async def make_owner(console: Console) -> Owner:
    account_id = await console.create_account()
    _, token = await console.signed_in(account_id)
    return Owner(console, account_id, token)


async def record(auth: AuthService, owner: Owner, count: int) -> None:
    """Records notices, as those of keys."""

    def add(connection: Connection) -> None:
        for number in range(count):
            notice_id, now_us = f"ntc_{owner.account_id}_{number}", auth.sessions.now_us()
            data = {"network": "192.0.2.0/24"}
            notice = make_notice(notice_id, owner.account_id, Kind.KEY_NEW_NETWORK, "", "laptop", data, now_us)
            auth.notice_loop._recorder.record(connection, notice)

    await auth._database.write(add)


async def deliveries(owner: Owner) -> list[tuple[int, int]]:
    """Returns the state and the attempts of each."""
    shown = (await owner.call("ListNotices")).notices
    return [(each.state, each.attempts) for notice in shown for each in notice.deliveries]


@pytest.fixture
def webhook_client(tls: ssl.SSLContext) -> Iterator[WebhookClient]:
    """Waits for an answer for longer than any test."""
    client = WebhookClient(allows_private=True, tls=tls, timeout_s=600)
    yield client
    client.close()


@asynccontextmanager
async def delivering(auth: AuthService) -> AsyncIterator[None]:
    """Runs the loop as auth does; it looks again only when something is new."""
    running = asyncio.create_task(auth.notice_loop.run(interval_s=600))
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_silent_webhooks_of_two_accounts_hold_up_no_other_account(
    auth: AuthService, console: Console, receiver: Receiver
) -> None:
    silent = [await make_owner(console) for _ in range(2)]
    for number, owner in enumerate(silent):
        for webhook in range(SILENT_WEBHOOKS):
            path = f"/silent/{number}/{webhook}"
            receiver.silent_paths.add(path)
            await owner.add_webhook(receiver, path)
        await record(auth, owner, 10)
    other = await make_owner(console)
    await other.add_webhook(receiver, "/other")
    await record(auth, other, 1)
    async with delivering(auth):
        await until(lambda: len(receiver.bodies) == 1 and len(receiver.waiting_paths) == 2 * ACCOUNT_AT_ONCE_MOST)
        # Also one that comes while they wait.
        await other.call("SendTestNotice")
        await until(lambda: len(receiver.bodies) == 2)
        while (found := await deliveries(other)) != [(DELIVERED, 1)] * 2:
            assert {attempts for _, attempts in found} == {1}
    by_account = Counter(path.split("/")[2] for path in receiver.waiting_paths)
    assert by_account == {"0": ACCOUNT_AT_ONCE_MOST, "1": ACCOUNT_AT_ONCE_MOST}
    assert len(set(receiver.waiting_paths)) == len(receiver.waiting_paths), "a webhook has one at a time"


async def test_webhooks_that_answer_get_everything_at_the_first_attempt(
    auth: AuthService, console: Console, receiver: Receiver
) -> None:
    owners = [await make_owner(console) for _ in range(10)]
    for number, owner in enumerate(owners):
        await owner.add_webhook(receiver, f"/hook/{number}")
        await record(auth, owner, 5)
    await auth.notice_loop.run_once()
    assert len({body["id"] for body in receiver.bodies}) == len(receiver.bodies) == 50
    for owner in owners:
        assert await deliveries(owner) == [(DELIVERED, 1)] * 5


async def test_a_recipient_with_any_number_of_notices_does_not_hold_up_another(
    auth: AuthService, console: Console, receiver: Receiver, database: Database
) -> None:
    many, few = await make_owner(console), await make_owner(console)
    for owner, path, count in ((many, "/many", 450), (few, "/few", 1)):
        await owner.add_webhook(receiver, path)
        await record(auth, owner, count)
    now_us = auth.sessions.now_us()

    def claim(connection: Connection) -> list[str]:
        claimed = claim_due(connection, now_us, now_us + LEASE_US, [], AT_ONCE_MOST, ACCOUNT_AT_ONCE_MOST)
        return [notice.account_id for _, notice in claimed]

    assert sorted(await database.write(claim)) == sorted([many.account_id, few.account_id])
