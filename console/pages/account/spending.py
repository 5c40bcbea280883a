"""Spend limits of the account, and of one of its keys."""

import asyncio
from typing import Final

from starlette.responses import Response

from console.account import spend_limits
from console.account.key_ids import key_id_of
from console.account.key_names import KeyNames, read_key_names
from console.account.spend_limits import WHOLE_ACCOUNT, SpendForm, limited_meters
from console.web.forms import Refusal
from console.web.refusals import shows_again
from console.web.visit import Visit
from legato_protos.auth.v1.auth_pb2 import GetKeyRequest

# A longer list makes the page heavy; each key has its own page.
KEYS_SHOWN: Final = 100


async def show(visit: Visit, refusal: Refusal | None = None) -> Response:
    spends = await spend_limits.read_spends(visit, visit.account_id)
    limited = [(each, limited_meters(each)) for each in (spends or {}).values() if each.key_id and limited_meters(each)]
    # Those of which most is spent come first.
    limited.sort(key=lambda pair: max(meter.percent for meter in pair[1]), reverse=True)
    shown = limited[:KEYS_SHOWN]
    return visit.render(
        "spend_limits.html",
        refusal=refusal,
        form=SpendForm.of(spends, WHOLE_ACCOUNT),
        keys=shown,
        more_keys=max(0, len(limited) - KEYS_SHOWN),
        names=await read_key_names(visit, (each.key_id for each, meters in shown)) if shown else KeyNames(),
    )


@shows_again(show, "day")
async def set_limits(visit: Visit) -> Response:
    limits = spend_limits.limits_in(visit.form)
    message = await spend_limits.checked(visit, visit.account_id, WHOLE_ACCOUNT, limits)
    await spend_limits.set_limits(visit, visit.account_id, limits)
    return visit.redirect("/credit/limits", message)


async def show_key(visit: Visit, refusal: Refusal | None = None) -> Response:
    key_id, account_id = key_id_of(visit), visit.account_id
    spends, found = await asyncio.gather(
        spend_limits.read_spends(visit, account_id, [key_id]),
        visit.auth.key_admin.GetKey(GetKeyRequest(account_id=account_id, key_id=key_id)),
    )
    return visit.render(
        "key_spend_limits.html",
        refusal=refusal,
        key=found.key,
        form=SpendForm.of(spends, key_id),
        of_account=limited_meters((spends or {}).get(WHOLE_ACCOUNT)),
    )


@shows_again(show_key, "day")
async def set_key_limits(visit: Visit) -> Response:
    limits, key_id = spend_limits.limits_in(visit.form), key_id_of(visit)
    message = await spend_limits.checked(visit, visit.account_id, key_id, limits)
    await spend_limits.set_key_limits(visit, key_id, limits)
    return visit.redirect(f"/keys/{key_id}/spend-limits", message)
