"""Validates administrative requests. Each check returns the value to store, or raises an error that names the field."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final

from services.auth.core.records.accounts import ClassAllowance
from services.chassis.access_tokens import AccountRole
from services.chassis.errors import LegatoError, Reason
from services.rules.largest_limits import LARGEST_LIMITS
from services.rules.model_classes import CLASSES

NAME_LENGTH_MOST: Final = 100
EMAIL_LENGTH_MOST: Final = 254
MESSAGE_LENGTH_MOST: Final = 500
RETRY_AFTER_DEFAULT_S: Final = 60
RETRY_AFTER_MOST_S: Final = 86_400

# Control characters, and the two Unicode separators that break lines.
_UNPRINTABLE: Final = frozenset({"Cc", "Zl", "Zp"})

_ID: Final = re.compile("[0-9A-Za-z_]{1,100}")


def id_of(what: str, given: str) -> str:
    """Returns the id; raises without a query if we cannot have made it."""
    if not is_id(given):
        raise not_found(what)
    return given


def is_id(given: str) -> bool:
    return _ID.fullmatch(given) is not None


def not_found(what: str) -> LegatoError:
    return LegatoError(Reason.NOT_FOUND, f"There is no such {what}.")


def name(given: str) -> str:
    return _line("name", given, NAME_LENGTH_MOST, "A name must not contain control characters.")


def query(given: str) -> str:
    """Validates what is searched for; empty finds everything."""
    trimmed = given.strip()
    if len(trimmed) > NAME_LENGTH_MOST or "\0" in trimmed:
        raise refusal("query", f"A search has at most {NAME_LENGTH_MOST} characters.")
    return trimmed


def key_name(given: str) -> str:
    """Validates a key's name, which is optional, unlike an account's."""
    return name(given) if given.strip() else ""


def maintenance_message(given: str) -> str:
    return _line("message", given, MESSAGE_LENGTH_MOST, "A message must be one line, without control characters.")


def _line(param: str, given: str, length_most: int, advice: str) -> str:
    trimmed = given.strip()
    if not 1 <= len(trimmed) <= length_most:
        raise refusal(param, f"A {param} must have 1 to {length_most} characters.")
    if any(unicodedata.category(character) in _UNPRINTABLE for character in trimmed):
        raise refusal(param, advice)
    return trimmed


def retry_after_s(given: int) -> int:
    if not 0 <= given <= RETRY_AFTER_MOST_S:
        raise refusal("retry_after_s", f"The retry delay must be from 1 to {RETRY_AFTER_MOST_S:,} seconds.")
    return given or RETRY_AFTER_DEFAULT_S


def preferred_class(given: str) -> str:
    if given not in CLASSES:
        raise refusal("preferred_class", f"The preferred class must be one of: {', '.join(CLASSES)}.")
    return given


def allowed_classes(given: Iterable[str]) -> ClassAllowance:
    """Validates the classes that an account or a key may use."""
    chosen = set(given)
    if not chosen or not chosen <= set(CLASSES):
        raise refusal("allowed_classes", f"Allow at least one class, of: {', '.join(CLASSES)}.")
    return ClassAllowance(tuple(class_id for class_id in CLASSES if class_id in chosen))


def limits(given: Mapping[str, int]) -> dict[str, int | None]:
    """Validates limits; 0 removes one: a key then inherits from its account, an account from the service."""
    for param, limit in given.items():
        if not 0 <= limit <= LARGEST_LIMITS[param]:
            raise refusal(param, f"This limit must be from 0 to {LARGEST_LIMITS[param]:,}.")
    return {param: limit or None for param, limit in given.items()}


def email(given: str) -> str:
    trimmed = given.strip()
    is_plausible = len(trimmed) <= EMAIL_LENGTH_MOST and trimmed.isprintable() and trimmed.count("@") == 1
    if trimmed and not (is_plausible and " " not in trimmed and all(trimmed.split("@"))):
        raise refusal("email", "This is not an email address.")
    return trimmed.lower()


def role(given: int) -> AccountRole:
    if given not in (AccountRole.VIEWER, AccountRole.MEMBER, AccountRole.OWNER):
        raise refusal("role", "A role must be owner, member or viewer.")
    return AccountRole(given)


def refusal(param: str, message: str) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, message, param=param)
