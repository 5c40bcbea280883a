"""Validates administrative requests. Each check returns the value to store, or raises an error that names the field."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final

from services.auth.core.records.accounts import ClassAllowance
from services.chassis.access_tokens import AccountRole
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
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
    return LegatoError(Reason.NOT_FOUND, Sentence("thing_unknown", what=what))


def name(given: str) -> str:
    length = Sentence("name_length", most=NAME_LENGTH_MOST)
    return _line("name", given, NAME_LENGTH_MOST, length, Sentence("name_unprintable"))


def query(given: str) -> str:
    """Validates what is searched for; empty finds everything."""
    trimmed = given.strip()
    if len(trimmed) > NAME_LENGTH_MOST or "\0" in trimmed:
        raise refusal("query", Sentence("search_too_long", most=NAME_LENGTH_MOST))
    return trimmed


def key_name(given: str) -> str:
    """Validates a key's name, which is optional, unlike an account's."""
    return name(given) if given.strip() else ""


def maintenance_message(given: str) -> str:
    length = Sentence("message_length", most=MESSAGE_LENGTH_MOST)
    return _line("message", given, MESSAGE_LENGTH_MOST, length, Sentence("message_unprintable"))


def _line(param: str, given: str, length_most: int, length: Sentence, advice: Sentence) -> str:
    trimmed = given.strip()
    if not 1 <= len(trimmed) <= length_most:
        raise refusal(param, length)
    if any(unicodedata.category(character) in _UNPRINTABLE for character in trimmed):
        raise refusal(param, advice)
    return trimmed


def retry_after_s(given: int) -> int:
    if not 0 <= given <= RETRY_AFTER_MOST_S:
        raise refusal("retry_after_s", Sentence("retry_delay_range", most=RETRY_AFTER_MOST_S))
    return given or RETRY_AFTER_DEFAULT_S


def preferred_class(given: str) -> str:
    if given not in CLASSES:
        raise refusal("preferred_class", Sentence("preferred_class_unknown", classes=", ".join(CLASSES)))
    return given


def allowed_classes(given: Iterable[str]) -> ClassAllowance:
    """Validates the classes that an account or a key may use."""
    chosen = set(given)
    if not chosen or not chosen <= set(CLASSES):
        raise refusal("allowed_classes", Sentence("classes_empty", classes=", ".join(CLASSES)))
    return ClassAllowance(tuple(class_id for class_id in CLASSES if class_id in chosen))


def limits(given: Mapping[str, int]) -> dict[str, int | None]:
    """Validates limits; 0 removes one: a key then inherits from its account, an account from the service."""
    for param, limit in given.items():
        if not 0 <= limit <= LARGEST_LIMITS[param]:
            raise refusal(param, Sentence("limit_range", most=LARGEST_LIMITS[param]))
    return {param: limit or None for param, limit in given.items()}


def email(given: str) -> str:
    trimmed = given.strip()
    is_plausible = len(trimmed) <= EMAIL_LENGTH_MOST and trimmed.isprintable() and trimmed.count("@") == 1
    if trimmed and not (is_plausible and " " not in trimmed and all(trimmed.split("@"))):
        raise refusal("email", Sentence("email_invalid"))
    return trimmed.lower()


def role(given: int) -> AccountRole:
    if given not in (AccountRole.VIEWER, AccountRole.MEMBER, AccountRole.OWNER):
        raise refusal("role", Sentence("role_unknown"))
    return AccountRole(given)


def refusal(param: str, sentence: Sentence) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, sentence, param=param)
