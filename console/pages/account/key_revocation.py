"""Revoking keys: one, or several that are chosen in the list."""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from starlette.responses import Response

from console.account.key_ids import KEY_ID, key_id_of
from console.account.key_names import read_key_names
from console.display.language import _
from console.web.forms import status_of
from console.web.visit import Visit
from legato_protos.auth.v1 import auth_pb2
from services.chassis.errors import LegatoError, Reason

# As many as a page of the list has.
MOST: Final = 50
# Refusals that another try does not change.
_FINAL: Final = (Reason.ROLE_MISSING, Reason.NOT_FOUND)


class ChosenKey(NamedTuple):
    """A key that was chosen in the list."""

    key_id: str
    name: str
    # Why it cannot be revoked, or was not; empty: it was.
    why: str


async def revoke(visit: Visit) -> Response:
    key_id = key_id_of(visit)
    await revoke_key(visit, key_id)
    return visit.redirect(f"/keys/{key_id}", "key-revoked")


async def revoke_key(visit: Visit, key_id: str) -> None:
    """Revokes a key; returns when every edge refuses it."""
    request = auth_pb2.RevokeKeyRequest(account_id=visit.account_id, key_id=key_id)
    await visit.auth.key_admin.RevokeKey(request)


async def ask(visit: Visit) -> Response:
    """Names the keys that the list was sent with, before anything is revoked."""
    chosen = _known_ids(visit.query.getlist("key"))
    names = await read_key_names(visit, chosen)
    found = [names.by_id[key_id] for key_id in chosen if key_id in names.by_id]
    return visit.render(
        "keys_revoke.html",
        503 if names.is_missing else 200,
        is_missing=names.is_missing,
        revocable=[key for key in found if not _why_not(key)],
        others=[ChosenKey(key.key_id, names.name(key.key_id), why) for key in found if (why := _why_not(key))],
    )


def _why_not(key: auth_pb2.Key) -> str:
    """Says why the visitor cannot revoke a key; empty: it can be revoked."""
    if key.state == auth_pb2.KEY_STATE_REVOKED:
        return _("It is revoked already.")
    if key.is_playground or key.caller:
        return _("It has no secret that could be revoked.")
    return "" if key.may_change else _("Only an owner or whoever created it can revoke it.")


async def revoke_chosen(visit: Visit) -> Response:
    """Revokes each of the keys on its own, so that one that cannot be revoked keeps no other one working."""
    chosen = _known_ids(visit.form.all("key"))
    if not chosen:
        return visit.redirect("/keys/revoke")
    failures = await asyncio.gather(*(_failure_of(visit, key_id) for key_id in chosen))
    took_s = visit.elapsed_s()
    names = await read_key_names(visit, chosen)
    keys = [
        ChosenKey(key_id, names.name(key_id), "" if error is None else _in_words(error))
        for key_id, error in zip(chosen, failures, strict=True)
    ]
    revoked, errors = [key for key in keys if not key.why], [error for error in failures if error is not None]
    return visit.render(
        "keys_revoked.html",
        # Where nothing was done, the status says so, too.
        status_of(errors[0]) if errors and not revoked else 200,
        revoked=revoked,
        failed=[key for key in keys if key.why],
        may_retry=any(error.reason not in _FINAL for error in errors),
        took_s=took_s,
    )


async def _failure_of(visit: Visit, key_id: str) -> LegatoError | None:
    try:
        await revoke_key(visit, key_id)
    except LegatoError as error:
        return error
    return None


def _in_words(error: LegatoError) -> str:
    if error.reason is Reason.ROLE_MISSING:
        return _("Only an owner or whoever created it can revoke it.")
    if error.reason is Reason.NOT_FOUND:
        return _("This account has no such key.")
    return _("There was no answer: it may still work. Try again.")


def _known_ids(given: Sequence[str]) -> list[str]:
    """Returns the ids of keys that were chosen, each once."""
    return [key_id for key_id in dict.fromkeys(given) if KEY_ID.fullmatch(key_id)][:MOST]
