"""Spend limits on real databases and by real calls."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from legato_protos.metering.v1 import spend_limits_pb2 as pb
from legato_protos.metering.v1.spend_limits_pb2_grpc import SpendLimitServiceStub
from services.chassis.access_tokens import METADATA_KEY, Access, AccessTokenSigner, AccessTokenVerifier, AccountRole
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import NANOS_PER_DOLLAR
from services.chassis.rpc.access_check import AccessCheck
from services.chassis.rpc.channel import errors_of, open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit, find_violations_of
from services.metering.credit.batch import Writer
from services.metering.credit.ledger.spend import WHOLE_ACCOUNT, InheritSpendLimits, SetSpendLimits, SpendLimits
from services.metering.credit.prices import Prices
from services.metering.credit.records import DAY_US
from services.metering.credit.store.tables import account_changes, spends
from services.metering.limits.servicers.spend_limits import SpendLimitServicer
from tests.services.metering.samples import ACCOUNT, KEY, LIFE_S, ask, ask_each, grant, reserve, settle

# 100 chats of 10 nanos.
LIMIT_NANOS = 1_000


def limit(key: str, limits: SpendLimits) -> SetSpendLimits:
    return SetSpendLimits(ACCOUNT, key, limits)


async def chat(writer: Writer, number: int, key: str = KEY) -> int:
    """Returns what was charged; 0 if the limit refused it."""
    try:
        await ask(writer, reserve(number, output=1, key=key))
    except LegatoError as refused:
        if refused.reason is not Reason.SPEND_LIMIT_EXCEEDED:
            raise
        return 0
    # Three tokens, though one was held: some of it may be beyond the limit.
    return (await ask(writer, settle(number, completion=3))).charged_nanos


@pytest.mark.parametrize("whose", [KEY, WHOLE_ACCOUNT])
async def test_500_chats_at_once_on_two_replicas_never_spend_more_than_the_limit(
    database: Database, database_url: str, prices: Prices, writer: Writer, log: Log, whose: str
) -> None:
    await ask(writer, grant(1_000_000))
    await ask(writer, limit(whose, SpendLimits(day_nanos=LIMIT_NANOS)))
    other = Database(database_url, "metering")
    second = Writer(other, prices, LIFE_S, log)
    chats = [chat((writer, second)[number % 2], number) for number in range(500)]
    charged_nanos = await asyncio.gather(*chats)
    assert 0 < sum(charged_nanos) <= LIMIT_NANOS
    # What is left is spent to the last nano-dollar.
    for number in range(500, 500 + LIMIT_NANOS // 10):
        await chat(writer, number)
    with database.transaction(writes=False) as connection:
        [row] = connection.execute(sa.select(spends))
    assert (row.day_spent_nanos, row.held_nanos) == (LIMIT_NANOS, 0)
    assert await audit(database) == []
    await second.close()
    other.close()


async def test_500_chats_at_once_use_up_a_limit_of_one_dollar_and_not_a_nano_more(
    database: Database, database_url: str, prices: Prices, writer: Writer, log: Log
) -> None:
    """They come with a key and with the one that replaces it, half of them to another replica."""
    await ask(writer, grant(10 * NANOS_PER_DOLLAR))
    await ask(writer, limit(KEY, SpendLimits(total_nanos=NANOS_PER_DOLLAR)))
    await ask(writer, InheritSpendLimits(ACCOUNT, "key_new", SpendLimits(), replaced_key_id=KEY))
    other = Database(database_url, "metering")
    second = Writer(other, prices, LIFE_S, log)
    refusals: list[Reason] = []

    async def talk(number: int) -> int:
        asked, key = (writer, second)[number % 2], (KEY, "key_new")[number // 2 % 2]
        try:
            held_nanos = (await ask(asked, reserve(number, output=370_000, key=key))).held_nanos
        except LegatoError as refused:
            refusals.append(refused.reason)
            return 0
        return (await ask(asked, settle(number, completion=held_nanos // 10))).charged_nanos

    charged_nanos = await asyncio.gather(*(talk(number) for number in range(500)))
    # 270 whole chats for 0.0037 $ each, and one that gets the rest.
    assert sum(charged_nanos) == NANOS_PER_DOLLAR
    assert sorted(nanos for nanos in charged_nanos if nanos) == [1_000_000] + [3_700_000] * 270
    assert len(refusals) == 229
    assert set(refusals) <= {Reason.SPEND_LIMIT_EXCEEDED, Reason.SPEND_LIMIT_SPENT}
    assert await audit(database) == []
    await second.close()
    other.close()


async def test_a_new_day_starts_anew(database: Database, writer: Writer) -> None:
    await ask(writer, grant(1_000))
    await ask(writer, limit(KEY, SpendLimits(day_nanos=30, month_nanos=1_000)))
    assert [await chat(writer, number) for number in (1, 2)] == [30, 0]
    with database.transaction(writes=True) as connection:
        # As if it had been spent yesterday.
        connection.execute(sa.update(spends).values(day_us=spends.c.day_us - DAY_US))
    assert await chat(writer, 3) == 30


async def test_the_audit_finds_spending_that_was_not_counted(database: Database, writer: Writer) -> None:
    await ask(writer, grant(1_000))
    await ask(writer, limit(KEY, SpendLimits(day_nanos=100)))
    await chat(writer, 1)
    assert await audit(database) == []
    with database.transaction(writes=True) as connection:
        connection.execute(sa.update(spends).values(total_spent_nanos=spends.c.total_spent_nanos - 1))
    [violation] = await audit(database)
    assert violation == f"account {ACCOUNT}, key '{KEY}': what its spend limits count differs from its usage"


async def test_limits_are_set_and_listed_by_rpc(
    database: Database, writer: Writer, socket_folder: Path, log: Log
) -> None:
    await ask(writer, grant(1_000))
    await chat(writer, 1)
    listen = f"unix:{socket_folder}/limits.sock"
    server = RpcServer(listen, [SpendLimitServicer(database, writer, log)], log)
    await server.start()
    async with open_channel(listen) as channel:
        await channel.channel_ready()
        stub: Any = SpendLimitServiceStub(channel)
        wanted = pb.SpendLimits(day_nanos=50, total_nanos=500)
        request = pb.SetSpendLimitsRequest(account_id=ACCOUNT, key_id=KEY, limits=wanted)
        spend = (await stub.SetSpendLimits(request)).spend
        assert (spend.limits, spend.day_spent_nanos, spend.total_spent_nanos) == (wanted, 30, 30)
        assert spend.day_end_time.seconds % 86_400 == 0
        listed = await stub.ListSpendLimits(pb.ListSpendLimitsRequest(account_id=ACCOUNT))
        assert list(listed.spends) == [spend]
        assert not (await stub.ListSpendLimits(pb.ListSpendLimitsRequest(account_id="acct_other"))).spends
        share = pb.LimitKeyRequest(account_id=ACCOUNT, key_id="key_new", replaced_key_id="key_free")
        assert not (await stub.LimitKey(share)).HasField("spend")
        share.replaced_key_id = KEY
        for _ in range(2):
            inherited = (await stub.LimitKey(share)).spend
            assert (inherited.key_id, inherited.limits, inherited.total_spent_nanos) == ("key_new", wanted, 30)
        # What the new key spends counts for both.
        await ask_each(writer, reserve(2, key="key_new", output=1), settle(2, completion=1))
        listed = await stub.ListSpendLimits(pb.ListSpendLimitsRequest(account_id=ACCOUNT, key_ids=["key_new"]))
        assert [(each.key_id, each.total_spent_nanos) for each in listed.spends] == [("key_new", 40)]
        listed = await stub.ListSpendLimits(pb.ListSpendLimitsRequest(account_id=ACCOUNT))
        assert {each.key_id: each.total_spent_nanos for each in listed.spends} == {KEY: 40, "key_new": 40}
        assert await audit(database) == []
        assert await database.read(find_violations_of, ACCOUNT) == []
        for corrected in (1, 0):
            if corrected:
                with database.transaction(writes=True) as connection:
                    connection.execute(sa.update(spends).values(total_spent_nanos=7))
            recounted = await stub.RecountSpends(pb.RecountSpendsRequest())
            assert recounted == pb.RecountSpendsResponse(accounts=1, corrected_accounts=corrected)
        for wrong in (-1, 10**18):
            request.limits.day_nanos = wrong
            assert await _refused(stub, request) is Reason.REQUEST_INVALID
    await server.stop(1)


async def test_auth_limits_a_key_before_it_is_created_and_records_only_later_changes(
    database: Database, writer: Writer, socket_folder: Path, log: Log
) -> None:
    listen = f"unix:{socket_folder}/limits.sock"
    server = RpcServer(listen, [SpendLimitServicer(database, writer, log)], log)
    await server.start()
    await ask(writer, grant(1_000))
    await ask(writer, limit(WHOLE_ACCOUNT, SpendLimits(day_nanos=60)))

    def recorded() -> list[tuple[str, str]]:
        with database.transaction(writes=False) as connection:
            found = connection.execute(sa.select(account_changes).order_by(account_changes.c.recorded_at_us))
            return [(row.key_id, row.user_id) for row in found if row.key_id]

    async with open_channel(listen) as channel:
        stub: Any = SpendLimitServiceStub(channel)
        request = pb.LimitKeyRequest(account_id=ACCOUNT, key_id="key_new", limits=pb.SpendLimits(day_nanos=30))
        # Once more after an answer that was lost.
        for _ in range(2):
            assert (await stub.LimitKey(request)).spend.limits.day_nanos == 30
        assert recorded() == []
        assert [await chat(writer, number, "key_new") for number in (1, 2)] == [30, 0]
        request.limits.day_nanos = 61
        with pytest.raises(LegatoError) as refused, errors_of("Metering"):
            await stub.LimitKey(request)
        assert (refused.value.reason, refused.value.param) == (Reason.REQUEST_INVALID, "limits")
        request.limits.day_nanos = 40
        request.changed_by.user_id = "usr_ada"
        assert (await stub.LimitKey(request)).spend.day_spent_nanos == 30
        assert recorded() == [("key_new", "usr_ada")]
        assert await chat(writer, 3, "key_new") == 10
        shared = pb.LimitKeyRequest(account_id=ACCOUNT, key_id="key_next", replaced_key_id="key_new")
        assert (await stub.LimitKey(shared)).spend.limits.day_nanos == 40
        # What the one has spent, the other cannot spend again.
        assert await chat(writer, 4, "key_next") == 0
        assert recorded() == [("key_new", "usr_ada")]
    await server.stop(0)


async def test_a_console_limits_accounts_and_leaves_keys_to_auth(
    database: Database, writer: Writer, socket_folder: Path, log: Log
) -> None:
    listen, console = f"unix:{socket_folder}/limits.sock", f"unix:{socket_folder}/console.sock"
    signer = AccessTokenSigner("44" * 32)
    check = AccessCheck(AccessTokenVerifier(signer.public_key()), lambda: 1)
    servicers = [SpendLimitServicer(database, writer, log)]
    server = RpcServer(listen, servicers, log, access=check, console_listen=console, console_role="console")
    await server.start()
    owner = Access("usr_ada", "ses_one", ACCOUNT, AccountRole.OWNER, False, 1, 1_000_000)
    metadata: Any = ((METADATA_KEY, signer.sign(owner)),)

    async with open_channel(console) as channel:
        stub: Any = SpendLimitServiceStub(channel)
        wanted = pb.SetSpendLimitsRequest(account_id=ACCOUNT, key_id=KEY, limits=pb.SpendLimits(day_nanos=50))
        for method, request, reason in (
            (stub.SetSpendLimits, wanted, Reason.NOT_FOUND),
            (stub.LimitKey, pb.LimitKeyRequest(account_id=ACCOUNT, key_id=KEY), Reason.CALLER_NOT_ALLOWED),
        ):
            with pytest.raises(LegatoError) as refused, errors_of("Metering"):
                await method(request, metadata=metadata)
            assert refused.value.reason is reason
        wanted.key_id = ""
        await stub.SetSpendLimits(wanted, metadata=metadata)
        with database.transaction(writes=False) as connection:
            assert [row.key_id for row in connection.execute(sa.select(spends))] == [WHOLE_ACCOUNT]
    await server.stop(0)


async def _refused(stub: Any, request: pb.SetSpendLimitsRequest) -> Reason:
    with pytest.raises(LegatoError) as refused, errors_of("Metering"):
        await stub.SetSpendLimits(request)
    return refused.value.reason
