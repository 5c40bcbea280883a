"""Decodes the JSON of a request. Error messages name the place and the types, and never quote what was sent."""

import codecs
import re
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from edge.wire.request_fields import NULL
from edge.wire.value_limit import check_values
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.chassis.timing.yielder import Yielder

DecodedT = TypeVar("DecodedT")
StructT = TypeVar("StructT", bound=Struct)

# A larger body is read in steps, between which it yields to other chats. Reading this much takes less than a
# millisecond.
SLICE_BYTES: Final = 64 * 1024
# OpenAI takes 16 pairs of metadata of at most 576 characters.
LARGEST_FIELD_BYTES: Final = 64 * 1024
# Names in the header of fields that were ignored.
MOST_NAMES: Final = 32
# Stands for names that do not fit into a header.
OTHERS: Final = "*"

_BRACE: Final = b"{"
_QUOTE: Final = b'"'
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PLACE: Final = re.compile(r" - at `(?P<path>\$.*)`$")
# The messages of msgspec that contain only types, bounds and names of ours.
_SAFE: Final = re.compile(
    r"(Expected `[^`]+`(, got `[^`]+`|( of length)? [<>]=? -?[0-9.]+)?|Object missing required field `[a-z_]+`)$"
)

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")
_fields_decoder = msgspec.json.Decoder(dict[str, Raw])
_text_decoder = msgspec.json.Decoder(str)


async def check_utf8(body: bytes, yielder: Yielder) -> None:
    """Raises for invalid UTF-8, which nothing would notice later in the parts that stay bytes."""
    try:
        if len(body) <= SLICE_BYTES:
            body.decode()
            return
        decoder, view = _Utf8Decoder(), memoryview(body)
        for begin in range(0, len(body), SLICE_BYTES):
            end = begin + SLICE_BYTES
            decoder.decode(view[begin:end], final=end >= len(body))
            await yielder.spend((min(end, len(body)) - begin) // 4)
    except UnicodeDecodeError:
        raise invalid(Sentence("body_not_utf8")) from None


async def read_fields(
    body: bytes, yielder: Yielder, strict: msgspec.json.Decoder[StructT], lenient: msgspec.json.Decoder[StructT]
) -> tuple[StructT, list[str]]:
    """Checks a whole body; returns its fields as `decode_known` does."""
    if len(body) > SLICE_BYTES or not body.isascii():
        await check_utf8(body, yielder)
    await check_values(body, yielder)
    decoded = decode_known(body, strict, lenient)
    await yielder.spend(len(body))
    return decoded


def decode_known(
    body: bytes, strict: msgspec.json.Decoder[StructT], lenient: msgspec.json.Decoder[StructT]
) -> tuple[StructT, list[str]]:
    """Returns the fields that are known, and the names of all others. `strict` refuses those, and is faster."""
    try:
        return strict.decode(body), []
    except (msgspec.DecodeError, RecursionError):
        decoded = decode_part(lenient, body, "")
        return decoded, _unknown_names(body, decoded)


def _unknown_names(body: bytes, decoded: Struct) -> list[str]:
    known = [field for name in decoded.__struct_fields__ if isinstance(field := getattr(decoded, name), Raw)]
    if len(body) - sum(len(memoryview(field)) for field in known) > LARGEST_FIELD_BYTES:
        return [OTHERS]
    fields = _fields_decoder.decode(body)
    unknown = [name for name in fields if name not in decoded.__struct_fields__ and present(fields[name])]
    names = [name for name in unknown[:MOST_NAMES] if _NAME.fullmatch(name)]
    return names if len(names) == len(unknown) else [*names, OTHERS]


def present(value: Raw) -> bytes:
    """Returns a field's bytes; empty if it is absent or null."""
    return b"" if value == NULL else bytes(value)


def check_field(name: str, given: bytes, decoder: msgspec.json.Decoder[DecodedT]) -> DecodedT | None:
    """Decodes a field of small size; returns None if it is empty."""
    if len(given) > LARGEST_FIELD_BYTES:
        raise invalid(Sentence("field_too_large", name=name, most_bytes=LARGEST_FIELD_BYTES), name)
    return decode_part(decoder, given, name) if given else None


def is_object(value: Raw) -> bool:
    return bytes(memoryview(value)[:1]) == _BRACE


def check_object(value: Raw, place: str) -> None:
    """Raises for a value that is there and no object."""
    if present(value) and not is_object(value):
        raise invalid(Sentence("object_expected", name=place), place)


def checked_text(value: Raw, place: str) -> Raw:
    """Returns the value, which is a text."""
    if bytes(memoryview(value)[:1]) != _QUOTE:
        decode_part(_text_decoder, value, place)
    return value


def decode_part(decoder: msgspec.json.Decoder[DecodedT], given: bytes | Raw, name: str) -> DecodedT:
    """Decodes the field `name`; an empty name is the body's."""
    try:
        return decoder.decode(given)
    except msgspec.ValidationError as error:
        raise _mistyped(str(error), name) from None
    except msgspec.DecodeError:
        raise invalid(Sentence("body_not_json"), name or None) from None
    except RecursionError:
        raise invalid(Sentence("body_nested"), name or None) from None


def _mistyped(sentence: str, name: str) -> LegatoError:
    place = _PLACE.search(sentence)
    # Keys of a dict are the client's own words, so the path stops before them.
    path = (name + place["path"][1:] if place else name).lstrip(".").partition("[...]")[0]
    rule = _PLACE.sub("", sentence)
    if not _SAFE.match(rule):
        rule = "This value is not one of those accepted here"
    expected = rule.replace("`", "'")
    return invalid(Sentence("parameter_invalid", name=path or "body", expected=expected), path or None)


def invalid(sentence: Sentence, param: str | None = None) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, sentence, param=param)
