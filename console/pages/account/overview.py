"""The overview: credit, use, keys that need a look, and how to make a first request."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from starlette.responses import Response

from console.account import usage
from console.account.monthly_costs import read_monthly_costs
from console.display.language import _
from console.display.snippets import snippets
from console.display.words import time_of
from console.pages.account import keys
from console.web.shown_once import ShownOnce
from console.web.visit import Visit
from legato_protos.auth.v1 import auth_pb2

EXPIRES_SOON: Final = timedelta(days=14)
DORMANT_AFTER: Final = timedelta(days=60)


@dataclass(frozen=True, slots=True)
class Attention:
    """A key that needs a look, and why."""

    key: auth_pb2.Key
    kind: str
    words: str


async def show(visit: Visit, made: auth_pb2.CreateKeyResponse | None = None) -> Response:
    who = visit.who
    if not who.account_id and who.user.is_operator and visit.console.serves_operators:
        return visit.redirect("/operator")
    if not who.account_id:
        return visit.render("no_account.html")
    balance, chart, listed, monthly_costs = await asyncio.gather(
        usage.balance(visit), usage.costs_by_class(visit), keys.keys_in_use(visit), read_monthly_costs(visit)
    )
    free_nanos = usage.free_nanos(balance) if balance else 0
    return visit.render(
        "overview.html",
        has_secret=made is not None,
        balance=balance,
        free_nanos=free_nanos,
        monthly_costs=monthly_costs,
        chart=chart,
        zone=visit.zone,
        today_nanos=chart.day_totals[-1] if chart else 0,
        lasts=usage.lasts_until(free_nanos, chart.day_totals, visit.zone.today(visit.now)) if balance and chart else "",
        keys=listed,
        attention=needing_attention(listed or [], visit.now),
        made=made,
        snippets=snippets(visit.console.api_url, made.api_key) if made else snippets(visit.console.api_url),
    )


FIRST_KEY: Final = ShownOnce(auth_pb2.CreateKeyResponse, show)


async def create_key(visit: Visit) -> Response:
    """Creates a key from the guide, and shows the guide with the key in it."""
    request = auth_pb2.CreateKeyRequest(
        account_id=visit.account_id, name=_("First key"), form_id=visit.form.get("form_id")
    )
    made = await visit.auth.key_admin.CreateKey(request)
    if not made.api_key:
        return visit.redirect(f"/keys/{made.key.key_id}", "shown-before")
    return await FIRST_KEY.lead_to("/first-key", visit, made)


def needing_attention(listed: list[auth_pb2.Key], now: datetime) -> list[Attention]:
    found = []
    for key in listed:
        if key.state != auth_pb2.KEY_STATE_ACTIVE:
            continue
        last_used = time_of(key.last_use_time if key.HasField("last_use_time") else key.create_time)
        if key.HasField("expire_time") and time_of(key.expire_time) - now < EXPIRES_SOON:
            found.append(Attention(key, "warn", _("Expires soon")))
        elif now - last_used > DORMANT_AFTER:
            found.append(Attention(key, "warn", _("Not used for a long time")))
        elif (
            not key.HasField("expire_time")
            and not key.HasField("requests_per_minute")
            and not key.HasField("tokens_per_minute")
        ):
            found.append(Attention(key, "", _("Neither expiry nor limit")))
    return found
