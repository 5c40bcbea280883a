"""Posted forms: their fields, the rules that fields obey, and what is wrong with those that break them."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from console.display.language import _, is_french
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import parse_usd
from services.chassis.sentence import Sentence

LARGEST_FORM_BYTES: Final = 64 * 1024
MOST_FIELDS: Final = 200
LONGEST_NAME: Final = 100
_SPACES: Final = re.compile(r"\s")
_THOUSANDS: Final = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d*)?")
# Statuses of refusals that the API does not have.
STATUSES: Final = {
    Reason.SESSION_ENDED: 401,
    Reason.SIGN_IN_FAILED: 401,
    Reason.ACCESS_TOKEN_INVALID: 503,
    Reason.ROLE_MISSING: 403,
    Reason.STEP_UP_REQUIRED: 403,
    Reason.TOO_MANY_SIGN_INS: 429,
}


class Form:
    """The fields of a form, in the order in which they were sent."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self.fields = fields

    def get(self, name: str) -> str:
        """Returns the field without outer spaces; empty if there is none."""
        return next((value.strip() for field_name, value in self.fields if field_name == name), "")

    def all(self, name: str) -> list[str]:
        return [value.strip() for field_name, value in self.fields if field_name == name]

    def has(self, name: str) -> bool:
        return any(field_name == name for field_name, _value in self.fields)


class Refusal(LegatoError):
    """A form that was refused, by its own rules or by a service: what is wrong, by field."""

    # It is carried out if it says that this is meant.
    needs_confirmation = False

    def __init__(self, problems: Mapping[str, str], cause: LegatoError | None = None, status: int = 400) -> None:
        reason = Reason.REQUEST_INVALID if cause is None else cause.reason
        retry_after_s = None if cause is None else cause.retry_after_s
        super().__init__(reason, Sentence.verbatim(next(iter(problems.values()))), retry_after_s=retry_after_s)
        self.problems = dict(problems)
        self.status = status

    @property
    def message(self) -> str:
        """The words for the first field that is wrong, which are in the visitor's language already."""
        return next(iter(self.problems.values()))


class Rules:
    """Reads the fields of a form by rules, and gathers what is wrong with which; refuses the form at the end of its
    block."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self.problems: dict[str, str] = {}

    def __enter__(self) -> "Rules":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_raised: object) -> None:
        if kind is None and self.problems:
            raise Refusal(self.problems)

    def require(self, is_right: bool, field: str, problem: str) -> None:
        if not is_right:
            self.problems[field] = problem

    def require_name(self) -> str:
        name = self.form.get("name")
        self.require(1 <= len(name) <= LONGEST_NAME, "name", _("A name has 1 to 100 characters."))
        return name

    def parse(self, parse: Callable[[str], Any], field: str, problem: str, otherwise: Any = None) -> Any:
        """Returns what `parse` makes of a field; `otherwise` if it is empty, or if `parse` raises a ValueError."""
        given = self.form.get(field)
        try:
            return parse(given) if given else otherwise
        except ValueError:
            self.problems[field] = problem
            return otherwise


def parse_dollars(given: str) -> int:
    """Returns an amount as the visitor's language writes it, in nano-dollars; raises a ValueError. A comma is between
    thousands in English and before cents in French, and neither is taken for the other."""
    plain = _SPACES.sub("", given).strip("$").replace("\N{MINUS SIGN}", "-")
    if is_french():
        plain = plain.replace(",", ".")
    elif _THOUSANDS.fullmatch(plain):
        plain = plain.replace(",", "")
    return parse_usd(plain)


def status_of(error: LegatoError) -> int:
    return STATUSES.get(error.reason, error.wire.http_status)


async def read_body(request: Request, most_bytes: int) -> bytes:
    # The server lets nothing through that is not a number.
    if int(request.headers.get("content-length", "0")) > most_bytes:
        raise _too_large()
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > most_bytes:
                raise _too_large()
    except ClientDisconnect:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("form_cut")) from None
    return bytes(body)


def unreadable_form() -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, Sentence("form_unreadable"))


def _too_large() -> LegatoError:
    return LegatoError(Reason.BODY_TOO_LARGE, Sentence("form_too_large"))


async def read_form(request: Request) -> Form:
    """Reads the fields of a POST; any other request has none."""
    if request.method != "POST":
        return Form([])
    body = await read_body(request, LARGEST_FORM_BYTES)
    try:
        return Form(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise unreadable_form() from None
