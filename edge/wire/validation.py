"""Decodes JSON that a client sent, and says what is wrong with it: the place and the types, never what was sent."""

import re
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from services.chassis.errors import LegatoError, Reason

DecodedT = TypeVar("DecodedT")


class FieldDecoder(Generic[DecodedT]):
    """Decodes fields of one type."""

    def __init__(self, field_type: Any) -> None:
        self._decode = msgspec.json.Decoder(field_type).decode

    def decode(self, given: bytes | Raw, name: str) -> DecodedT:
        """Decodes the field `name`; an empty one is the body. Raises REQUEST_INVALID."""
        try:
            decoded: DecodedT = self._decode(given)
            return decoded
        except msgspec.ValidationError as error:
            raise _mistyped(str(error), name) from None
        except msgspec.DecodeError:
            raise invalid("The body is not valid JSON.", name or None) from None
        except RecursionError:
            raise invalid("The body is nested too deeply.", name or None) from None


_PLACE: Final = re.compile(r" - at `(?P<path>\$.*)`$")
# The messages of msgspec that contain only types, bounds and names of ours.
_SAFE: Final = re.compile(
    r"(Expected `[^`]+`(, got `[^`]+`|( of length)? [<>]=? -?[0-9.]+)?|Object missing required field `[a-z_]+`)$"
)


def _mistyped(sentence: str, name: str) -> LegatoError:
    place = _PLACE.search(sentence)
    # Keys of a dict are the client's own words, so the path stops before them.
    path = (name + place["path"][1:] if place else name).lstrip(".").partition("[...]")[0]
    said = _PLACE.sub("", sentence)
    if not _SAFE.match(said):
        said = "This value is not one of those accepted here"
    return invalid(f"{path or 'body'}: {said}.".replace("`", "'"), path or None)


def invalid(message: str, param: str | None = None) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, message, param=param)


class UnreadObject(Struct, gc=False):
    """Any object. Its fields are not used here, and so not decoded."""
