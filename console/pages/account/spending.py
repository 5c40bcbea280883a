"""Spend limits of the account, and of one of its keys."""

import asyncio
from typing import Final

from starlette.responses import Response

from console.account import spend_limits
from console.account.key_names import KeyNames, read_key_name, read_key_names
from console.account.spend_limits import WHOLE_ACCOUNT, limited_meters, meters_of
from console.pages.account.keys import KEY_ID
from console.web.visit import Visit
from services.chassis.errors import LegatoError, Reason

# A longer list makes the page heavy; each key has its own page.
KEYS_SHOWN: Final = 100


async def show(visit: Visit) -> Response:
    if not visit.who.account_id:
        return visit.render("no_account.html")
    return await _page(visit)


async def set_limits(visit: Visit) -> Response:
    limits, problems, typed = spend_limits.given_limits(visit)
    problems = problems or await spend_limits.set_limits(visit, visit.who.account_id, WHOLE_ACCOUNT, limits)
    return await _page(visit, problems, typed) if problems else visit.redirect("/credit/limits", "spend-limits-set")


async def show_key(visit: Visit) -> Response:
    return await _key_page(visit)


async def set_key_limits(visit: Visit) -> Response:
    limits, problems, typed = spend_limits.given_limits(visit)
    key_id = _key_id(visit)
    problems = problems or await spend_limits.set_limits(visit, visit.who.account_id, key_id, limits)
    if problems:
        return await _key_page(visit, problems, typed)
    return visit.redirect(f"/keys/{key_id}/spend-limits", "spend-limits-set")


async def _page(visit: Visit, problems: dict[str, str] | None = None, typed: dict[str, str] | None = None) -> Response:
    spends = await spend_limits.read_spends(visit, visit.who.account_id)
    whole = None if spends is None else spends.get(WHOLE_ACCOUNT)
    limited = [(each, limited_meters(each)) for each in (spends or {}).values() if each.key_id and limited_meters(each)]
    # Those of which most is spent come first.
    limited.sort(key=lambda pair: max(meter.percent for meter in pair[1]), reverse=True)
    shown = limited[:KEYS_SHOWN]
    names = await read_key_names(visit, (each.key_id for each, meters in shown)) if shown else KeyNames()
    return visit.render(
        "spend_limits.html",
        400 if problems else 200,
        is_known=spends is not None,
        spend=whole,
        meters=meters_of(whole),
        keys=shown,
        more_keys=max(0, len(limited) - KEYS_SHOWN),
        names=names,
        typed=typed,
        problems=problems or {},
    )


async def _key_page(
    visit: Visit, problems: dict[str, str] | None = None, typed: dict[str, str] | None = None
) -> Response:
    key_id, account_id = _key_id(visit), visit.who.account_id
    spends, names = await asyncio.gather(
        spend_limits.read_spends(visit, account_id, [key_id]), read_key_name(visit, key_id)
    )
    if key_id not in names.by_id:
        raise LegatoError(Reason.NOT_FOUND, "There is no such key.")
    own = None if spends is None else spends.get(key_id)
    return visit.render(
        "key_spend_limits.html",
        400 if problems else 200,
        key=names.by_id[key_id].key,
        is_known=spends is not None,
        spend=own,
        meters=meters_of(own),
        of_account=limited_meters((spends or {}).get(WHOLE_ACCOUNT)),
        typed=typed,
        problems=problems or {},
    )


def _key_id(visit: Visit) -> str:
    key_id: str = visit.request.path_params["key_id"]
    if not KEY_ID.fullmatch(key_id):
        raise LegatoError(Reason.NOT_FOUND, "There is no such key.")
    return key_id
