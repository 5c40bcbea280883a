"""Which page says what is wrong with a form, and at which field."""

from types import SimpleNamespace
from typing import Any

import pytest
from starlette.responses import Response

from console.web.forms import Form, Refusal
from console.web.refusals import shows_again
from services.chassis.errors import LegatoError, Reason


async def answer_to(error: LegatoError, form: Form, **options: Any) -> Refusal:
    shown: list[Refusal] = []

    async def page(visit: Any, refusal: Refusal) -> Response:
        shown.append(refusal)
        return Response()

    @shows_again(page, "name", **options)
    async def handler(visit: Any) -> Response:
        raise error

    visit: Any = SimpleNamespace(form=form)
    await handler(visit)
    return shown[0]


@pytest.mark.parametrize(
    ("param", "field"),
    [("email", "email"), ("allowed_classes", "allowed"), ("threshold_nanos", "name"), (None, "name")],
)
async def test_a_services_refusal_stands_at_the_field_that_it_names(param: str | None, field: str) -> None:
    error = LegatoError(Reason.REQUEST_INVALID, "Wrong.", param=param)
    refusal = await answer_to(error, Form([("email", "x"), ("allowed", "y")]))
    assert (refusal.problems, refusal.status) == ({field: "Wrong."}, 400)


async def test_a_refusal_keeps_its_status_and_the_time_to_wait_where_it_should() -> None:
    error = LegatoError(Reason.TOO_MANY_SIGN_INS, "Too many.", retry_after_s=7)
    refusal = await answer_to(error, Form([]), reasons=(Reason.TOO_MANY_SIGN_INS,), keeps_status=True)
    assert (refusal.status, refusal.retry_after_s) == (429, 7)


async def test_other_refusals_are_pages_of_their_own() -> None:
    with pytest.raises(LegatoError, match="Missing"):
        await answer_to(LegatoError(Reason.ROLE_MISSING, "Missing."), Form([]))
