"""Keys: the list, one key with everything about it, its name, limits and classes, and which one leaked."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from starlette.responses import Response

from console.account import spend_limits, usage
from console.account.allowed_classes import classes_in, classes_of_account, classes_of_key
from console.account.allowed_classes import in_words as classes_in_words
from console.account.key_expiry import EXPIRIES, expiry_of
from console.account.key_ids import key_id_of, require_known
from console.account.key_limits import limits_in, limits_of
from console.account.key_names import maker_of
from console.account.spend_limits import WHOLE_ACCOUNT, SpendForm, limited_meters
from console.display.language import N_, _
from console.display.words import in_words, significant_places, time_of
from console.services import if_available
from console.web.forms import LONGEST_NAME, Refusal, Rules
from console.web.refusals import shows_again
from console.web.visit import Visit, with_query
from legato_protos.auth.v1 import auth_pb2, users_pb2
from legato_protos.metering.v1.metering_pb2 import UsageRow
from services.rules.usage import add_usage

PAGE_SIZE: Final = 50
# So many are looked at for a summary.
SUMMARY_SIZE: Final = 200
# A shorter list is read as it is.
FILTERED_FROM: Final = 10
EVENTS_SHOWN: Final = 5
UNUSED: Final = {"0": N_("Never used"), "30": N_("Not used for 30 days"), "90": N_("Not used for 90 days")}


@dataclass(frozen=True, slots=True)
class KeysChoice:
    """The choice that an address makes."""

    search: str
    only_active: bool
    # How many days a key was not used for; empty: whether it was or not.
    unused: str

    @property
    def query(self) -> dict[str, str]:
        fields = {"q": self.search, "show": "active" if self.only_active else "", "unused": self.unused}
        return {name: value for name, value in fields.items() if value}

    @property
    def is_search_alone(self) -> bool:
        return self.query.keys() <= {"q", "show"}


def _choice_of(visit: Visit) -> KeysChoice:
    query = visit.query
    unused = query.get("unused", "")
    return KeysChoice(
        query.get("q", "").strip()[:LONGEST_NAME], query.get("show") == "active", unused if unused in UNUSED else ""
    )


async def show(visit: Visit) -> Response:
    choice = _choice_of(visit)
    request = auth_pb2.ListKeysRequest(
        account_id=visit.account_id,
        page_size=PAGE_SIZE,
        page_token=visit.page_token,
        search=choice.search,
        only_active=choice.only_active,
        unused_for_days=int(choice.unused) if choice.unused else None,
        newest_first=True,
        with_callers=True,
    )
    listed = await visit.auth.key_admin.ListKeys(request)
    key_ids = [each.key_id for each in listed.keys]
    # Of a key that does not exist where none is listed.
    asked_ids = key_ids or ["none"]
    spends, used = await asyncio.gather(
        spend_limits.read_spends(visit, visit.account_id, asked_ids),
        usage.read_recent_usage(visit, asked_ids, by_key=True),
    )
    active = [each for each in listed.keys if each.state == auth_pb2.KEY_STATE_ACTIVE]
    past = [each for each in listed.keys if each.state != auth_pb2.KEY_STATE_ACTIVE]
    previous_path, next_path = (
        _page_path(choice, token) for token in (listed.previous_page_token, listed.next_page_token)
    )
    here = {**choice.query, **({"page": visit.page_token} if visit.page_token else {})}
    return visit.render(
        "keys.html",
        active=active,
        past=past,
        costs=None if used is None else {row.key_id: row.cost_nanos for row in used},
        nearest={key_id: spend_limits.nearest_meter(spend) for key_id, spend in (spends or {}).items()},
        choice=choice,
        unused=UNUSED,
        is_filtered=bool(previous_path or next_path or choice.query) or len(key_ids) >= FILTERED_FROM,
        may_choose=sum(each.may_change for each in active),
        are_chosen=visit.query.get("choose") == "all",
        choose_all_path=with_query("/keys", {**here, "choose": "all"}),
        maker_of=maker_of,
        previous_path=previous_path,
        next_path=next_path,
    )


def _page_path(choice: KeysChoice, page_token: str) -> str:
    return with_query("/keys", {**choice.query, "page": page_token}) if page_token else ""


async def show_one(visit: Visit, refusal: Refusal | None = None) -> Response:
    key_id, account_id = key_id_of(visit), visit.account_id
    identified, account, spends, events = await asyncio.gather(
        _find(visit, key_id),
        visit.read_account(),
        spend_limits.read_spends(visit, account_id, [key_id]),
        _read_events(visit, key_id),
    )
    found, pair = identified.key, None
    if identified.HasField("replaced_by"):
        pair = (found, identified.replaced_by)
    elif identified.HasField("replaced"):
        pair = (identified.replaced, found)
    shown_ids = [each.key_id for each in pair or (found,)]
    rows = await usage.read_recent_usage(visit, shown_ids, by_key=True, by_class=True)
    return visit.render(
        "key.html",
        refusal=refusal,
        found=found,
        maker=maker_of(found),
        identified=identified,
        usage=None if rows is None else sorted(_rows_of(rows, key_id), key=lambda row: -row.cost_nanos),
        total=_total(rows or (), key_id),
        places=max((significant_places(row.cost_nanos, 2) for row in rows or ()), default=2),
        limits=limits_of(found, account),
        expiries=EXPIRIES,
        expiry=expiry_of(found),
        spends=SpendForm.of(spends, key_id),
        spend_limits_of_account=limited_meters((spends or {}).get(WHOLE_ACCOUNT)),
        offered=classes_of_account(account),
        classes=classes_of_key(found, account),
        classes_words=classes_in_words(found, account),
        events=events,
        pair=pair,
        pair_requests=None if rows is None else [_total(rows, each.key_id).requests for each in pair or ()],
        idle=_idle(visit, pair[0]) if pair else "",
    )


def _rows_of(rows: Sequence[UsageRow], key_id: str) -> list[UsageRow]:
    return [row for row in rows if row.key_id == key_id]


def _total(rows: Sequence[UsageRow], key_id: str) -> UsageRow:
    own = _rows_of(rows, key_id)
    total = UsageRow(requests=sum(row.requests for row in own), cost_nanos=sum(row.cost_nanos for row in own))
    for row in own:
        add_usage(total.usage, row.usage)
    return total


async def _read_events(visit: Visit, key_id: str) -> list[users_pb2.AuditEvent]:
    """Returns what the audit log has of a key last: owners see what anybody did, others what they did themselves."""
    request = users_pb2.ListAuditEventsRequest(object_id=key_id, account_id=visit.account_id, page_size=EVENTS_SHOWN)
    if not visit.who.is_owner:
        request.user_id = visit.who.user.user_id
    listed = await visit.optional(visit.auth.audit.ListAuditEvents(request), "events")
    return [] if listed is None else list(listed.events)


@shows_again(show_one, reasons=())
async def rename(visit: Visit) -> Response:
    with Rules(visit.form) as rules:
        name = rules.require_name()
    request = auth_pb2.RenameKeyRequest(account_id=visit.account_id, key_id=key_id_of(visit), name=name)
    await visit.auth.key_admin.RenameKey(request)
    return visit.redirect(_path(visit), "key-renamed")


@shows_again(show_one, "requests_per_minute")
async def set_limits(visit: Visit) -> Response:
    with Rules(visit.form) as rules:
        limits: dict[str, Any] = limits_in(rules)
    await _update(visit, auth_pb2.UpdateKeyRequest(**limits))
    return visit.redirect(_path(visit), "key-limits")


@shows_again(show_one, "allowed")
async def set_classes(visit: Visit) -> Response:
    offered = classes_of_account(await visit.read_account())
    with Rules(visit.form) as rules:
        allowed = classes_in(rules, offered)
    await _update(visit, auth_pb2.UpdateKeyRequest(allowed_classes=allowed, allow_all_classes=allowed is None))
    return visit.redirect(_path(visit), "key-classes")


async def _update(visit: Visit, request: auth_pb2.UpdateKeyRequest) -> None:
    request.account_id, request.key_id = visit.account_id, key_id_of(visit)
    await visit.auth.key_admin.UpdateKey(request)


async def show_identify(visit: Visit, refusal: Refusal | None = None) -> Response:
    return visit.render("identify.html", refusal=refusal, for_operators=False)


@shows_again(show_identify, reasons=())
async def identify(visit: Visit) -> Response:
    not_found = _("The key is well formed, but it is none of this account's. Whose it is, only an operator can tell.")
    return visit.redirect(f"/keys/{await require_known(visit, _find, not_found)}")


async def keys_in_use(visit: Visit) -> list[auth_pb2.Key] | None:
    """Returns the oldest keys in use, for a summary; None if auth does not answer in time."""
    request = auth_pb2.ListKeysRequest(account_id=visit.account_id, page_size=SUMMARY_SIZE, only_active=True)
    listed = await if_available(visit.auth.key_admin.ListKeys(request))
    return None if listed is None else list(listed.keys)


async def _find(visit: Visit, key_id: str) -> auth_pb2.GetKeyResponse:
    request = auth_pb2.GetKeyRequest(account_id=visit.account_id, key_id=key_id)
    return await visit.auth.key_admin.GetKey(request)


def _idle(visit: Visit, key: auth_pb2.Key) -> str:
    """Says how long a key has not been used. Auth knows the hour, so the end of that hour counts."""
    if not key.HasField("last_use_time"):
        return _("The old key was never used.")
    idle = visit.now - time_of(key.last_use_time) - timedelta(hours=1)
    if idle < timedelta(hours=1):
        return _("The old key was used within the last two hours.")
    return _("The old key has not been used for %(time)s.", time=in_words(idle))


def _path(visit: Visit) -> str:
    return f"/keys/{key_id_of(visit)}"
