"""Lets handlers answer a form that was refused with the page that says what is wrong with it."""

from collections.abc import Awaitable, Callable, Collection
from functools import wraps
from typing import Final, Protocol

from starlette.responses import Response

from console.display.sentences import in_words
from console.web.forms import Refusal, status_of
from console.web.visit import Visit
from services.chassis.errors import LegatoError, Reason

# Fields of forms that services know by another name.
_FIELDS: Final = {"allowed_classes": "allowed"}

Handler = Callable[[Visit], Awaitable[Response]]


class ShowsRefusal(Protocol):
    def __call__(self, visit: Visit, refusal: Refusal, /) -> Awaitable[Response]: ...


def shows_again(
    page: ShowsRefusal,
    field: str = "",
    *,
    reasons: Collection[Reason] = (Reason.REQUEST_INVALID,),
    keeps_status: bool = False,
) -> Callable[[Handler], Handler]:
    """Lets a handler answer with a page that says what is wrong: where the form breaks its rules, or a service refuses
    it for one of these reasons. A service's refusal stands at the field that it names, or else at `field`."""

    def decorate(handler: Handler) -> Handler:
        @wraps(handler)
        async def answer(visit: Visit) -> Response:
            try:
                return await handler(visit)
            except Refusal as refusal:
                return await page(visit, refusal)
            except LegatoError as error:
                if error.reason not in reasons:
                    raise
                named = _FIELDS.get(error.param or "", error.param or "")
                problems = {named if visit.form.has(named) else field: in_words(error.sentence)}
                return await page(visit, Refusal(problems, error, status_of(error) if keeps_status else 400))

        return answer

    return decorate
