"""Results that are shown once: a form answers with a redirect, and the page after it shows what the form made.

A reload asks for that page again, finds nothing, and repeats nothing. The console has no state, and another replica may
answer the redirect. So auth keeps the result for minutes, sealed with a key that only a cookie of this browser has, and
gives it out once: neither auth's database nor the cookie tells anything alone.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message
from starlette.responses import Response

from console.web.visit import Visit
from legato_protos.auth.v1.users_pb2 import KeepResultRequest, TakeResultRequest
from services.chassis.errors import LegatoError, Reason
from services.chassis.sealing import CannotOpen, SingleUseKey

# As long as auth keeps it.
COOKIE_LIFE_S: Final = 300

ResultT = TypeVar("ResultT", bound=Message)


@dataclass(frozen=True, slots=True)
class ShownOnce(Generic[ResultT]):
    """A page that shows the result of a form."""

    kind: type[ResultT]
    render: Callable[[Visit, ResultT], Awaitable[Response]]
    # Where the page leads if the result was shown before; empty: to the page above it.
    back: str = ""
    message: str = "shown-before"

    async def lead_to(self, path: str, visit: Visit, result: ResultT) -> Response:
        """Leads to `path`, which takes the result. Where auth no longer answers it is shown at once: it would be
        lost."""
        sealer = SingleUseKey()
        sealed = sealer.seal(result.SerializeToString(), bound_to=path.encode())
        try:
            kept = await visit.auth.users.KeepResult(KeepResultRequest(sealed=sealed))
        except LegatoError as error:
            visit.console.log.warning("result.not_kept", reason=error.reason)
            return await self.render(visit, result)
        visit.cookies[_cookie(visit)] = (f"{kept.result_id}.{sealer.key.hex()}", COOKIE_LIFE_S)
        return visit.redirect(path)

    async def page(self, visit: Visit) -> Response:
        result = await self._take(visit)
        if result is None:
            return visit.redirect(self.back or visit.request.url.path.rpartition("/")[0] or "/", self.message)
        return await self.render(visit, result)

    async def _take(self, visit: Visit) -> ResultT | None:
        """Returns the result that this page is to show; None: it was shown before."""
        result_id, _dot, encoded = visit.request.cookies.get(_cookie(visit), "").partition(".")
        if not result_id:
            return None
        visit.cookies[_cookie(visit)] = None
        try:
            sealer = SingleUseKey(bytes.fromhex(encoded))
            taken = await visit.auth.users.TakeResult(TakeResultRequest(result_id=result_id))
            return self.kind.FromString(sealer.open(taken.sealed, bound_to=visit.request.url.path.encode()))
        except LegatoError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise
            return None
        except (ValueError, CannotOpen):
            return None


def secret_page(template: str) -> Callable[[Visit, Message], Awaitable[Response]]:
    """Renders a result by a template that needs nothing else."""

    async def render(visit: Visit, made: Message) -> Response:
        return visit.render(template, has_secret=True, made=made)

    return render


def _cookie(visit: Visit) -> str:
    return f"{visit.session_cookie}-shown"
