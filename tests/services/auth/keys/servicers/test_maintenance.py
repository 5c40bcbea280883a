"""Maintenance: what is kept of it, and whom it is told."""

from typing import Any

import pytest

from legato_protos.auth.v1 import auth_pb2 as pb
from services.auth.core.checks import MESSAGE_LENGTH_MOST
from services.auth.core.parts import HOLDS_EVERYWHERE_AFTER_S
from services.auth.core.peppers import Peppers
from services.auth.keys.store.epochs import read_maintenance
from services.auth.service import AuthService
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import errors_of
from services.chassis.telemetry.log import Log
from tests.services.auth.client import AuthClient, ping
from tests.services.auth.conftest import FakeSleep
from tests.support.fakes import FakeClock

MESSAGE = "Back at noon."


async def start(client: AuthClient, message: str = MESSAGE, retry_after_s: int = 0) -> pb.Maintenance:
    request = pb.StartMaintenanceRequest(message=message, retry_after_s=retry_after_s)
    with errors_of("auth"):
        return (await client.maintenance.StartMaintenance(request)).maintenance


async def end(client: AuthClient) -> pb.Maintenance:
    return (await client.maintenance.EndMaintenance(pb.EndMaintenanceRequest())).maintenance


async def current(client: AuthClient) -> pb.Maintenance:
    return (await client.maintenance.GetMaintenance(pb.GetMaintenanceRequest())).maintenance


async def test_there_is_none_until_it_is_started_and_after_it_has_ended(client: AuthClient, clock: FakeClock) -> None:
    assert await current(client) == pb.Maintenance()
    started = await start(client, f" {MESSAGE} ", 300)
    assert (started.is_on, started.message, started.retry_after_s) == (True, MESSAGE, 300)
    assert started.start_time.ToMicroseconds() == round(clock.now().timestamp() * 1e6)
    assert await current(client) == started
    assert await end(client) == await current(client) == pb.Maintenance()


async def test_both_return_when_it_holds_everywhere(client: AuthClient, sleep: FakeSleep) -> None:
    await start(client)
    await start(client)
    await end(client)
    assert sleep.waits_s == [HOLDS_EVERYWHERE_AFTER_S] * 3


async def test_another_message_takes_the_place_of_the_first_and_the_time_stays(
    client: AuthClient, clock: FakeClock
) -> None:
    first = await start(client)
    clock.advance(60.0)
    second = await start(client, "Back at one.")
    assert (second.message, second.start_time) == ("Back at one.", first.start_time)


async def test_it_outlives_auth(
    client: AuthClient, database: Database, peppers: Peppers, clock: FakeClock, log: Log
) -> None:
    started = await start(client)
    again = AuthService(database, peppers, clock, log)
    await again.record_peppers()
    kept = await database.read(read_maintenance)
    assert kept is not None
    assert (kept.message, kept.retry_after_s) == (started.message, started.retry_after_s)


async def test_every_heartbeat_tells_of_it_and_no_key_is_forgotten_for_it(client: AuthClient) -> None:
    call = client.watch()
    quiet = await ping(call, 1, epoch=0)
    assert quiet.HasField("maintenance")
    assert not quiet.maintenance.is_on
    started = await start(client)
    first = await ping(call, 2, epoch=quiet.epoch)
    assert first.epoch > quiet.epoch
    assert (first.maintenance, list(first.changed_key_ids), first.forget_all) == (started, [], False)
    # Also callers that know the epoch, or have a gap.
    assert (await ping(call, 3, epoch=first.epoch)).maintenance == started
    assert (await ping(call, 4, epoch=0)).maintenance == started
    await end(client)
    ended = await ping(call, 5, epoch=first.epoch)
    assert ended.epoch > first.epoch
    assert not ended.maintenance.is_on
    call.cancel()


async def test_a_caller_that_verifies_a_key_is_told_as_well(client: AuthClient) -> None:
    account = await client.create_account()
    created = await client.create_key(account.account_id)
    verified = await client.verify(created.api_key)
    assert verified.HasField("maintenance")
    assert not verified.maintenance.is_on
    started = await start(client)
    assert (await client.verify(created.api_key)).maintenance == started


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"message": ""}, "message"),
        ({"message": "  "}, "message"),
        ({"message": "x" * (MESSAGE_LENGTH_MOST + 1)}, "message"),
        *(({"message": f"two{separator}lines"}, "message") for separator in "\n\r\x1b\u2028"),
        ({"message": MESSAGE, "retry_after_s": -1}, "retry_after_s"),
        ({"message": MESSAGE, "retry_after_s": 86_401}, "retry_after_s"),
    ],
)
async def test_what_cannot_be_told_to_clients_is_refused(
    client: AuthClient, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(LegatoError) as refusal:
        await start(client, **fields)
    assert (refusal.value.reason, refusal.value.param) == (Reason.REQUEST_INVALID, param)
    assert not (await current(client)).is_on


async def test_message_is_never_logged(client: AuthClient, log_stream: Any) -> None:
    await start(client, "Ask Ann, 555-0100.")
    assert "maintenance.started" in log_stream.getvalue()
    assert "Ann" not in log_stream.getvalue()
