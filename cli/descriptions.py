"""Describes messages as commands print them: times, amounts of money, enums, tokens, limits and classes."""

from datetime import UTC
from typing import TYPE_CHECKING, Any

from cli.values import LIMITS
from services.chassis.money import format_usd

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from google.protobuf.timestamp_pb2 import Timestamp

    from protos.auth.v1.auth_pb2 import Account, Key
    from protos.type.v1.usage_pb2 import Usage


def time_of(message: "Message", field: str) -> str | None:
    """Returns a time as RFC 3339; None where it is not set."""
    return rfc3339(getattr(message, field)) if message.HasField(field) else None


def rfc3339(timestamp: "Timestamp") -> str:
    return timestamp.ToDatetime(tzinfo=UTC).isoformat().replace("+00:00", "Z")


def word_of(kind: Any, value: int) -> str | None:
    """Returns an enum's value as a word; None where it is not set, or one that a later version has."""
    if value not in kind.values() or value == 0:
        return None
    word: str = kind.Name(value).removeprefix(kind.Name(0).removesuffix("UNSPECIFIED")).lower()
    return word


def money(**amounts_nanos: int | None) -> dict[str, Any]:
    """Describes amounts by name, each in dollars and in nano-dollars; None where it is unknown."""
    described: dict[str, Any] = {}
    for name, nanos in amounts_nanos.items():
        described |= {f"{name}_usd": None if nanos is None else format_usd(nanos), f"{name}_nanos": nanos}
    return described


def tokens_of(usage: "Usage | None") -> dict[str, int | None]:
    return {name: usage and getattr(usage, name) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}


def own_limits(owner: "Account | Key") -> dict[str, int | None]:
    """Returns the limits; None if a default applies."""
    return {name: getattr(owner, name) if owner.HasField(name) else None for name in LIMITS}  # type: ignore[arg-type]


def allowed_classes(owner: "Account | Key") -> list[str] | None:
    """Returns the classes that an account or a key may use; None: all."""
    return list(owner.allowed_classes.class_ids) if owner.HasField("allowed_classes") else None
