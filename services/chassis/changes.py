"""Changes that events of the audit log tell: settings before and after, as records, JSON and messages."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from legato_protos.type.v1 import change_pb2 as pb

# Texts are ids and words, never names or content.
Value = int | bool | str | tuple[str, ...]
# By field. None is like a field that is absent: it is not set.
Settings = Mapping[str, Value | None]


class Change(msgspec.Struct, frozen=True):
    # Named like the setting, with its unit.
    field: str
    # None: it was not set.
    before: Value | None
    after: Value | None


# In the place of what cannot be read, such as what a later release wrote.
UNREADABLE: Final = (Change("unreadable", None, None),)


def to_json(changes: Iterable[Change]) -> str:
    return msgspec.json.encode(list(changes)).decode()


def from_json(text: str | None) -> tuple[Change, ...]:
    if not text:
        return ()
    try:
        return msgspec.json.decode(text, type=tuple[Change, ...])
    except msgspec.MsgspecError:
        return UNREADABLE


def changes_between(before: Settings, after: Settings) -> list[Change]:
    """Returns the settings that differ, in the order of `before` and then of `after`."""
    names = dict.fromkeys((*before, *after))
    changes = [Change(name, before.get(name), after.get(name)) for name in names]
    return [each for each in changes if each.before != each.after]


def to_changes(messages: Iterable[pb.Change]) -> list[Change]:
    return [Change(each.field, _value_of(each, "before"), _value_of(each, "after")) for each in messages]


def from_changes(changes: Iterable[Change]) -> list[pb.Change]:
    return [pb.Change(field=each.field, before=_message(each.before), after=_message(each.after)) for each in changes]


def _value_of(change: pb.Change, name: str) -> Value | None:
    if not change.HasField(name):  # type: ignore[arg-type]
        return None
    value: pb.ChangedValue = getattr(change, name)
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    found: Value = tuple(value.texts.texts) if kind == "texts" else getattr(value, kind)
    return found


def _message(value: Value | None) -> pb.ChangedValue | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return pb.ChangedValue(flag=value)
    if isinstance(value, int):
        return pb.ChangedValue(number=value)
    if isinstance(value, str):
        return pb.ChangedValue(text=value)
    return pb.ChangedValue(texts=pb.TextList(texts=value))
