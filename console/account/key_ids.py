"""Public ids of keys: in addresses, and in the form that finds a leaked one."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from console.display.language import _
from console.web.forms import Refusal
from console.web.visit import Visit
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

KEY_ID: Final = re.compile(r"key_[0-9A-Za-z]{16}")


def key_id_of(visit: Visit) -> str:
    """Returns the key that the address names."""
    key_id = visit.path_value("key_id")
    if not KEY_ID.fullmatch(key_id):
        raise LegatoError(Reason.NOT_FOUND, Sentence("thing_unknown", what="key"))
    return key_id


async def require_known(visit: Visit, find: Callable[[Visit, str], Awaitable[Any]], not_found: str) -> str:
    """Returns the key that a form names, if it is one that `find` finds."""
    key_id = visit.form.get("key_id")
    if not KEY_ID.fullmatch(key_id):
        raise Refusal({"key_id": _("This is not the public part of a key.")})
    try:
        await find(visit, key_id)
    except LegatoError as error:
        if error.reason is not Reason.NOT_FOUND:
            raise
        raise Refusal({"key_id": not_found}, status=404) from None
    return key_id
