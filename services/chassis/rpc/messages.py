"""Converts records to messages: fields of equal meaning have equal names."""

from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache, partial
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

# Times are named after what is done at them, and in records after what was done.
_TIMES: Final = {
    "attempt_time": "attempted_at_us",
    "authenticate_time": "authenticated_at_us",
    "close_time": "closed_at_us",
    "create_time": "created_at_us",
    "disable_time": "disabled_at_us",
    "expire_time": "expires_at_us",
    "join_time": "joined_at_us",
    "last_attempt_time": "last_attempt_at_us",
    "last_seen_time": "last_seen_hour_us",
    "last_use_time": "last_used_hour_us",
    "record_time": "recorded_at_us",
    "reserve_time": "reserved_at_us",
    "revoke_time": "revoked_at_us",
    "start_time": "started_at_us",
    "suspend_time": "suspended_at_us",
    "time": "occurred_at_us",
}

MessageT = TypeVar("MessageT", bound=Message)
# Of a value of a record, which is of the type that its field has.
Conversion = Callable[[Any], object]


def to_message(kind: type[MessageT], /, *records: object, **given: object) -> MessageT:
    """Builds a message of the fields of records, of which the first that has a field counts, and of what is `given`.
    None leaves a field unset. A field that nothing has is an error."""
    for name, source, convert in _fields_of(kind):  # type: ignore[arg-type]
        if name not in given:
            value = next(getattr(record, source) for record in records if hasattr(record, source))
            given[name] = None if value is None else convert(value)
    return kind(**given)


@cache
def _fields_of(kind: type[Message]) -> list[tuple[str, str, Conversion]]:
    """Lists the fields of a message, with their names in records and how to convert them."""
    return [
        (
            field.name,
            _TIMES.get(field.name, field.name),
            partial(_each, _conversion(field)) if field.is_repeated else _conversion(field),
        )
        for field in kind.DESCRIPTOR.fields
    ]


def _each(convert: Conversion, values: Iterable[object]) -> list[object]:
    return [*map(convert, values)]


def _conversion(field: Any) -> Conversion:
    if field.message_type is Timestamp.DESCRIPTOR:
        return to_timestamp
    if field.message_type is not None:
        inner = GetMessageClass(field.message_type)
        return lambda value: value if isinstance(value, Message) else to_message(inner, value)
    if field.enum_type is not None:
        # The numbers of an enumeration, by the names of its members here, or by texts.
        start = len(field.enum_type.values[0].name.removesuffix("UNSPECIFIED"))
        numbers = {value.name[start:]: value.number for value in field.enum_type.values}
        return lambda value: numbers[value.name if isinstance(value, Enum) else value.upper()]
    return lambda value: value


def to_timestamp(at_us: int | None) -> Timestamp | None:
    if at_us is None:
        return None
    timestamp = Timestamp()
    timestamp.FromMicroseconds(at_us)
    return timestamp
