"""The notices that every page of an account has: why requests are refused, or soon will be, and whom to ask."""

import asyncio
from dataclasses import dataclass
from typing import Final

from console.account.credit_notice import CreditNotice, least_hold_nanos, notice_of
from console.account.spend_limits import WHOLE_ACCOUNT, SpendMeter, limited_meters
from console.web.visit import Visit
from legato_protos.auth.v1 import users_pb2
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1.access_token_pb2 import ACCOUNT_ROLE_OWNER

# A page is not kept waiting for longer, once its own part is known.
WITHIN_S: Final = 0.2
OWNERS_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class PageNotice:
    """Credit and spend limits that need attention."""

    credit: CreditNotice | None
    # The account's own limits that leave no request room.
    reached_limits: tuple[SpendMeter, ...]
    # Whom the visitor can ask, by name; empty: nobody in the account can help more than the visitor.
    owners: tuple[str, ...]


class PageNotices:
    """Finds the notice of a page while the page asks for its own part; ends what is still asked for with the block."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._task: asyncio.Task[PageNotice | None] | None = None

    def __enter__(self) -> "PageNotices":
        return self

    def __exit__(self, *_raised: object) -> None:
        if self._task is not None:
            self._task.cancel()

    def begin(self) -> None:
        if self._task is None and self._is_of_account():
            self._task = asyncio.create_task(_read(self._visit))

    async def find(self) -> PageNotice | None:
        """Returns the notice; None also if it is not known in time."""
        self.begin()
        if self._task is None:
            return None
        done, _pending = await asyncio.wait([self._task], timeout=WITHIN_S)
        if not done:
            return None
        if error := self._task.exception():
            self._visit.console.log.failure("page.failed", error, request_id=self._visit.request.state.request_id)
            return None
        return self._task.result()

    def _is_of_account(self) -> bool:
        is_operators = self._visit.request.url.path.startswith("/operator")
        return self._visit.known is not None and bool(self._visit.account_id) and not is_operators


def limits_reached(told: pb.GetBalanceResponse) -> tuple[SpendMeter, ...]:
    """Returns the limits of the account of which less is left than the shortest request needs."""
    spend = next((each for each in told.spends if each.key_id == WHOLE_ACCOUNT), None)
    return tuple(meter for meter in limited_meters(spend) if meter.left_nanos <= least_hold_nanos(told))


async def _read(visit: Visit) -> PageNotice | None:
    told = await visit.credit()
    if told is None:
        return None
    credit, reached = notice_of(told), limits_reached(told)
    if credit is None and not reached:
        return None
    return PageNotice(credit, reached, () if visit.who.is_owner else await _owners(visit))


async def _owners(visit: Visit) -> tuple[str, ...]:
    request = users_pb2.ListMembersRequest(account_id=visit.account_id)
    listed = await visit.optional(visit.auth.accounts.ListMembers(request), "members")
    members = [] if listed is None else listed.members
    owners = (each.user for each in members if each.role == ACCOUNT_ROLE_OWNER)
    return tuple(user.name for user in owners if user.name and not user.HasField("disable_time"))[:OWNERS_NAMED]
