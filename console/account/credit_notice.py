"""Credit that is used up, or soon will be: what every page of an account says of it, and whom the visitor can ask."""

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from console.web.visit import Visit
from legato_protos.auth.v1 import users_pb2
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1.access_token_pb2 import ACCOUNT_ROLE_OWNER
from services.rules.cost import MILLION

# A page is not kept waiting for longer, once its own part is known.
WITHIN_S: Final = 0.2
PACE_DAYS: Final = 7
# Credit is low, too, if it lasts for fewer days at the pace of the last ones.
LOW_DAYS: Final = 3
# For a request, an edge holds the price of at least so long a prompt; a test compares them.
LEAST_PROMPT_TOKENS: Final = 128
OWNERS_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class CreditNotice:
    """Credit that needs attention: what is left of it, and who can add some."""

    left_nanos: int
    owed_nanos: int
    # No request can be paid for.
    is_out: bool
    # At the pace of the last days; None: nothing was spent in them.
    lasts_days: int | None
    # Whom the visitor can ask, by name; empty: nobody in the account can help more than the visitor.
    owners: tuple[str, ...] = ()


def notice_of(told: pb.GetBalanceResponse) -> CreditNotice | None:
    """Returns what there is to say; None: there is credit enough, or the owners want no notice of low credit."""
    balance, outlook = told.balance, told.outlook
    left_nanos = balance.balance_nanos - balance.owed_nanos
    lasts_days = left_nanos * PACE_DAYS // outlook.spent_7_days_nanos if outlook.spent_7_days_nanos else None
    is_out = (
        bool(balance.owed_nanos) or left_nanos <= LEAST_PROMPT_TOKENS * told.least_input_nanos_per_million // MILLION
    )
    is_low = left_nanos < outlook.low_balance_nanos or (lasts_days is not None and lasts_days < LOW_DAYS)
    if not is_out and not (is_low and outlook.low_balance_nanos):
        return None
    return CreditNotice(max(left_nanos, 0), balance.owed_nanos, is_out, lasts_days)


class CreditNotices:
    """Finds the notice of a page while the page asks for its own part; ends what is still asked for with the block."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._task: asyncio.Task[CreditNotice | None] | None = None

    def __enter__(self) -> "CreditNotices":
        return self

    def __exit__(self, *_raised: object) -> None:
        if self._task is not None:
            self._task.cancel()

    def begin(self) -> None:
        if self._task is None and self._is_of_account():
            self._task = asyncio.create_task(_read(self._visit))

    async def find(self) -> CreditNotice | None:
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


async def _read(visit: Visit) -> CreditNotice | None:
    told = await visit.credit()
    found = None if told is None else notice_of(told)
    if found is None or visit.who.is_owner:
        return found
    return replace(found, owners=await _owners(visit))


async def _owners(visit: Visit) -> tuple[str, ...]:
    request = users_pb2.ListMembersRequest(account_id=visit.account_id)
    listed = await visit.optional(visit.auth.accounts.ListMembers(request), "members")
    members = [] if listed is None else listed.members
    owners = (each.user for each in members if each.role == ACCOUNT_ROLE_OWNER)
    return tuple(user.name for user in owners if user.name and not user.HasField("disable_time"))[:OWNERS_NAMED]
