"""Keys: list, create, rename, limit, rotate, revoke, and identify a leaked one."""

import asyncio
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from starlette.responses import Response

from console.account import spend_limits, usage
from console.account.allowed_classes import classes_of_account, classes_of_key, given_classes
from console.account.allowed_classes import in_words as classes_in_words
from console.display.snippets import snippets
from console.display.words import in_words, time_of
from console.web import shown_once
from console.web.visit import Visit, with_query
from protos.auth.v1 import auth_pb2
from protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import LegatoError, Reason

PAGE_SIZE: Final = 50
# So many are looked at for a summary.
SUMMARY_SIZE: Final = 200
EXPIRIES: Final = ("30", "90", "365", "never")
LIMITS: Final = {
    "requests_per_minute": "Requests per minute",
    "tokens_per_minute": "Tokens per minute",
    "concurrent_requests": "Requests at once",
}
SCOPES: Final = {
    "inference": auth_pb2.SCOPE_INFERENCE,
    "models": auth_pb2.SCOPE_MODELS,
    "usage": auth_pb2.SCOPE_USAGE,
}
LONGEST_NAME: Final = 100
KEY_ID: Final = re.compile(r"key_[0-9A-Za-z]{16}")


@dataclass(frozen=True, slots=True)
class KeysChoice:
    """The choice that an address makes."""

    search: str
    only_active: bool

    @property
    def query(self) -> dict[str, str]:
        fields = {"q": self.search, "show": "active" if self.only_active else ""}
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class LimitInEffect:
    """A limit in effect, and who set it."""

    name: str
    title: str
    # The key's own; None: it has none.
    own: int | None
    words: str
    source: str


async def show(visit: Visit) -> Response:
    query = visit.request.query_params
    choice = KeysChoice(query.get("q", "").strip()[:LONGEST_NAME], query.get("show") == "active")
    request = pb.AccountServiceListKeysRequest(
        account_id=visit.who.account_id,
        page_size=PAGE_SIZE,
        page_token=query.get("page", ""),
        search=choice.search,
        only_active=choice.only_active,
        newest_first=True,
    )
    listed = await visit.auth.accounts.ListKeys(request)
    key_ids = [each.key.key_id for each in listed.keys]
    spends, costs = await asyncio.gather(_spends(visit, key_ids), usage.usage_by_key(visit, key_ids))
    active = [each for each in listed.keys if each.key.state == auth_pb2.KEY_STATE_ACTIVE]
    past = [each for each in listed.keys if each.key.state != auth_pb2.KEY_STATE_ACTIVE]
    return visit.render(
        "keys.html",
        active=active,
        past=past,
        costs=costs,
        nearest={key_id: spend_limits.nearest_meter(spend) for key_id, spend in spends.items()},
        choice=choice,
        previous_path=_page_path(choice, listed.previous_page_token),
        next_path=_page_path(choice, listed.next_page_token),
    )


def _page_path(choice: KeysChoice, page_token: str) -> str:
    return with_query("/keys", {**choice.query, "page": page_token}) if page_token else ""


async def show_new(visit: Visit) -> Response:
    offered = classes_of_account(await visit.read_account())
    given = {"name": "", "scopes": list(SCOPES), "expires": "90", "limits": {}, "classes": offered}
    return _new(visit, given, {}, offered)


async def create(visit: Visit) -> Response:
    form = visit.form
    given: dict[str, Any] = {
        "name": form.get("name"),
        "scopes": form.all("scope"),
        "expires": form.get("expires"),
        "limits": {name: form.get(name) for name in LIMITS},
        "classes": form.all("allowed"),
    }
    offered = classes_of_account(await visit.read_account())
    limits, problems = limits_in(visit)
    allowed, classes_problem = given_classes(visit, offered)
    if classes_problem:
        problems["allowed"] = classes_problem
    if len(given["name"]) > LONGEST_NAME:
        problems["name"] = "At most 100 characters."
    if not given["scopes"] or not set(given["scopes"]) <= SCOPES.keys():
        problems["scope"] = "Choose what the key may do."
    if given["expires"] not in EXPIRIES:
        problems["expires"] = "Choose when the key expires."
    if problems:
        return _new(visit, given, problems, offered, 400)
    has_all = set(given["scopes"]) == SCOPES.keys()
    request = pb.AccountServiceCreateKeyRequest(
        account_id=visit.who.account_id,
        name=given["name"],
        scopes=[] if has_all else [SCOPES[scope] for scope in given["scopes"]],
        expires_after_days=_days(given["expires"]),
        form_id=form.get("form_id"),
        allowed_classes=allowed,
    )
    for name, limit in limits.items():
        if limit:
            setattr(request, name, limit)
    try:
        made = await visit.auth.accounts.CreateKey(request)
    except LegatoError as error:
        if error.reason is not Reason.REQUEST_INVALID:
            raise
        return _new(visit, given, {_field_of(error, "name"): error.message}, offered, 400)
    return await _show_made(visit, made)


async def show_made(visit: Visit) -> Response:
    made = await shown_once.take(visit, pb.AccountServiceCreateKeyResponse())
    return visit.redirect(_path(visit), "shown-before") if made is None else await _made(visit, made)


async def _show_made(visit: Visit, made: pb.AccountServiceCreateKeyResponse) -> Response:
    path = f"/keys/{made.key.key.key_id}"
    if not made.api_key:
        # The form was sent before.
        return visit.redirect(path, "shown-before")
    return await shown_once.show(visit, f"{path}/made", made, _made)


async def _made(visit: Visit, made: pb.AccountServiceCreateKeyResponse) -> Response:
    examples = snippets(visit.console.api_url, made.api_key)
    return visit.render("key_made.html", has_secret=True, made=made, snippets=examples)


async def show_one(visit: Visit) -> Response:
    return await _one(visit)


async def rename(visit: Visit) -> Response:
    name = visit.form.get("name")
    if not name or len(name) > LONGEST_NAME:
        return await _one(visit, {"name": "A name has 1 to 100 characters."}, 400)
    request = pb.RenameKeyRequest(account_id=visit.who.account_id, key_id=_key_id(visit), name=name)
    await visit.auth.accounts.RenameKey(request)
    return visit.redirect(_path(visit), "key-renamed")


async def set_limits(visit: Visit) -> Response:
    limits, problems = limits_in(visit)
    if problems:
        return await _one(visit, problems, 400)
    began_s = visit.console.clock.elapsed_s()
    request = pb.AccountServiceUpdateKeyRequest(account_id=visit.who.account_id, key_id=_key_id(visit))
    for name, limit in limits.items():
        setattr(request, name, limit)
    try:
        await visit.auth.accounts.UpdateKey(request)
    except LegatoError as error:
        if error.reason is not Reason.REQUEST_INVALID:
            raise
        return await _one(visit, {error.param or "requests_per_minute": error.message}, 400)
    return visit.redirect(_path(visit), "key-limits", milliseconds_since(visit, began_s))


async def set_classes(visit: Visit) -> Response:
    allowed, problem = given_classes(visit, classes_of_account(await visit.read_account()))
    if problem:
        return await _one(visit, {"allowed": problem}, 400)
    began_s = visit.console.clock.elapsed_s()
    request = pb.AccountServiceUpdateKeyRequest(
        account_id=visit.who.account_id,
        key_id=_key_id(visit),
        allowed_classes=allowed,
        allow_all_classes=allowed is None,
    )
    try:
        await visit.auth.accounts.UpdateKey(request)
    except LegatoError as error:
        if error.reason is not Reason.REQUEST_INVALID:
            raise
        return await _one(visit, {"allowed": error.message}, 400)
    return visit.redirect(_path(visit), "key-classes", milliseconds_since(visit, began_s))


async def rotate(visit: Visit) -> Response:
    """Creates a key like another, with its spend limits too. Nobody has the secret before those hold: it is shown only
    then, and if they cannot be set, the new key is revoked."""
    if await spend_limits.read_spends(visit, visit.who.account_id, [_key_id(visit)]) is None:
        return await _one(visit, {"rotate": _not_rotated()}, 503)
    expires = visit.form.get("expires")
    request = pb.RotateKeyRequest(
        account_id=visit.who.account_id,
        key_id=_key_id(visit),
        expires_after_days=_days(expires),
        form_id=visit.form.get("form_id"),
    )
    made = await visit.auth.accounts.RotateKey(request)
    if made.api_key:
        try:
            await spend_limits.inherit(visit, made.key.key.key_id, _key_id(visit))
        except LegatoError as error:
            visit.console.log.warning("key.limits_not_inherited", key_id=made.key.key.key_id, reason=error.reason)
            await _revoke(visit, made.key.key.key_id)
            return await _one(visit, {"rotate": _not_rotated()}, 503)
    return await _show_made(visit, pb.AccountServiceCreateKeyResponse(key=made.key, api_key=made.api_key))


async def revoke(visit: Visit) -> Response:
    began_s = visit.console.clock.elapsed_s()
    await _revoke(visit, _key_id(visit))
    return visit.redirect(_path(visit), "key-revoked", milliseconds_since(visit, began_s))


async def _revoke(visit: Visit, key_id: str) -> None:
    request = pb.AccountServiceRevokeKeyRequest(account_id=visit.who.account_id, key_id=key_id)
    await visit.auth.accounts.RevokeKey(request)


def _not_rotated() -> str:
    return (
        "Metering is not answering, so the new key could not be given the old one's spend limits. There is no new key; "
        "the old one keeps working. Try again later."
    )


async def show_identify(visit: Visit) -> Response:
    return visit.render("identify.html", problem="")


async def identify(visit: Visit) -> Response:
    key_id = visit.form.get("key_id")
    if not KEY_ID.fullmatch(key_id):
        return visit.render("identify.html", 400, problem="This is not the public part of a key.")
    request = pb.IdentifyKeyRequest(account_id=visit.who.account_id, key_id=key_id)
    try:
        await visit.auth.accounts.IdentifyKey(request)
    except LegatoError as error:
        if error.reason is not Reason.NOT_FOUND:
            raise
        return visit.render(
            "identify.html",
            404,
            problem="The key is well formed, but it is none of this account's. Whose it is, only an operator can tell.",
        )
    return visit.redirect(f"/keys/{key_id}")


async def keys_in_use(visit: Visit) -> list[pb.AccountKey] | None:
    """Returns the oldest keys in use, for a summary; None if auth does not answer in time."""
    request = pb.AccountServiceListKeysRequest(
        account_id=visit.who.account_id, page_size=SUMMARY_SIZE, only_active=True
    )
    try:
        return list((await visit.auth.accounts.ListKeys(request)).keys)
    except LegatoError as error:
        if error.reason is not Reason.UNAVAILABLE:
            raise
        return None


def new_form_id() -> str:
    return secrets.token_hex(16)


async def _spends(visit: Visit, key_ids: Sequence[str]) -> spend_limits.Spends:
    """Returns what keys with limits have spent; nothing if metering does not answer."""
    if not key_ids:
        return {}
    return await spend_limits.read_spends(visit, visit.who.account_id, key_ids) or {}


async def _find(visit: Visit, key_id: str) -> pb.IdentifyKeyResponse:
    request = pb.IdentifyKeyRequest(account_id=visit.who.account_id, key_id=key_id)
    return await visit.auth.accounts.IdentifyKey(request)


async def _one(visit: Visit, problems: dict[str, str] | None = None, status: int = 200) -> Response:
    key_id = _key_id(visit)
    identified, account = await asyncio.gather(_find(visit, key_id), visit.read_account())
    found, pair = identified.key, None
    if identified.HasField("replaced_by"):
        pair = (found, identified.replaced_by)
    elif identified.HasField("replaced"):
        pair = (identified.replaced, found)
    costs = await usage.usage_by_key(visit, [each.key.key_id for each in pair or (found,)])
    return visit.render(
        "key.html",
        status,
        found=found,
        usage=None if costs is None else costs.get(key_id, usage.KeyUsage()),
        costs=costs,
        limits=[_limit(name, found.key, account) for name in LIMITS],
        offered=classes_of_account(account),
        classes=classes_of_key(found.key, account),
        classes_words=classes_in_words(found.key, account),
        pair=pair,
        idle=_idle(visit, pair[0].key) if pair else "",
        problems=problems or {},
        form_id=new_form_id(),
    )


def _limit(name: str, key: auth_pb2.Key, account: auth_pb2.Account) -> LimitInEffect:
    own = getattr(key, name) if key.HasField(name) else None  # type: ignore[arg-type]
    if own is not None:
        return LimitInEffect(name, LIMITS[name], own, f"{own:,}", "Set on this key")
    if account.HasField(name):  # type: ignore[arg-type]
        return LimitInEffect(name, LIMITS[name], None, f"{getattr(account, name):,}", "The account's limit")
    return LimitInEffect(name, LIMITS[name], None, "Default", "The service's default")


def _idle(visit: Visit, key: auth_pb2.Key) -> str:
    """Says how long a key has not been used. Auth knows the hour, so the end of that hour counts."""
    if not key.HasField("last_use_time"):
        return "The old key was never used."
    idle = visit.now - time_of(key.last_use_time) - timedelta(hours=1)
    if idle < timedelta(hours=1):
        return "The old key was used within the last two hours."
    return f"The old key has not been used for {in_words(idle)}."


def _new(
    visit: Visit, given: dict[str, Any], problems: dict[str, str], offered: list[str], status: int = 200
) -> Response:
    return visit.render(
        "key_new.html",
        status,
        given=given,
        problems=problems,
        offered=offered,
        limit_titles=LIMITS,
        form_id=new_form_id(),
    )


def _field_of(error: LegatoError, otherwise: str) -> str:
    return "allowed" if error.param == "allowed_classes" else error.param or otherwise


def limits_in(visit: Visit) -> tuple[dict[str, int], dict[str, str]]:
    """Returns the limits of a form, 0 for an empty field, and what is wrong with which."""
    limits: dict[str, int] = {}
    problems: dict[str, str] = {}
    for name in LIMITS:
        given = visit.form.get(name).replace(",", "").replace(" ", "")
        if given.isdecimal() and len(given) < 10:
            limits[name] = int(given)
        elif given:
            problems[name] = "A whole number, or nothing."
        else:
            limits[name] = 0
    return limits, problems


def _days(expires: str) -> int | None:
    return int(expires) if expires in EXPIRIES and expires.isdecimal() else None


def _key_id(visit: Visit) -> str:
    key_id: str = visit.request.path_params["key_id"]
    if not KEY_ID.fullmatch(key_id):
        raise LegatoError(Reason.NOT_FOUND, "There is no such key.")
    return key_id


def _path(visit: Visit) -> str:
    return f"/keys/{_key_id(visit)}"


def milliseconds_since(visit: Visit, began_s: float) -> int:
    return round(1000 * (visit.console.clock.elapsed_s() - began_s))
