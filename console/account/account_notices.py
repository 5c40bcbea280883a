"""The notices that every page of an account has: why requests are refused, or soon will be, and whom to ask."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from console.account.credit_notice import CreditNotice, notice_of
from console.account.spend_limits import WHOLE_ACCOUNT, SpendMeter, limited_meters
from console.display.words import time_of
from console.web.visit import Visit
from legato_protos.auth.v1 import auth_pb2, users_pb2
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1.access_token_pb2 import ACCOUNT_ROLE_OWNER
from services.rules.cost import least_hold_nanos

# A page is not kept waiting for longer, once its own part is known.
WITHIN_S: Final = 0.2
OWNERS_NAMED: Final = 3
# A key that nobody has used for longer refuses nobody.
KEYS_IN_USE: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class RefusedKey:
    """A key in use whose requests are refused, and why."""

    key_id: str
    name: str
    # None: it has not expired.
    expired: datetime | None = None
    # Its limits that leave no request room.
    reached_limits: tuple[SpendMeter, ...] = ()


@dataclass(frozen=True, slots=True)
class PageNotice:
    """Credit, spend limits and keys that need attention."""

    credit: CreditNotice | None
    # The account's own limits that leave no request room.
    reached_limits: tuple[SpendMeter, ...]
    # Of members, those that they created.
    refused_keys: tuple[RefusedKey, ...]
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


def limits_reached(answer: pb.GetBalanceResponse, key_id: str = WHOLE_ACCOUNT) -> tuple[SpendMeter, ...]:
    """Returns the limits of the account, or of a key, of which no more is left than the shortest request needs."""
    spend = next((each for each in answer.spends if each.key_id == key_id), None)
    least_nanos = least_hold_nanos(answer.least_input_nanos_per_million)
    return tuple(meter for meter in limited_meters(spend) if meter.left_nanos <= least_nanos)


async def _read(visit: Visit) -> PageNotice | None:
    answer = await visit.credit() or pb.GetBalanceResponse()
    credit = notice_of(answer) if answer.HasField("balance") else None
    reached, refused = limits_reached(answer), (*_expired_keys(visit), *await _keys_without_room(visit, answer))
    if credit is None and not reached and not refused:
        return None
    return PageNotice(credit, reached, refused, () if visit.who.is_owner else await _owners(visit))


def _expired_keys(visit: Visit) -> list[RefusedKey]:
    """Returns those that auth has told with the session."""
    expired = visit.who.resolved.expired_keys
    return [RefusedKey(key.key_id, key.name, expired=time_of(key.expire_time)) for key in expired]


async def _keys_without_room(visit: Visit, answer: pb.GetBalanceResponse) -> list[RefusedKey]:
    """Returns the keys in use whose own limits are reached. Their names are read only if there are any."""
    key_ids = [spend.key_id for spend in answer.spends if spend.key_id != WHOLE_ACCOUNT]
    if not key_ids:
        return []
    request = auth_pb2.ListKeysRequest(account_id=visit.account_id, page_size=1, also_key_ids=key_ids)
    listed = await visit.optional(visit.auth.key_admin.ListKeys(request), "keys")
    keys = [key for key in (listed.also_keys if listed else ()) if _is_shown(visit, key)]
    return [RefusedKey(key.key_id, key.name, reached_limits=limits_reached(answer, key.key_id)) for key in keys]


def _is_shown(visit: Visit, key: auth_pb2.Key) -> bool:
    is_in_use = key.HasField("last_use_time") and visit.now - time_of(key.last_use_time) < KEYS_IN_USE
    is_theirs = not visit.who.has_own_keys_only or key.created_by == visit.who.user.user_id
    return key.state == auth_pb2.KEY_STATE_ACTIVE and is_in_use and is_theirs


async def _owners(visit: Visit) -> tuple[str, ...]:
    request = users_pb2.ListMembersRequest(account_id=visit.account_id)
    listed = await visit.optional(visit.auth.accounts.ListMembers(request), "members")
    members = [] if listed is None else listed.members
    owners = (each.user for each in members if each.role == ACCOUNT_ROLE_OWNER)
    return tuple(user.name for user in owners if user.name and not user.HasField("disable_time"))[:OWNERS_NAMED]
