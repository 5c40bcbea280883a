"""Converts records to messages and requests to values: fields of equal meaning have equal names."""

from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from protos.type.v1.class_allowance_pb2 import ClassAllowance as ClassAllowanceMessage
from services.auth import checks
from services.auth.records.accounts import ALL_CLASSES, ClassAllowance
from services.chassis.access_tokens import Access, access_invalid, current_access

LIMITS: Final = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
SWITCHES: Final = ("search", "memory", "attachments")
# Times are named after what is done at them, and in records after what was done.
_TIMES: Final = {
    "attempt_time": "attempted_at_us",
    "authenticate_time": "authenticated_at_us",
    "create_time": "created_at_us",
    "disable_time": "disabled_at_us",
    "expire_time": "expires_at_us",
    "join_time": "joined_at_us",
    "last_attempt_time": "last_attempt_at_us",
    "last_seen_time": "last_seen_hour_us",
    "last_use_time": "last_used_hour_us",
    "revoke_time": "revoked_at_us",
    "start_time": "started_at_us",
    "suspend_time": "suspended_at_us",
    "time": "occurred_at_us",
}

MessageT = TypeVar("MessageT", bound=Message)


def to_message(kind: type[MessageT], *records: Any, **given: Any) -> MessageT:
    """Builds a message of the fields of records, of which the first that has a field counts, and of what is `given`.
    None leaves a field unset. A field that nothing has is an error."""
    for name, source, convert in _fields_of(kind):  # type: ignore[arg-type]
        if name not in given:
            value = next(getattr(record, source) for record in records if hasattr(record, source))
            given[name] = None if value is None else convert(value)
    return kind(**given)


@cache
def _fields_of(kind: Any) -> list[tuple[str, str, Callable[[Any], Any]]]:
    """Lists the fields of a message, with their names in records and how to convert them."""
    return [(field.name, _TIMES.get(field.name, field.name), _conversion(field)) for field in kind.DESCRIPTOR.fields]


def _conversion(field: Any) -> Callable[[Any], Any]:
    if field.message_type is Timestamp.DESCRIPTOR:
        return to_timestamp
    if field.message_type is ClassAllowanceMessage.DESCRIPTOR:
        return _from_allowance
    if field.enum_type is not None:
        # The numbers of an enumeration, by the names of its members here.
        start = len(field.enum_type.values[0].name.removesuffix("UNSPECIFIED"))
        numbers = {value.name[start:]: value.number for value in field.enum_type.values}
        return lambda value: numbers[value.name] if isinstance(value, Enum) else [numbers[each.name] for each in value]
    return lambda value: value


def to_timestamp(micros: int | None) -> Timestamp | None:
    if micros is None:
        return None
    timestamp = Timestamp()
    timestamp.FromMicroseconds(micros)
    return timestamp


def _from_allowance(allowance: ClassAllowance) -> ClassAllowanceMessage | None:
    return None if allowance.class_ids is None else ClassAllowanceMessage(class_ids=allowance.class_ids)


def given(request: Message, *names: str) -> dict[str, Any]:
    """Returns those of these fields that a request has."""
    return {name: getattr(request, name) for name in names if request.HasField(name)}


def given_classes(request: Any) -> ClassAllowance | None:
    """Returns what a request allows; None leaves it as it is."""
    allows_all = getattr(request, "allow_all_classes", False)
    if not request.HasField("allowed_classes"):
        return ALL_CLASSES if allows_all else None
    if allows_all:
        raise checks.refusal("allowed_classes", "Allow all classes or some, not both.")
    return checks.allowed_classes(request.allowed_classes.class_ids)


def required_access() -> Access:
    """Returns the access of the current call; raises on a socket without a console, where no call has any."""
    access = current_access.get()
    if access is None:
        raise access_invalid()
    return access
