"""Keys: list, create, rename, limit, rotate, revoke, and identify a leaked one."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from starlette.responses import Response

from console.account import spend_limits, usage
from console.account.allowed_classes import classes_in, classes_of_account, classes_of_key
from console.account.allowed_classes import in_words as classes_in_words
from console.account.key_ids import key_id_of, require_known
from console.account.key_limits import LIMITS, limit_in_effect, limits_in
from console.display import words
from console.display.snippets import snippets
from console.display.words import in_words, time_of
from console.services import if_available
from console.web.forms import LONGEST_NAME, Refusal, Rules
from console.web.refusals import shows_again
from console.web.shown_once import ShownOnce
from console.web.visit import Visit, with_query
from legato_protos.auth.v1 import auth_pb2
from legato_protos.metering.v1.metering_pb2 import UsageRow
from services.chassis.errors import LegatoError

PAGE_SIZE: Final = 50
# So many are looked at for a summary.
SUMMARY_SIZE: Final = 200
EXPIRIES: Final = ("30", "90", "365", "never")
SCOPES: Final = {name: number for number, (name, _title) in words.SCOPES.items()}


@dataclass(frozen=True, slots=True)
class KeysChoice:
    """The choice that an address makes."""

    search: str
    only_active: bool

    @property
    def query(self) -> dict[str, str]:
        fields = {"q": self.search, "show": "active" if self.only_active else ""}
        return {name: value for name, value in fields.items() if value}


async def show(visit: Visit) -> Response:
    query = visit.query
    choice = KeysChoice(query.get("q", "").strip()[:LONGEST_NAME], query.get("show") == "active")
    request = auth_pb2.ListKeysRequest(
        account_id=visit.account_id,
        page_size=PAGE_SIZE,
        page_token=visit.page_token,
        search=choice.search,
        only_active=choice.only_active,
        newest_first=True,
        with_callers=True,
    )
    listed = await visit.auth.key_admin.ListKeys(request)
    key_ids = [each.key_id for each in listed.keys]
    spends, costs = await asyncio.gather(
        spend_limits.read_spends(visit, visit.account_id, key_ids), usage.usage_by_key(visit, key_ids)
    )
    active = [each for each in listed.keys if each.state == auth_pb2.KEY_STATE_ACTIVE]
    past = [each for each in listed.keys if each.state != auth_pb2.KEY_STATE_ACTIVE]
    return visit.render(
        "keys.html",
        active=active,
        past=past,
        costs=costs,
        nearest={key_id: spend_limits.nearest_meter(spend) for key_id, spend in (spends or {}).items()},
        choice=choice,
        previous_path=_page_path(choice, listed.previous_page_token),
        next_path=_page_path(choice, listed.next_page_token),
    )


def _page_path(choice: KeysChoice, page_token: str) -> str:
    return with_query("/keys", {**choice.query, "page": page_token}) if page_token else ""


async def show_new(visit: Visit, refusal: Refusal | None = None) -> Response:
    form, offered = visit.form, classes_of_account(await visit.read_account())
    given: dict[str, Any] = {"name": "", "scopes": list(SCOPES), "expires": "90", "limits": {}, "classes": offered}
    if refusal is not None:
        given = {
            "name": form.get("name"),
            "scopes": form.all("scope"),
            "expires": form.get("expires"),
            "limits": {name: form.get(name) for name in LIMITS},
            "classes": form.all("allowed"),
        }
    return visit.render("key_new.html", refusal=refusal, given=given, offered=offered, limit_titles=LIMITS)


@shows_again(show_new, "name")
async def create(visit: Visit) -> Response:
    form, offered = visit.form, classes_of_account(await visit.read_account())
    name, scopes, expires = form.get("name"), form.all("scope"), form.get("expires")
    with Rules(form) as rules:
        limits, allowed = limits_in(rules), classes_in(rules, offered)
        rules.require(len(name) <= LONGEST_NAME, "name", "At most 100 characters.")
        rules.require(bool(scopes) and set(scopes) <= SCOPES.keys(), "scope", "Choose what the key may do.")
        rules.require(expires in EXPIRIES, "expires", "Choose when the key expires.")
    request = auth_pb2.CreateKeyRequest(
        account_id=visit.account_id,
        name=name,
        # Without scopes and classes, the key has all of them.
        scopes=[] if set(scopes) == SCOPES.keys() else [SCOPES[scope] for scope in scopes],
        expires_after_days=_days(expires),
        form_id=form.get("form_id"),
        allowed_classes=allowed,
        **{name: limit for name, limit in limits.items() if limit},
    )
    return await _show_made(visit, await visit.auth.key_admin.CreateKey(request))


async def _show_made(visit: Visit, made: auth_pb2.CreateKeyResponse) -> Response:
    path = f"/keys/{made.key.key_id}"
    if not made.api_key:
        # The form was sent before.
        return visit.redirect(path, "shown-before")
    return await MADE.lead_to(f"{path}/made", visit, made)


async def _made(visit: Visit, made: auth_pb2.CreateKeyResponse) -> Response:
    examples = snippets(visit.console.api_url, made.api_key)
    return visit.render("key_made.html", has_secret=True, made=made, snippets=examples)


MADE: Final = ShownOnce(auth_pb2.CreateKeyResponse, _made)


async def show_one(visit: Visit, refusal: Refusal | None = None) -> Response:
    key_id = key_id_of(visit)
    identified, account = await asyncio.gather(_find(visit, key_id), visit.read_account())
    found, pair = identified.key, None
    if identified.HasField("replaced_by"):
        pair = (found, identified.replaced_by)
    elif identified.HasField("replaced"):
        pair = (identified.replaced, found)
    costs = await usage.usage_by_key(visit, [each.key_id for each in pair or (found,)])
    return visit.render(
        "key.html",
        refusal=refusal,
        found=found,
        usage=None if costs is None else costs.get(key_id, UsageRow()),
        costs=costs,
        limits=[limit_in_effect(name, found, account) for name in LIMITS],
        offered=classes_of_account(account),
        classes=classes_of_key(found, account),
        classes_words=classes_in_words(found, account),
        pair=pair,
        idle=_idle(visit, pair[0]) if pair else "",
    )


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


@shows_again(show_one, reasons=())
async def rotate(visit: Visit) -> Response:
    """Creates a key like another, with its spend limits too. The secret is shown only when those hold; if they cannot
    be set, the new key is revoked."""
    if await spend_limits.read_spends(visit, visit.account_id, [key_id_of(visit)]) is None:
        raise _not_rotated()
    request = auth_pb2.RotateKeyRequest(
        account_id=visit.account_id,
        key_id=key_id_of(visit),
        expires_after_days=_days(visit.form.get("expires")),
        form_id=visit.form.get("form_id"),
    )
    made = await visit.auth.key_admin.RotateKey(request)
    if made.api_key:
        try:
            await spend_limits.inherit(visit, made.key.key_id, key_id_of(visit))
        except LegatoError as error:
            visit.console.log.warning("key.limits_not_inherited", key_id=made.key.key_id, reason=error.reason)
            await _revoke(visit, made.key.key_id)
            raise _not_rotated() from None
    return await _show_made(visit, auth_pb2.CreateKeyResponse(key=made.key, api_key=made.api_key))


async def revoke(visit: Visit) -> Response:
    await _revoke(visit, key_id_of(visit))
    return visit.redirect(_path(visit), "key-revoked")


async def _revoke(visit: Visit, key_id: str) -> None:
    request = auth_pb2.RevokeKeyRequest(account_id=visit.account_id, key_id=key_id)
    await visit.auth.key_admin.RevokeKey(request)


def _not_rotated() -> Refusal:
    problem = (
        "Metering is not answering, so the new key could not be given the old one's spend limits. There is no new key; "
        "the old one keeps working. Try again later."
    )
    return Refusal({"rotate": problem}, status=503)


async def show_identify(visit: Visit, refusal: Refusal | None = None) -> Response:
    return visit.render("identify.html", refusal=refusal, for_operators=False)


@shows_again(show_identify, reasons=())
async def identify(visit: Visit) -> Response:
    not_found = "The key is well formed, but it is none of this account's. Whose it is, only an operator can tell."
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
        return "The old key was never used."
    idle = visit.now - time_of(key.last_use_time) - timedelta(hours=1)
    if idle < timedelta(hours=1):
        return "The old key was used within the last two hours."
    return f"The old key has not been used for {in_words(idle)}."


def _days(expires: str) -> int | None:
    return int(expires) if expires in EXPIRIES and expires.isdecimal() else None


def _path(visit: Visit) -> str:
    return f"/keys/{key_id_of(visit)}"
