"""Credit that operators book in their console, at a real server on its socket."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.metering.v1.metering_pb2_grpc import CreditAdminServiceStub
from services.chassis.access_tokens import METADATA_KEY, Access, AccessTokenSigner, AccessTokenVerifier, AccountRole
from services.chassis.database.database import Database
from services.chassis.rpc.access_check import AccessCheck
from services.chassis.rpc.channel import open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.metering.credit.batch import Writer
from services.metering.servicers.credit_admin import CreditAdminServicer
from tests.services.metering.samples import ACCOUNT

pytestmark = pytest.mark.sqlite_suffices

SIGNER = AccessTokenSigner("66" * 32)


@pytest.fixture
async def operators_admin(database: Database, writer: Writer, socket_folder: Path, log: Log) -> AsyncIterator[Any]:
    listen = f"unix:{socket_folder}/metering-console.sock"
    server = RpcServer(
        f"unix:{socket_folder}/metering.sock",
        [CreditAdminServicer(database, writer)],
        log,
        access=AccessCheck(AccessTokenVerifier(SIGNER.public_key()), lambda: 0),
        console_listen=listen,
        console_role="operator-console",
    )
    await server.start()
    async with open_channel(listen) as channel:
        await channel.channel_ready()
        yield CreditAdminServiceStub(channel)
    await server.stop(1)


def by(user_id: str) -> Any:
    access = Access(user_id, "ses_a", "", AccountRole.NONE, True, 1, 60_000_000)
    return ((METADATA_KEY, SIGNER.sign(access)),)


async def test_a_form_that_is_sent_twice_books_once_and_the_ledger_tells_by_whom(operators_admin: Any) -> None:
    grant = pb.GrantCreditsRequest(operation_id="0af3", account_id=ACCOUNT, amount_nanos=1_000)
    adjustment = pb.AdjustCreditsRequest(operation_id="0af4", account_id=ACCOUNT, amount_nanos=-250, reason="refund")
    for _ in range(2):
        booked = await operators_admin.GrantCredits(grant, metadata=by("user_a"))
        assert booked.balance.balance_nanos == 1_000
    for _ in range(2):
        booked = await operators_admin.AdjustCredits(adjustment, metadata=by("user_a"))
        assert booked.balance.balance_nanos == 750
    listed = await operators_admin.ListCredits(pb.ListCreditsRequest(account_id=ACCOUNT), metadata=by("user_a"))
    assert [entry.booking_id for entry in listed.entries] == ["user_a-0af3", "user_a-0af4"]
    assert (await operators_admin.Audit(pb.AuditRequest(), metadata=by("user_a"))).violations == []


async def test_no_operator_books_in_the_name_of_another(operators_admin: Any) -> None:
    grant = pb.GrantCreditsRequest(operation_id="user_b-0af3", account_id=ACCOUNT, amount_nanos=1_000)
    await operators_admin.GrantCredits(grant, metadata=by("user_a"))
    listed = await operators_admin.ListCredits(pb.ListCreditsRequest(account_id=ACCOUNT), metadata=by("user_a"))
    assert [entry.booking_id for entry in listed.entries] == ["user_a-user_b-0af3"]
