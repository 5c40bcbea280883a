"""Names of an account's keys, and who made them, for reports. Revoked keys are among them.

An account can have many thousands of keys: a page asks for those that it shows, and for the newest to choose from.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from console.display.language import _
from console.services import if_available
from console.web.visit import Visit
from legato_protos.auth.v1 import auth_pb2

# A longer list is none to choose from, and makes the page heavy; an address can have any key.
OPTIONS_MOST: Final = 50
NAMED_AT_ONCE: Final = 1_000
# Metering lists the usage of no more.
OWN_MOST: Final = 1_000
_KEY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class KeyNames:
    by_id: dict[str, auth_pb2.Key] = field(default_factory=dict)
    # The newest, to choose from, and whether there are more.
    offered: tuple[str, ...] = ()
    has_more: bool = False
    # Auth does not answer: keys have no names.
    is_missing: bool = False
    # There are more of the reader's own than a report can be of.
    is_partial: bool = False

    def name(self, key_id: str) -> str:
        found = self.by_id.get(key_id)
        return (found.name if found else "") or key_id

    def maker(self, key_id: str) -> str:
        found = self.by_id.get(key_id)
        return _("Unknown") if found is None else maker_of(found)

    def options(self, chosen: str) -> list[str]:
        """Returns the keys to choose from, with the one that is chosen."""
        return [*self.offered, chosen] if chosen not in ("", "mine", *self.offered) else list(self.offered)


def maker_of(key: auth_pb2.Key) -> str:
    if key.created_by_name:
        return key.created_by_name
    return _("Operator") if key.caller else _("Former member") if key.created_by else _("Command line")


@dataclass(frozen=True, slots=True)
class ReportKeys:
    """The keys that a report is of, as an address chooses them."""

    # "" for all, "mine", or the id of one.
    chosen: str
    # Those that the reader created, if it is them.
    own: KeyNames | None

    @property
    def key_ids(self) -> list[str]:
        """Returns the keys that metering is asked for; none: all of them."""
        if self.own is not None:
            # A key that does not exist: a user without keys sees nothing.
            return list(self.own.by_id) or ["none"]
        return [self.chosen] if self.chosen else []


async def read_report_keys(visit: Visit) -> ReportKeys:
    """Reads which keys an address chooses; what is no id counts as not given."""
    given = visit.query.get("keys", "")
    # Members come for what they use themselves; owners and viewers for the account.
    chosen = given if _KEY_ID.fullmatch(given) else "mine" if visit.who.has_own_keys_only else "all"
    return ReportKeys("" if chosen == "all" else chosen, await _read_own_keys(visit) if chosen == "mine" else None)


async def read_key_names(visit: Visit, key_ids: Iterable[str] = ()) -> KeyNames:
    """Reads the names of these keys, and of the newest; without auth's answer, reports have ids instead."""
    wanted = [each for each in dict.fromkeys(key_ids) if each not in ("", "mine")][:NAMED_AT_ONCE]
    listed = await _list_newest(visit, page_size=OPTIONS_MOST, also_key_ids=wanted)
    if listed is None:
        return KeyNames(is_missing=True)
    by_id = {each.key_id: each for each in (*listed.keys, *listed.also_keys)}
    offered = tuple(each.key_id for each in listed.keys)
    return KeyNames(by_id, offered, bool(listed.next_page_token))


async def _read_own_keys(visit: Visit) -> KeyNames:
    listed = await _list_newest(visit, page_size=OWN_MOST, only_own=True)
    if listed is None:
        return KeyNames(is_missing=True, is_partial=True)
    by_id = {each.key_id: each for each in listed.keys}
    return KeyNames(by_id, tuple(by_id)[:OPTIONS_MOST], has_more=True, is_partial=bool(listed.next_page_token))


async def _list_newest(visit: Visit, **wanted: Any) -> auth_pb2.ListKeysResponse | None:
    request = auth_pb2.ListKeysRequest(
        account_id=visit.account_id, with_playground=True, with_callers=True, newest_first=True, **wanted
    )
    return await if_available(visit.auth.key_admin.ListKeys(request))


async def add_key_names(visit: Visit, names: KeyNames, key_ids: Iterable[str]) -> KeyNames:
    """Returns names with those of further keys, for the next part of a file."""
    missing = [each for each in dict.fromkeys(key_ids) if each and each not in names.by_id]
    by_id = dict(names.by_id)
    for start in range(0, len(missing), NAMED_AT_ONCE):
        by_id |= (await read_key_names(visit, missing[start : start + NAMED_AT_ONCE])).by_id
    return replace(names, by_id=by_id)
