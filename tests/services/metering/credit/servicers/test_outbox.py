"""Changes of an account, which metering keeps for the audit log until auth has them."""

from pathlib import Path
from typing import Any, cast

import pytest

from legato_protos.metering.v1 import notices_pb2, spend_limits_pb2
from legato_protos.metering.v1 import outbox_pb2 as pb
from legato_protos.metering.v1.metering_pb2 import AdjustCreditsRequest, GrantCreditsRequest
from legato_protos.metering.v1.notices_pb2_grpc import NoticeThresholdServiceStub
from legato_protos.metering.v1.outbox_pb2_grpc import OutboxServiceStub
from legato_protos.metering.v1.spend_limits_pb2_grpc import SpendLimitServiceStub
from services.chassis.access_tokens import METADATA_KEY, Access, AccessTokenSigner, AccessTokenVerifier, AccountRole
from services.chassis.changes import Change, from_json, to_changes
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from services.chassis.rpc.access_check import AccessCheck
from services.chassis.rpc.channel import errors_of, open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.metering.credit.batch import Writer
from services.metering.credit.ledger.notices import NoticeRules
from services.metering.credit.ledger.spend import WHOLE_ACCOUNT, InheritSpendLimits, SetSpendLimits, SpendLimits
from services.metering.credit.records import ChangedBy
from services.metering.credit.servicers.notices import NoticeThresholdServicer
from services.metering.credit.servicers.outbox import OutboxServicer
from services.metering.credit.store.accounts import set_threshold
from services.metering.credit.store.outbox import list_pending_changes
from services.metering.limits.servicers.spend_limits import SpendLimitServicer
from services.metering.servicers.credit_admin import CreditAdminServicer
from tests.services.metering.samples import ACCOUNT, KEY, ask, grant

pytestmark = pytest.mark.sqlite_suffices

ADA = ChangedBy("usr_ada", "ses_one")


async def changes(database: Database) -> list[tuple[str, str, str]]:
    """Returns what was changed, of which key, and by whom."""
    found = await database.read(list_pending_changes, most=100)
    assert all(change.account_id == ACCOUNT and change.recorded_at_us for _, change in found)
    assert len({change_id for change_id, _ in found}) == len(found)
    return [(change.action, change.key_id, change.user_id) for _, change in found]


def limit(key: str, nanos: int | None, by: ChangedBy = ADA) -> SetSpendLimits:
    return SetSpendLimits(ACCOUNT, key, SpendLimits(day_nanos=nanos), changed_by=by)


async def test_each_change_of_a_limit_is_recorded_with_its_author_and_a_repeat_is_none(
    database: Database, writer: Writer
) -> None:
    await ask(writer, grant(1_000))
    for _ in range(2):
        await ask(writer, limit(WHOLE_ACCOUNT, 100))
    await ask(writer, limit(KEY, 50))
    await ask(writer, limit(KEY, None, ChangedBy("", "")))
    assert await changes(database) == [
        ("spend_limits.changed", WHOLE_ACCOUNT, "usr_ada"),
        ("spend_limits.changed", KEY, "usr_ada"),
        ("spend_limits.changed", KEY, ""),
    ]
    found = await database.read(list_pending_changes, most=100)
    assert [from_json(change.changes) for _, change in found] == [
        (Change("spend_day_nanos", None, 100),),
        (Change("spend_day_nanos", None, 50),),
        (Change("spend_day_nanos", 50, None),),
    ]


async def test_a_key_that_inherits_limits_is_recorded_once(database: Database, writer: Writer) -> None:
    await ask(writer, limit(KEY, 50))
    for _ in range(2):
        await ask(writer, InheritSpendLimits(ACCOUNT, "key_new", SpendLimits(), replaced_key_id=KEY, changed_by=ADA))
    assert [key for _, key, _ in await changes(database)] == [KEY, "key_new"]


async def test_what_is_refused_or_not_committed_is_not_recorded(
    database: Database, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(writer, limit(WHOLE_ACCOUNT, 100))
    with pytest.raises(LegatoError):
        await ask(writer, limit(KEY, 200))

    def fail(step: str, operations: Any) -> None:
        if step == "written":
            raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr("services.metering.credit.store.batches.reach", fail)
        with pytest.raises(LegatoError):
            await ask(writer, limit(KEY, 50))
    assert len(await changes(database)) == 1


async def test_a_new_threshold_is_recorded_and_the_same_again_is_not(database: Database) -> None:
    for nanos in (7, 7, None, None):
        await database.write(set_threshold, account_id=ACCOUNT, low_balance_nanos=nanos, changed_by=ADA)
    assert await changes(database) == [("low_balance.changed", "", "usr_ada")] * 2


async def test_the_author_is_whom_the_access_token_names_and_auth_takes_the_changes_over(
    database: Database, writer: Writer, socket_folder: Path, log: Log
) -> None:
    signer = AccessTokenSigner("44" * 32)
    access = Access("usr_ada", "ses_one", ACCOUNT, AccountRole.OWNER, False, 1, 1_000_000)
    metadata = ((METADATA_KEY, signer.sign(access)),)
    listen, console = f"unix:{socket_folder}/metering.sock", f"unix:{socket_folder}/console.sock"
    servicers = [
        SpendLimitServicer(database, writer, log),
        NoticeThresholdServicer(database, NoticeRules()),
        OutboxServicer(database),
    ]
    check = AccessCheck(AccessTokenVerifier(signer.public_key()), lambda: 1)
    server = RpcServer(listen, servicers, log, access=check, console_listen=console, console_role="console")
    await server.start()
    async with open_channel(listen) as owner, open_channel(console) as by_console:
        limits: Any = SpendLimitServiceStub(by_console)
        request = spend_limits_pb2.SetSpendLimitsRequest(
            account_id=ACCOUNT, limits=spend_limits_pb2.SpendLimits(day_nanos=5)
        )
        await limits.SetSpendLimits(request, metadata=metadata)
        # The command line has no token.
        by_command_line: Any = NoticeThresholdServiceStub(owner)
        await by_command_line.SetLowBalance(notices_pb2.SetLowBalanceRequest(account_id=ACCOUNT, threshold_nanos=7))
        refused: Any = OutboxServiceStub(by_console)
        with pytest.raises(LegatoError), errors_of("Metering"):
            await refused.ListPending(pb.ListPendingRequest(), metadata=metadata)
        outbox: Any = OutboxServiceStub(owner)
        first, second = (await outbox.ListPending(pb.ListPendingRequest())).changes
        assert (first.action, first.account_id, first.key_id) == ("spend_limits.changed", ACCOUNT, "")
        assert (first.user_id, first.session_id) == ADA
        assert first.record_time.seconds
        assert (second.action, second.key_id, second.user_id) == ("low_balance.changed", "", "")
        assert to_changes(first.changes) == [Change("spend_day_nanos", None, 5)]
        assert to_changes(second.changes) == [Change("low_balance_nanos", None, 7)]
        for _ in range(2):
            await outbox.Acknowledge(pb.AcknowledgeRequest(change_ids=[first.change_id]))
        assert (await outbox.ListPending(pb.ListPendingRequest())).changes == [second]
    await server.stop(1)


async def test_credit_that_the_command_line_books_is_told_to_the_audit_log_once(
    database: Database, writer: Writer
) -> None:
    servicer, context = CreditAdminServicer(database, writer), cast(Any, None)
    for _ in range(2):
        await servicer.GrantCredits(
            GrantCreditsRequest(operation_id="one", account_id=ACCOUNT, amount_nanos=7), context
        )
    adjustment = AdjustCreditsRequest(operation_id="two", account_id=ACCOUNT, amount_nanos=-3, reason="A test")
    await servicer.AdjustCredits(adjustment, context)
    told = (await OutboxServicer(database).ListPending(pb.ListPendingRequest(), context)).changes
    assert [(each.action, each.account_id, each.user_id) for each in told] == [
        ("credit.granted", ACCOUNT, ""),
        ("credit.adjusted", ACCOUNT, ""),
    ]
    assert [to_changes(each.changes) for each in told] == [
        [Change("amount_nanos", None, 7)],
        [Change("amount_nanos", None, -3)],
    ]
