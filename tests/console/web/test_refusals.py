"""Which page says what is wrong with a form, and at which field."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.responses import Response

from console.web.forms import Form, Refusal
from console.web.refusals import shows_again
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.console.harness import ConsoleHarness
from tests.console.metering import ACCOUNT_ID


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
    error = LegatoError(Reason.REQUEST_INVALID, Sentence.verbatim("Wrong."), param=param)
    refusal = await answer_to(error, Form([("email", "x"), ("allowed", "y")]))
    assert (refusal.problems, refusal.status) == ({field: "Wrong."}, 400)


async def test_a_refusal_keeps_its_status_and_the_time_to_wait_where_it_should() -> None:
    error = LegatoError(Reason.TOO_MANY_SIGN_INS, Sentence.verbatim("Too many."), retry_after_s=7)
    refusal = await answer_to(error, Form([]), reasons=(Reason.TOO_MANY_SIGN_INS,), keeps_status=True)
    assert (refusal.status, refusal.retry_after_s) == (429, 7)


async def test_other_refusals_are_pages_of_their_own() -> None:
    with pytest.raises(LegatoError, match="Missing"):
        await answer_to(LegatoError(Reason.ROLE_MISSING, Sentence.verbatim("Missing.")), Form([]))


@pytest.mark.parametrize(
    ("path", "form", "shown"),
    [
        ("/keys/key_0000000000000001/limits", {"requests_per_minute": "many", "tokens_per_minute": "70000"}, "70000"),
        (
            "/security/password",
            {"email": "ada@example.ca", "password": "one", "repeated_password": "two"},
            "ada@example.ca",
        ),
        ("/settings/members/invite", {"email": "ada(at)example.ca", "role": "viewer"}, "ada(at)example.ca"),
        (f"/operator/accounts/{ACCOUNT_ID}/limits", {"requests_per_minute": "many", "tokens_per_minute": "7"}, "many"),
    ],
)
def test_a_form_that_is_refused_is_shown_again_as_it_was_filled_in(
    console: ConsoleHarness, path: str, form: dict[str, str], shown: str
) -> None:
    console.backends.fill()
    console.auth.be_operator()
    answer = console.post(path, form, console.auth.sign_in())
    assert answer.status == 400
    assert f'value="{shown}"' in answer.text
    for field in re.findall(r'<a href="#(field-\w+)"', answer.text):
        assert f'id="{field}"' in answer.text


def test_codes_that_were_refused_are_typed_again(console: ConsoleHarness) -> None:
    """A page has no secret in it that somebody has typed."""
    console.auth.grow_stale()
    session = console.auth.sign_in()
    for path, form in (
        ("/sign-in", {"code": "wrong-code-of-a-link"}),
        ("/sign-in/recovery-code", {"code": "wrong-code-of-a-link"}),
        ("/invitation", {"code": "wrong-code-of-a-link"}),
    ):
        assert "wrong-code-of-a-link" not in console.post(path, form).text, path
    form = {"kind": "recovery", "code": "wrong-code-of-a-link", "pending": "{}"}
    assert "wrong-code-of-a-link" not in console.post("/confirm", form, session).text
