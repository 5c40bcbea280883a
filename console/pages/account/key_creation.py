"""New keys: created with all that limits them, or rotated from others."""

import asyncio
from typing import Final

from starlette.responses import Response

from console.account import spend_limits
from console.account.allowed_classes import classes_in, classes_of_account
from console.account.key_expiry import EXPIRIES, NEVER, days_of
from console.account.key_ids import key_id_of
from console.account.key_limits import LIMITS, limits_in, limits_of
from console.account.spend_limits import NO_KEY, PERIODS, WHOLE_ACCOUNT, SpendMeter, limited_meters, meters_of
from console.display import words
from console.display.language import _
from console.display.snippets import snippets
from console.pages.account import keys
from console.web.forms import LONGEST_NAME, Refusal, Rules
from console.web.refusals import shows_again
from console.web.shown_once import ShownOnce
from console.web.visit import Visit
from legato_protos.auth.v1 import auth_pb2
from legato_protos.metering.v1.spend_limits_pb2 import Spend, SpendLimits
from services.rules.agents import SHOWN_AGENTS

SCOPES: Final = {name: number for number, (name, _title) in words.SCOPES.items()}


async def show_new(visit: Visit, refusal: Refusal | None = None) -> Response:
    form = visit.form
    account, of_account = await asyncio.gather(visit.read_account(), _read_meters_of_account(visit))
    return visit.render(
        "key_new.html",
        refusal=refusal,
        scopes=list(SCOPES) if refusal is None else form.all("scope"),
        expires=form.get("expires") or NEVER,
        offered=classes_of_account(account),
        expiries=EXPIRIES,
        limits=limits_of(auth_pb2.Key(), account),
        has_rate_limits=any(form.get(name) for name in LIMITS),
        meters=meters_of(None),
        of_account=of_account or [],
    )


@shows_again(show_new, "name")
async def create(visit: Visit) -> Response:
    form, offered = visit.form, classes_of_account(await visit.read_account())
    name, scopes, expires = form.get("name"), form.all("scope"), form.get("expires")
    with Rules(form) as rules:
        rules.require(len(name) <= LONGEST_NAME, "name", _("At most 100 characters."))
        rules.require(bool(scopes) and set(scopes) <= SCOPES.keys(), "scope", _("Choose what the key may do."))
        rules.require(expires in EXPIRIES, "expires", _("Choose when the key expires."))
        # In the order of the page, as its summary of what is wrong lists them.
        allowed, spends, limits = classes_in(rules, offered), spend_limits.limits_by(rules), limits_in(rules)
    if spends != SpendLimits():
        await _require_settable(visit, spends)
    request = auth_pb2.CreateKeyRequest(
        account_id=visit.account_id,
        name=name,
        # Without scopes and classes, the key has all of them.
        scopes=[] if set(scopes) == SCOPES.keys() else [SCOPES[scope] for scope in scopes],
        expires_after_days=days_of(expires),
        form_id=form.get("form_id"),
        allowed_classes=allowed,
        spend_limits=spends,
        **{name: limit for name, limit in limits.items() if limit},
    )
    made = await visit.auth.key_admin.CreateKey(request)
    if spends != SpendLimits():
        _require_limited(made, _first_of(spends))
    return await _show_made(visit, made, "name")


async def _require_settable(visit: Visit, limits: SpendLimits) -> None:
    """Raises if metering does not answer, or would refuse the limits: then no key is made."""
    of_account = await _read_meters_of_account(visit)
    if of_account is None:
        problem = _("Spend limits cannot be set right now, so there is no new key. Try again later, or without them.")
        raise Refusal({_first_of(limits): problem}, status=503)
    above = spend_limits.periods_above(limits, of_account)
    if above:
        problem = _("Not more than the account may spend: %(limit)s.")
        raise Refusal({meter.period: problem % {"limit": meter.within} for meter in above})


async def _read_meters_of_account(visit: Visit) -> list[SpendMeter] | None:
    """Returns the limits that the account as a whole has; None if metering does not answer."""
    spends = await spend_limits.read_spends(visit, visit.account_id, [NO_KEY])
    return None if spends is None else limited_meters(spends.get(WHOLE_ACCOUNT))


def _first_of(limits: SpendLimits) -> str:
    """Returns the field of the first limit that is given."""
    return next(period for period in PERIODS if limits.HasField(f"{period}_nanos"))  # type: ignore[arg-type]


@shows_again(keys.show_one, reasons=())
async def rotate(visit: Visit) -> Response:
    """Creates a key like another, with its spend limits too."""
    key_id = key_id_of(visit)
    if await spend_limits.read_spends(visit, visit.account_id, [key_id]) is None:
        problem = _(
            "Spend limits cannot be set right now, so there is no new key. This one keeps working. Try again later."
        )
        raise Refusal({"rotate": problem}, status=503)
    request = auth_pb2.RotateKeyRequest(
        account_id=visit.account_id,
        key_id=key_id,
        expires_after_days=days_of(visit.form.get("expires")),
        form_id=visit.form.get("form_id"),
    )
    made = await visit.auth.key_admin.RotateKey(request)
    _require_limited(made, "rotate")
    created = auth_pb2.CreateKeyResponse(key=made.key, api_key=made.api_key, spend_limits=made.spend_limits)
    return await _show_made(visit, created, "rotate")


def _require_limited(made: auth_pb2.CreateKeyResponse | auth_pb2.RotateKeyResponse, field: str) -> None:
    """Raises if an auth of an older release has created a key without limits: its secret is not shown."""
    if made.api_key and not made.HasField("spend_limits"):
        problem = _(
            "The spend limits could not be set. Nobody has the new key, but it is in the list: revoke it there. "
            "Try again later."
        )
        raise Refusal({field: problem}, status=503)


async def _show_made(visit: Visit, made: auth_pb2.CreateKeyResponse, field: str) -> Response:
    path = f"/keys/{made.key.key_id}"
    if made.api_key:
        return await MADE.lead_to(f"{path}/made", visit, made)
    # The form was sent before.
    if made.key.state == auth_pb2.KEY_STATE_REVOKED:
        raise Refusal({field: _("The key that this form created is revoked. Send it again to create another.")})
    return visit.redirect(path, "shown-before")


async def _made(visit: Visit, made: auth_pb2.CreateKeyResponse) -> Response:
    account = await visit.read_account()
    return visit.render(
        "key_made.html",
        has_secret=True,
        made=made,
        limits=limits_of(made.key, account),
        spend_limits=limited_meters(Spend(limits=made.spend_limits)),
        snippets=snippets(visit.console.api_url, made.api_key),
        agents=[(agent, agent.settings.filled(visit.console.api_url, made.api_key)) for agent in SHOWN_AGENTS],
    )


MADE: Final = ShownOnce(auth_pb2.CreateKeyResponse, _made)
