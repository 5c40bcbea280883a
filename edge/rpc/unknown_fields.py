"""Finds the fields of a message that this version of the contract does not have, as those of a newer program."""

from collections.abc import Iterator, Sequence
from typing import Final

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from edge.wire.checked_json import MOST_NAMES, OTHERS

# A search that has seen so many messages is given up, since others wait for it.
MOST_VISITED: Final = 2_000


def name_unknown_fields(message: Message, given: bytes) -> Sequence[str]:
    """Returns the paths of fields that are not known, such as `chat.messages.9`, and drops these from the message.
    Elements of a list have the same path. `given` is what the message was parsed from."""
    message.DiscardUnknownFields()
    # The same size means the same fields. Another encoding of them may have another size, so this may be all of it.
    return () if message.ByteSize() == len(given) else _search(type(message).FromString(given))


def _search(message: Message) -> Sequence[str]:
    found: dict[str, None] = {}
    for visited, (path, part) in enumerate(_walk(message, "")):
        if visited == MOST_VISITED:
            found[OTHERS] = None
            break
        fields = UnknownFieldSet(part)
        for index in range(len(fields)):
            name = f"{path}{fields[index].field_number}"
            if name not in found and len(found) == MOST_NAMES:
                return (*found, OTHERS)
            found[name] = None
    return tuple(found)


def _walk(message: Message, path: str) -> Iterator[tuple[str, Message]]:
    """Yields the message and all messages in it, with the beginning of the paths of their fields."""
    yield path, message
    for field, value in message.ListFields():
        # Other files are of Google, and change no more. Their structs are the caller's own words.
        if field.message_type is None or field.message_type.file is not message.DESCRIPTOR.file:
            continue
        if not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else (value,):
                yield from _walk(each, f"{path}{field.name}.")
