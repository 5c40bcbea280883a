"""Keys whose spend limits metering sets before the keys are there."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from legato_protos.auth.v1 import auth_pb2 as pb
from legato_protos.metering.v1.spend_limits_pb2 import (
    ChangedBy,
    LimitKeyRequest,
    LimitKeyResponse,
    Spend,
    SpendLimits,
)
from services.auth.core.peppers import Peppers
from services.auth.core.records.audit import AuditEvent
from services.auth.core.store.tables import audit_events
from services.auth.service import AuthService
from services.chassis.access_tokens import Access, AccountRole
from services.chassis.database.database import Database
from services.chassis.database.records import find_all
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from tests.services.auth.conftest import FakeSleep
from tests.services.auth.console import call_directly
from tests.support.fakes import FakeClock

LIMITS = SpendLimits(day_nanos=5, total_nanos=70)


class Metering:
    """Keeps limits by key, as metering does, and does `meanwhile` before it answers."""

    def __init__(self) -> None:
        self.limits: dict[str, SpendLimits] = {}
        self.requests: list[LimitKeyRequest] = []
        self.refusal: LegatoError | None = None
        self.meanwhile: Any = None

    async def LimitKey(self, request: LimitKeyRequest, timeout: float) -> LimitKeyResponse:
        self.requests.append(request)
        if self.meanwhile is not None:
            await self.meanwhile(request)
        if self.refusal is not None:
            raise self.refusal
        replaced = request.replaced_key_id
        if replaced and replaced not in self.limits:
            return LimitKeyResponse()
        self.limits[request.key_id] = limits = self.limits[replaced] if replaced else request.limits
        return LimitKeyResponse(spend=Spend(key_id=request.key_id, limits=limits))


@pytest.fixture
def metering() -> Metering:
    return Metering()


@pytest.fixture
def auth(
    database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep, metering: Metering
) -> AuthService:
    return AuthService(database, peppers, clock, log, sleep, spend_limits=metering)  # type: ignore[arg-type]


async def make_account(auth: AuthService) -> str:
    made = await call_directly(auth, pb.CreateAccountRequest(name="Acme"))
    return str(made.account.account_id)


async def keys_of(auth: AuthService, account_id: str) -> list[str]:
    listed = await call_directly(auth, pb.ListKeysRequest(account_id=account_id))
    return [key.key_id for key in listed.keys]


def spending_in_events(database: Database, key_id: str) -> list[tuple[str, dict[str, Any]]]:
    """Returns the events of a key, each with the spend limits that it tells."""
    with database.transaction(writes=False) as connection:
        query = sa.select(audit_events).where(audit_events.c.object_id == key_id).order_by(audit_events.c.event_no)
        found = find_all(connection, AuditEvent, query)
    return [
        (event.action, {each.field: each.after for each in event.changes or () if each.field.startswith("spend_")})
        for event in found
    ]


async def test_a_key_is_limited_before_it_is_there(auth: AuthService, metering: Metering, database: Database) -> None:
    account_id = await make_account(auth)

    async def look(request: LimitKeyRequest) -> None:
        assert await keys_of(auth, account_id) == []

    metering.meanwhile = look
    made = await call_directly(auth, pb.CreateKeyRequest(account_id=account_id, spend_limits=LIMITS))
    assert metering.limits == {made.key.key_id: LIMITS}
    assert (made.spend_limits, made.api_key[:10]) == (LIMITS, "sk-legato-")
    told = {"spend_day_nanos": 5, "spend_total_nanos": 70}
    assert spending_in_events(database, made.key.key_id) == [("key.created", told)]
    # Metering records none of it again.
    assert not any(request.HasField("changed_by") for request in metering.requests)


async def test_there_is_no_key_where_metering_refuses_or_does_not_answer(auth: AuthService, metering: Metering) -> None:
    account_id = await make_account(auth)
    create = pb.CreateKeyRequest(account_id=account_id, spend_limits=LIMITS, form_id="f1")
    for refusal in (
        unavailable("Metering"),
        LegatoError(Reason.REQUEST_INVALID, Sentence.verbatim("Not so."), param="limits"),
    ):
        metering.refusal = refusal
        with pytest.raises(LegatoError) as refused:
            await call_directly(auth, create)
        assert refused.value is refusal
        assert await keys_of(auth, account_id) == []
    metering.refusal = None
    made = await call_directly(auth, create)
    # The form again finds it, and asks metering nothing.
    asked = len(metering.requests)
    again = await call_directly(auth, create)
    assert (again.key.key_id, again.api_key) == (made.key.key_id, "")
    assert len(metering.requests) == asked
    # What has no limits needs no metering.
    metering.refusal = unavailable("Metering")
    assert (await call_directly(auth, pb.CreateKeyRequest(account_id=account_id))).api_key


async def test_a_form_that_is_sent_at_once_many_times_creates_one_key_with_its_limits(
    auth: AuthService, metering: Metering
) -> None:
    account_id = await make_account(auth)
    create = pb.CreateKeyRequest(account_id=account_id, spend_limits=LIMITS, form_id="f1")
    made = await asyncio.gather(*(call_directly(auth, create) for _ in range(6)))
    [key_id] = {each.key.key_id for each in made}
    assert len([each for each in made if each.api_key]) == 1
    assert metering.limits[key_id] == LIMITS


async def test_who_may_not_create_a_key_limits_none(auth: AuthService, metering: Metering) -> None:
    account_id = await make_account(auth)
    stranger = Access("usr_x", "ses_x", account_id, AccountRole.MEMBER, False, 0, 0)
    create = pb.CreateKeyRequest(account_id=account_id, spend_limits=LIMITS)
    with pytest.raises(LegatoError) as refused:
        await call_directly(auth, create, stranger)
    assert refused.value.reason is Reason.ROLE_MISSING
    create.spend_limits.day_nanos = -1
    with pytest.raises(LegatoError) as refused:
        await call_directly(auth, create)
    assert refused.value.param == "spend_limits.day_nanos"
    assert metering.requests == []


async def test_a_rotated_key_shares_the_limits_of_the_old_one_before_it_is_there(
    auth: AuthService, metering: Metering, database: Database
) -> None:
    account_id = await make_account(auth)
    limited = (await call_directly(auth, pb.CreateKeyRequest(account_id=account_id, spend_limits=LIMITS))).key.key_id
    free = (await call_directly(auth, pb.CreateKeyRequest(account_id=account_id))).key.key_id

    async def look(request: LimitKeyRequest) -> None:
        assert request.key_id not in await keys_of(auth, account_id)

    metering.meanwhile = look
    rotated = await call_directly(auth, pb.RotateKeyRequest(account_id=account_id, key_id=limited))
    assert (metering.requests[-1].key_id, metering.requests[-1].replaced_key_id) == (rotated.key.key_id, limited)
    assert rotated.spend_limits == LIMITS
    told = {"spend_day_nanos": 5, "spend_total_nanos": 70}
    assert spending_in_events(database, rotated.key.key_id) == [("key.rotated", told)]
    without = await call_directly(auth, pb.RotateKeyRequest(account_id=account_id, key_id=free))
    assert without.HasField("spend_limits")
    assert without.spend_limits == SpendLimits()
    metering.refusal = unavailable("Metering")
    before = await keys_of(auth, account_id)
    with pytest.raises(LegatoError):
        await call_directly(auth, pb.RotateKeyRequest(account_id=account_id, key_id=limited))
    assert await keys_of(auth, account_id) == before


async def test_limits_are_changed_in_the_name_of_who_changes_them_and_of_no_other_accounts_key(
    auth: AuthService, metering: Metering
) -> None:
    account_id, other_id = await make_account(auth), await make_account(auth)
    key_id = (await call_directly(auth, pb.CreateKeyRequest(account_id=account_id))).key.key_id
    change = pb.SetKeySpendLimitsRequest(account_id=account_id, key_id=key_id, spend_limits=LIMITS)
    owner = Access("usr_ada", "ses_one", account_id, AccountRole.OWNER, False, 0, 0)
    for by, changed_by in ((owner, ChangedBy(user_id="usr_ada", session_id="ses_one")), (None, ChangedBy())):
        assert (await call_directly(auth, change, by)).spend.limits == LIMITS
        assert metering.requests[-1].changed_by == changed_by
        assert metering.requests[-1].HasField("changed_by")
    stranger = Access("usr_bob", "ses_two", other_id, AccountRole.OWNER, False, 0, 0)
    asked = len(metering.requests)
    for account_id, by in ((other_id, stranger), (other_id, None)):
        change.account_id = account_id
        with pytest.raises(LegatoError) as refused:
            await call_directly(auth, change, by)
        assert refused.value.reason is Reason.NOT_FOUND
    assert len(metering.requests) == asked
