"""Results that are shown once: a form answers with a redirect, and the page after it shows what the form made.

A reload asks for that page again, finds nothing, and repeats nothing. The console has no state, and another replica may
answer the redirect. So auth keeps the result for minutes, sealed with a key that only a cookie of this browser has, and
gives it out once: neither auth's database nor the cookie tells anything alone.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from google.protobuf.message import Message
from starlette.responses import Response

from console.web.visit import Visit
from protos.auth.v1.users_pb2 import KeepResultRequest, TakeResultRequest
from services.chassis.errors import LegatoError, Reason
from services.chassis.sealing import CannotOpen, SingleUseKey

# As long as auth keeps it.
COOKIE_LIFE_S: Final = 300

ResultT = TypeVar("ResultT", bound=Message)


async def show(
    visit: Visit, path: str, result: ResultT, render: Callable[[Visit, ResultT], Awaitable[Response]]
) -> Response:
    """Leads to `path`, which takes the result. Where auth no longer answers it is shown at once: it would be lost."""
    sealer = SingleUseKey()
    sealed = sealer.seal(result.SerializeToString(), bound_to=path.encode())
    try:
        kept = await visit.auth.users.KeepResult(KeepResultRequest(sealed=sealed))
    except LegatoError as error:
        visit.console.log.warning("result.not_kept", reason=error.reason)
        return await render(visit, result)
    visit.cookies[_cookie(visit)] = (f"{kept.result_id}.{sealer.key.hex()}", COOKIE_LIFE_S)
    return visit.redirect(path)


async def take(visit: Visit, empty: ResultT) -> ResultT | None:
    """Fills in the result that this page is to show; None: it was shown before."""
    result_id, _dot, encoded = visit.request.cookies.get(_cookie(visit), "").partition(".")
    if not result_id:
        return None
    visit.cookies[_cookie(visit)] = None
    try:
        sealer = SingleUseKey(bytes.fromhex(encoded))
        taken = await visit.auth.users.TakeResult(TakeResultRequest(result_id=result_id))
        empty.ParseFromString(sealer.open(taken.sealed, bound_to=visit.request.url.path.encode()))
    except LegatoError as error:
        if error.reason is not Reason.NOT_FOUND:
            raise
        return None
    except (ValueError, CannotOpen):
        return None
    return empty


def _cookie(visit: Visit) -> str:
    return f"{visit.session_cookie}-shown"
