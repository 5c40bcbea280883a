"""Statements at a real server, on the socket of a console: with a user's token, for the user's account only."""

import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import sqlalchemy as sa
from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.metering.v1 import metering_pb2, statements_pb2
from legato_protos.metering.v1.metering_pb2_grpc import CreditAdminServiceStub
from legato_protos.metering.v1.statements_pb2_grpc import StatementServiceStub
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.access_tokens import METADATA_KEY, Access, AccessTokenSigner, AccessTokenVerifier, AccountRole
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import AccessCheck
from services.chassis.rpc.channel import errors_of, open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.metering.credit.batch import Writer
from services.metering.servicers.credit_admin import CreditAdminServicer
from services.metering.statements.servicer import StatementServicer
from tests.services.metering.audit.test_auditor import unguard
from tests.services.metering.samples import ACCOUNT, ask_each, grant, request_id, reserve, settle, void

pytestmark = pytest.mark.sqlite_suffices

OTHER = "acct_bbbbbbbbbbbbbbbb"
SIGNER = AccessTokenSigner("1f" * 32)
METHODS: dict[str, Any] = {
    "ListLedgerEntries": statements_pb2.ListLedgerEntriesRequest,
    "ListLedgerDays": partial(statements_pb2.ListLedgerDaysRequest, start_time=Timestamp(), end_time=Timestamp()),
    "ListRequests": statements_pb2.ListRequestsRequest,
    "AuditAccount": statements_pb2.AuditAccountRequest,
}


@pytest.fixture
async def channel(database: Database, writer: Writer, socket_folder: Path, log: Log) -> AsyncIterator[grpc.aio.Channel]:
    check = AccessCheck(AccessTokenVerifier(SIGNER.public_key()), lambda: time.time_ns() // 1000)
    servicers = [
        StatementServicer(database),
        CreditAdminServicer(database, writer),
    ]
    listen, console = (f"unix:{socket_folder}/{name}.sock" for name in ("metering", "console"))
    server = RpcServer(listen, servicers, log, access=check, console_listen=console)
    await server.start()
    async with open_channel(console) as channel:
        await channel.channel_ready()
        yield channel
    await server.stop(1)


def token_for(account_id: str, role: AccountRole = AccountRole.VIEWER, *, operator: bool = False) -> Any:
    now_us = time.time_ns() // 1000
    access = Access("user_1", "session_1", account_id, role, operator, now_us, now_us + 60_000_000)
    return [(METADATA_KEY, SIGNER.sign(access))]


async def refusal_of(method: Any, request: Any, metadata: Any = ()) -> Reason:
    with pytest.raises(LegatoError) as refusal, errors_of("Metering"):
        await method(request, metadata=metadata)
    return refusal.value.reason


async def test_owner_reads_entries_receipts_and_prices(channel: grpc.aio.Channel, writer: Writer) -> None:
    await ask_each(writer, grant(1_000), reserve(1), settle(1, prompt=5, cached=2, completion=3), reserve(2), void(3))
    stub: Any = StatementServiceStub(channel)
    token = token_for(ACCOUNT)
    page = await stub.ListLedgerEntries(
        statements_pb2.ListLedgerEntriesRequest(account_id=ACCOUNT, newest_first=True, page_size=1), metadata=token
    )
    [charge] = page.entries
    # 3 tokens at 2 nanos, 2 cached ones at 1, and 3 of output at 10.
    assert (charge.kind, charge.amount_nanos, charge.balance_nanos) == (
        statements_pb2.LEDGER_ENTRY_KIND_CHARGE, -38, 962,
    )  # fmt: skip
    assert charge.reference_id == request_id(1)
    assert charge.usage == Usage(prompt_tokens=5, cached_tokens=2, completion_tokens=3)
    request = statements_pb2.ListLedgerEntriesRequest(
        account_id=ACCOUNT, newest_first=True, page_token=page.next_page_token
    )
    [granted] = (await stub.ListLedgerEntries(request, metadata=token)).entries
    assert (granted.kind, granted.balance_nanos) == (statements_pb2.LEDGER_ENTRY_KIND_GRANT, 1_000)
    assert not granted.HasField("usage")
    found = await stub.ListRequests(statements_pb2.ListRequestsRequest(account_id=ACCOUNT), metadata=token)
    assert [receipt.request_id for receipt in found.running] == [request_id(2)]
    [receipt] = found.requests
    assert (receipt.cost_nanos, receipt.charged_nanos, receipt.price.output_nanos_per_million) == (38, 38, 10_000_000)
    assert receipt.basis == metering_pb2.BASIS_PROVIDER
    by_id = statements_pb2.ListRequestsRequest(account_id=ACCOUNT, request_id=request_id(3))
    [uncharged] = (await stub.ListRequests(by_id, metadata=token)).requests
    assert (uncharged.state, uncharged.end) == (metering_pb2.REQUEST_STATE_VOID, metering_pb2.END_REFUSED)
    [version] = (await stub.ListPrices(statements_pb2.ListPricesRequest(), metadata=token)).versions
    assert {priced.class_id for priced in version.prices} == {"forte", "mezzo"}
    credits: Any = CreditAdminServiceStub(channel)
    listed = await credits.ListCredits(metering_pb2.ListCreditsRequest(account_id=ACCOUNT), metadata=token)
    assert [entry.balance_nanos for entry in listed.entries] == [1_000, 962]


@pytest.mark.parametrize("method", METHODS)
async def test_token_of_another_account_is_refused(channel: grpc.aio.Channel, method: str) -> None:
    call, request = getattr(StatementServiceStub(channel), method), METHODS[method](account_id=ACCOUNT)
    assert await refusal_of(call, request) is Reason.ACCESS_TOKEN_INVALID
    assert await refusal_of(call, request, token_for(OTHER, AccountRole.OWNER)) is Reason.ROLE_MISSING
    assert await refusal_of(call, request, token_for(ACCOUNT, AccountRole.NONE)) is Reason.ROLE_MISSING
    # Operators have a console of their own.
    assert await refusal_of(call, request, token_for("", AccountRole.NONE, operator=True)) is Reason.ROLE_MISSING
    await call(request, metadata=token_for(ACCOUNT))


async def test_audit_of_an_account_finds_what_is_wrong_with_it_and_nothing_of_another(
    channel: grpc.aio.Channel, database: Database, writer: Writer
) -> None:
    await ask_each(writer, grant(1_000), reserve(1), settle(1, completion=3))
    await ask_each(writer, grant(500, account=OTHER, grant_id="other"))
    stub: Any = StatementServiceStub(channel)

    async def audit(account_id: str) -> Any:
        request = statements_pb2.AuditAccountRequest(account_id=account_id)
        return await stub.AuditAccount(request, metadata=token_for(account_id))

    sound = await audit(ACCOUNT)
    assert (sound.violations, sound.entries, sound.balance_nanos) == ([], 2, 970)
    unguard(database)
    with database.transaction(writes=True) as connection:
        connection.execute(
            sa.text("UPDATE accounts SET balance_nanos = balance_nanos + 1 WHERE account_id = :id"), {"id": ACCOUNT}
        )
    assert list((await audit(ACCOUNT)).violations) == [
        f"account {ACCOUNT}: balance is +1 nanos off the sum of its ledger"
    ]
    assert list((await audit(OTHER)).violations) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"page_token": "AAAA"},
        {"page_token": "MSAy"},
        {"page_size": -1},
        {"account_id": "not an id"},
    ],
)
async def test_mistakes_are_named(channel: grpc.aio.Channel, wrong: dict[str, Any]) -> None:
    stub: Any = StatementServiceStub(channel)
    [param] = wrong
    for method in ("ListLedgerEntries", "ListRequests"):
        request = METHODS[method](**({"account_id": ACCOUNT} | wrong))
        with pytest.raises(LegatoError) as refusal, errors_of("Metering"):
            await getattr(stub, method)(request, metadata=token_for(request.account_id))
        assert (refusal.value.reason, refusal.value.param) == (Reason.REQUEST_INVALID, param)


async def test_period_that_ends_before_it_starts_is_refused(channel: grpc.aio.Channel) -> None:
    request = statements_pb2.ListLedgerEntriesRequest(account_id=ACCOUNT)
    request.start_time.FromSeconds(20)
    request.end_time.FromSeconds(10)
    call: Any = StatementServiceStub(channel).ListLedgerEntries
    assert await refusal_of(call, request, token_for(ACCOUNT)) is Reason.REQUEST_INVALID
