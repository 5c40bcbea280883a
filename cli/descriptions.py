"""Describes messages as commands print them: times, amounts of money, enums, tokens, limits and classes."""

from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from services.chassis.money import format_usd
from services.rules.usage import COLUMNS

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from google.protobuf.timestamp_pb2 import Timestamp

    from legato_protos.auth.v1.auth_pb2 import Account, Key
    from legato_protos.type.v1.usage_pb2 import Usage

# The fields of what is printed under another name.
FIELDS: Final = {
    "class": "class_id",
    "closed_at": "close_time",
    "created_at": "create_time",
    "disabled_at": "disable_time",
    "ended": "end_time",
    "expires_at": "expire_time",
    "last_seen_hour": "last_seen_time",
    "last_used_hour": "last_use_time",
    "model": "model_name",
    "next_attempt_at": "next_attempt_time",
    "reserved": "reserve_time",
    "revoked_at": "revoke_time",
    "start": "start_time",
    "started_at": "start_time",
    "suspended_at": "suspend_time",
}


def described(message: "Message", *names: str) -> dict[str, object]:
    """Describes some fields by the names under which they are printed; None is what is not set, or an empty text."""
    return {name: value_of(message, FIELDS.get(name, name)) for name in names}


def value_of(message: "Message", name: str) -> Any:
    """Describes one field: a time as RFC 3339, the value of an enum as a word, unless a later version has it."""
    field, value = message.DESCRIPTOR.fields_by_name[name], getattr(message, name)
    if value == "" or (field.has_presence and not message.HasField(name)):
        return None
    if field.enum_type is not None:
        named = field.enum_type.values_by_number
        prefix = named[0].name.removesuffix("UNSPECIFIED")
        return named[value].name.removeprefix(prefix).lower() if value and value in named else None
    return value if field.message_type is None else rfc3339(value)


def rfc3339(timestamp: "Timestamp") -> str:
    return timestamp.ToDatetime(tzinfo=UTC).isoformat().replace("+00:00", "Z")


def money(**amounts_nanos: int | None) -> dict[str, object]:
    """Describes amounts by name, each in dollars and in nano-dollars; None where it is unknown."""
    described: dict[str, object] = {}
    for name, nanos in amounts_nanos.items():
        described |= {f"{name}_usd": None if nanos is None else format_usd(nanos), f"{name}_nanos": nanos}
    return described


def tokens_of(usage: "Usage | None") -> dict[str, int | None]:
    return {name: usage and getattr(usage, name) for name in COLUMNS}


def allowed_classes(owner: "Account | Key") -> list[str] | None:
    """Returns the classes that an account or a key may use; None: all."""
    return list(owner.allowed_classes.class_ids) if owner.HasField("allowed_classes") else None
