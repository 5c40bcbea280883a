"""Spend limits on real databases and by real calls."""

import asyncio
from dataclasses import replace
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
from services.metering.credit.store.tables import spends
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
        inherit = pb.InheritSpendLimitsRequest(account_id=ACCOUNT, key_id="key_new", replaced_key_id="key_free")
        assert not (await stub.InheritSpendLimits(inherit)).HasField("spend")
        inherit.replaced_key_id = KEY
        for _ in range(2):
            inherited = (await stub.InheritSpendLimits(inherit)).spend
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


async def test_only_a_key_that_auth_names_in_the_token_is_limited(
    database: Database, writer: Writer, socket_folder: Path, log: Log
) -> None:
    await ask(writer, limit(KEY, SpendLimits(day_nanos=50)))
    listen, console = f"unix:{socket_folder}/limits.sock", f"unix:{socket_folder}/console.sock"
    signer = AccessTokenSigner("44" * 32)
    check = AccessCheck(AccessTokenVerifier(signer.public_key()), lambda: 1)
    servicers = [SpendLimitServicer(database, writer, log)]
    server = RpcServer(listen, servicers, log, access=check, console_listen=console, console_role="console")
    await server.start()
    owner = Access("usr_ada", "ses_one", ACCOUNT, AccountRole.OWNER, False, 1, 1_000_000)

    def named(key_id: str = "", replaced_key_id: str = "") -> Any:
        return ((METADATA_KEY, signer.sign(replace(owner, key_id=key_id, replaced_key_id=replaced_key_id))),)

    def rows() -> list[str]:
        with database.transaction(writes=False) as connection:
            return sorted(row.key_id for row in connection.execute(sa.select(spends)))

    async with open_channel(console) as channel:
        stub: Any = SpendLimitServiceStub(channel)
        limits = pb.SpendLimits(day_nanos=50)
        wanted = pb.SetSpendLimitsRequest(account_id=ACCOUNT, key_id="key_new", limits=limits)
        inherit = pb.InheritSpendLimitsRequest(account_id=ACCOUNT, key_id="key_new", replaced_key_id=KEY)
        first = pb.SetFirstSpendLimitsRequest(account_id=ACCOUNT, key_id="key_new", limits=limits)
        for method, request, metadata in (
            (stub.SetSpendLimits, wanted, named()),
            (stub.SetSpendLimits, wanted, named(KEY)),
            # The token names what it was made for; the key that this one replaces is not it.
            (stub.SetSpendLimits, wanted, named(KEY, "key_new")),
            (stub.SetFirstSpendLimits, first, named(KEY)),
            (stub.InheritSpendLimits, inherit, named()),
            (stub.InheritSpendLimits, inherit, named("key_new")),
            (stub.InheritSpendLimits, inherit, named("key_new", "key_other")),
            (stub.InheritSpendLimits, inherit, named(KEY, "key_new")),
        ):
            with pytest.raises(LegatoError) as refused, errors_of("Metering"):
                await method(request, metadata=metadata)
            assert refused.value.reason is Reason.NOT_FOUND
        assert rows() == [KEY]
        await stub.InheritSpendLimits(inherit, metadata=named("key_new", KEY))
        wanted.key_id = "key_third"
        await stub.SetSpendLimits(wanted, metadata=named("key_third"))
        # Members create keys, and may limit those that have no limits yet.
        owner = replace(owner, role=AccountRole.MEMBER)
        for key_id, day_nanos in (("key_fourth", 20), ("key_third", 50)):
            first = pb.SetFirstSpendLimitsRequest(
                account_id=ACCOUNT, key_id=key_id, limits=pb.SpendLimits(day_nanos=20)
            )
            set_first = await stub.SetFirstSpendLimits(first, metadata=named(key_id))
            assert set_first.spend.limits.day_nanos == day_nanos
        owner = replace(owner, role=AccountRole.OWNER)
        # The account as a whole is the token's own.
        await stub.SetSpendLimits(pb.SetSpendLimitsRequest(account_id=ACCOUNT, limits=limits), metadata=named())
        assert set(rows()) - {"key_new"} == {"key_third", "key_fourth", KEY, WHOLE_ACCOUNT}
    await server.stop(0)


async def _refused(stub: Any, request: pb.SetSpendLimitsRequest) -> Reason:
    with pytest.raises(LegatoError) as refused, errors_of("Metering"):
        await stub.SetSpendLimits(request)
    return refused.value.reason
